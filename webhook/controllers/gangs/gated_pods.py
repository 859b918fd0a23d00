"""Gangs whose pods wait behind our scheduling gates: which may go, what is next, and what is written on them.

Two sorts of gang have such pods. A job of a kind without a suspend field is started like any other, and its pods are
let go as its controller creates them. Plain pods of a PodGroup are the gang themselves: nothing but their gates starts
it and nothing but deleting those that were let go stops it, as in Kueue; those behind their gates stay and wait again.

A lifted gate cannot be put back. So the lifts of a gang carry versions of its pods that were read before the ledger
write that authorised them, and before a reservation ends every pod that still waits is written once (ledger rule 4).
What waits longest goes first: a lift whose outcome nobody knows is then repeated before another pod takes its place.
"""

from collections.abc import Iterable, Sequence

from webhook.cluster.view import View
from webhook.controllers.gangs.assess import Step
from webhook.controllers.writes.effects import REBUILD, Effect, PodWrite
from webhook.core.ledger.record import Ledger, Reservation, ReservedPodSet
from webhook.core.model.pods import PodRecord
from webhook.core.nodes.tiers import is_tier
from webhook.core.reasons.eviction import ENDED
from webhook.jobs.patches import pod as pod_patches
from webhook.jobs.plain_pods.groups import POD_GROUP, seated
from webhook.jobs.reading import annotations
from webhook.jobs.reading.record import JobRecord, Requeue


def is_pod_group(gang: JobRecord | Reservation | None) -> bool:
    """Return whether a gang is made of plain pods, so that no job object stands for it."""
    return gang is not None and gang.kind == POD_GROUP.key


def liftable(pods: Iterable[PodRecord], reservation: Reservation | None) -> tuple[PodRecord, ...]:
    """Return the waiting pods for which the reservation has a free place, in the order in which they go."""
    if reservation is None or reservation.stopping is not None or reservation.adopted:
        return ()
    live, chosen = seated(tuple(pods)), []
    for reserved in reservation.pod_sets:
        here = [pod for pod in live if pod.pod_set == reserved.name]
        free = reserved.count - sum(not pod.gated for pod in here)
        waiting = sorted((p for p in here if p.gated and _fits(p, reserved)), key=lambda pod: pod.resource_version)
        chosen += waiting[: max(free, 0)]
    return tuple(chosen)


def _fits(pod: PodRecord, reserved: ReservedPodSet) -> bool:
    """Return whether a pod asks no more of what a queue counts than its place holds."""
    held = reserved.price.requests
    return all(pod.price.requests.get(name, 0) <= held.get(name, 0) for name in {*reserved.flavors, *held})


def assess_pod_group(
    reservation: Reservation | None,
    pods: Sequence[PodRecord],
    voided: bool,
    quorum: int | None,
    *,
    refused: bool = False,
) -> Step:
    """Return the next step for the plain pods of a PodGroup.

    ``pods`` are all pods of the gang; ``voided``: this leadership has written those that wait since the entry says
    stopping; ``quorum`` is how many must be able to start together, None for all that were reserved; ``refused``: they
    can be told nothing.
    """
    waiting = any(pod.gated and pod.live for pod in pods)
    let_go = [pod for pod in pods if not pod.gated and not pod.terminal]
    if reservation is None:
        if any(pod.live for pod in let_go):
            return Step.SUSPEND
        return Step.WAIT if waiting and not let_go else Step.WITHDRAW
    if reservation.stopping is not None:
        if any(pod.live for pod in let_go):
            return Step.STOP
        # Who was created again meanwhile is told the place and the back-off as well.
        if any(pod.gated and pod.live and not (voided and (refused or told(pod))) for pod in pods):
            return Step.VOID
        return Step.NOTHING if let_go else Step.RELEASE
    lifts = liftable(pods, reservation)
    if let_go:
        return Step.LIFT if lifts else Step.NOTHING
    if not waiting:
        return Step.RELEASE
    # Nothing of it runs, and pods wait: either it starts now, or this is over and they queue again.
    ended = any(started_by(pod, reservation) for pod in pods)
    whole = sum(reservation.counts.values())
    least = whole if quorum is None else min(quorum, whole)
    return Step.LIFT if lifts and len(lifts) >= least and not ended else Step.END


def started_by(pod: PodRecord, reservation: Reservation) -> bool:
    """Return whether a pod of a PodGroup was let go as part of what this very reservation authorised."""
    admission = None if pod.gated else annotations.decode_admission(pod.admission, reservation.uid)
    return admission is not None and admission.is_of(reservation)


def lifting(job: JobRecord, pods: Iterable[PodRecord], ledger: Ledger, view: View) -> Effect | None:
    """Return the effect that lets ``pods`` go, chosen before ``ledger`` was written; None if that takes it back.

    A pod that has to be in a HyperNode is limited to the nodes that are in it now, and waits while there are none.
    """
    reservation = ledger.entries.get(job.uid)
    if reservation is None or reservation.stopping is not None:
        return None
    tiers = {each.name: {k: v for k, v in each.domain.items() if is_tier(k)} for each in reservation.pod_sets}
    held_to = {
        name: [] if view.nodes is None else view.nodes.nodes_in(domain) for name, domain in tiers.items() if domain
    }

    def lift(pod: PodRecord) -> PodWrite:
        only = held_to.get(pod.pod_set, ())
        return PodWrite(pod, pod_patches.lift(pod, job, reservation, ledger.version, view.policy.flavors, nodes=only))

    writes = [lift(pod) for pod in pods if held_to.get(pod.pod_set, True)]
    return Effect(Step.LIFT, job, pods=tuple(writes)) if writes else None


def stopping(step: Step, job: JobRecord, pods: Iterable[PodRecord], requeue: Requeue) -> Effect | None:
    """Return the effect that deletes the pods that were let go, and sends plain ones that wait back into the queue."""
    writes = []
    for pod in pods:
        if not pod.live:
            continue
        patch = pod_patches.send_back(pod, job.uid, requeue) if pod.gated and is_pod_group(job) else None
        writes.append(PodWrite(pod, patch))
    return Effect(step, job, pods=tuple(writes)) if writes else None


def deleting(reservation: Reservation, pods: Iterable[PodRecord]) -> Effect | None:
    """Return the effect that deletes what is left of a gang whose job is gone."""
    gone = JobRecord(
        kind=reservation.kind,
        namespace=reservation.namespace,
        name=reservation.name,
        uid=reservation.uid,
        resource_version=0,
        created_seconds=0.0,
        deleting=True,
        marked=True,
    )
    writes = tuple(PodWrite(pod, None) for pod in pods if pod.live)
    return Effect(Step.DELETE_PODS, gone, pods=writes) if writes else None


def told(pod: PodRecord) -> bool:
    """Return whether a pod that waits says from where it was sent back."""
    return pod.waiting is not None and bool(pod.waiting.requeue)


def outlives(reservation: Reservation, view: View) -> bool:
    """Return whether what a stopped gang is to take along has no pod to be written on: all of them were deleted."""
    if not is_pod_group(reservation) or reservation.stopping in (None, ENDED):
        return False
    return not any(pod.gated and pod.live for pod in view.fences.pods_of(reservation.namespace, reservation.uid))


def ended(job: JobRecord) -> Requeue:
    """Return what to write on the pods of a group that wait while nothing of its reservation runs."""
    message = "the pods it was admitted with are gone; those that wait queue again"
    return Requeue(ENDED, job.place_seconds, message=message)


def voiding(job: JobRecord, view: View, epoch: int) -> Effect:
    """Return the effect that makes every lift of a pod of this gang conflict that was sent before."""
    pods = view.fences.pods_of(job.namespace, job.uid)
    waiting = (pod for pod in pods if pod.gated and pod.live)
    return Effect(REBUILD, job, pods=tuple(PodWrite(pod, pod_patches.void(pod, epoch)) for pod in waiting))
