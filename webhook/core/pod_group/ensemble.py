"""Several jobs that share one PodGroup, taken as one gang: composed for the engine, and split again for everybody else.

The engine knows gangs only, everybody else jobs only. An ensemble's gang has the pod sets of all its jobs, each under a
name that says whose it is, and the PodGroup's ``minMember`` as quorum. What is decided about it is split into one
reservation a job, each with a ``Membership``, from which the whole is composed again whoever reads the ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import Gang, PodSet
from webhook.core.notation.counted import counted, does
from webhook.core.notation.problem import some
from webhook.core.reasons.reasons import Code, Reason

Key = tuple[str, str]
"""Namespace and name of a PodGroup."""
KIND: Final = "PodGroup"
POD_SETS_MAX: Final = 1_024
"""Pod sets of one gang: who writes jobs may let thousands share a PodGroup, and all of a gang is decided in one go."""
NAMED_MAX: Final = 10
"""Jobs that a reason names; thousands may share a PodGroup, and each is told."""


@dataclass(frozen=True, slots=True)
class Part:
    """One job's holding, and what is known of the job."""

    reservation: Reservation
    gang: Gang | None = None
    reclaimed: Mapping[str, int] = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """Pods that it has reserved."""
        return sum(self.reservation.counts.values())


def uid_of(key: Key) -> str:
    """Return the engine's name for an ensemble. No job has it, nor have the plain pods of the same PodGroup."""
    return f"ensemble {key[0]}/{key[1]}"


def pod_set_name(job: Gang | Reservation, pod_set: str) -> str:
    """Return the name of a job's pod set within its ensemble."""
    return f"{job.kind}/{job.name}/{pod_set}"


def in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Return the gangs in the order in which an ensemble has them: by place in the queue."""
    return sorted(gangs, key=lambda gang: (gang.created_seconds, gang.kind, gang.name, gang.uid))


def enough(gangs: Sequence[Gang], pods: int) -> list[Gang]:
    """Return the first of ``gangs`` that bring ``pods`` between them; all that have pods, if they do not."""
    taken: list[Gang] = []
    brought = 0
    for gang in gangs:
        if not gang.pods:
            continue
        taken.append(gang)
        brought += gang.pods
        if brought >= pods:
            break
    return taken


def too_many(key: Key, gangs: Iterable[Gang]) -> Reason | None:
    """Return why ``gangs`` are too many to start together, or None when they are not."""
    pod_sets = sum(len(gang.pod_sets) for gang in gangs)
    if pod_sets <= POD_SETS_MAX:
        return None
    text = (
        f"the jobs that PodGroup {key[0]}/{key[1]} needs have {counted(pod_sets, 'pod set')}, more than {POD_SETS_MAX}"
    )
    return Reason(Code.ENTRY_TOO_LARGE, text, help="lower its minMember, or bring the pods by fewer jobs")


def compose(key: Key, gangs: Sequence[Gang], quorum: int | None) -> Gang:
    """Return the gang that ``gangs``, at least one, make together.

    It stands where the first of them stands, may be stopped only if all may, and is due when all are. How few pods are
    enough is for ``quorum`` alone to say: no pod set of it is admitted in part by itself.
    """
    first = gangs[0]
    limits = [gang.max_run_seconds for gang in gangs]
    return Gang(
        uid=uid_of(key),
        kind=KIND,
        namespace=key[0],
        name=key[1],
        queue=first.queue,
        pod_sets=tuple(_pod_set(gang, pod_set) for gang in gangs for pod_set in gang.pod_sets),
        priority=first.priority,
        created_seconds=min(gang.created_seconds for gang in gangs),
        quorum=quorum,
        max_run_seconds=None if None in limits else max(limit for limit in limits if limit is not None),
        not_before_seconds=max(gang.not_before_seconds for gang in gangs),
        pod_group=key[1],
        labels=first.labels,
        evictable=all(gang.evictable for gang in gangs),
        preemptible=all(gang.preemptible for gang in gangs),
    )


def _pod_set(gang: Gang, pod_set: PodSet) -> PodSet:
    together = pod_set_name(gang, pod_set.together) if pod_set.together else ""
    name = pod_set_name(gang, pod_set.name)
    return replace(pod_set, name=name, min_count=None, together=together, job=gang.uid)


def compose_reservation(key: Key, parts: Sequence[Part]) -> Reservation:
    """Return what the jobs of an ensemble, at least one, hold together; it is stopping when all of them are."""
    first = parts[0].reservation
    return replace(
        first,
        uid=uid_of(key),
        kind=KIND,
        name=key[1],
        pod_sets=tuple(_reserved(part.reservation, s) for part in parts for s in part.reservation.pod_sets),
        stopping=first.stopping if all(part.reservation.stopping for part in parts) else None,
        evictable=all(part.reservation.evictable for part in parts),
        preemptible=all(part.reservation.preemptible for part in parts),
        membership=None,
    )


def _reserved(reservation: Reservation, pod_set: ReservedPodSet) -> ReservedPodSet:
    return replace(pod_set, name=pod_set_name(reservation, pod_set.name), job=reservation.uid)


def reclaimed_of(parts: Iterable[Part]) -> dict[str, int]:
    """Return how many pods of each set of an ensemble will not run again."""
    return {pod_set_name(part.reservation, name): number for part in parts for name, number in part.reclaimed.items()}


def split(whole: Reservation, job: Gang | Reservation) -> tuple[ReservedPodSet, ...]:
    """Return what an ensemble's reservation gives to one of its jobs."""
    reserved = ((pod_set.name, whole.pod_set(pod_set_name(job, pod_set.name))) for pod_set in job.pod_sets)
    return tuple(replace(found, name=name, job="") for name, found in reserved if found is not None)


def reservation_of(whole: Reservation, gang: Gang) -> Reservation:
    """Return the reservation of one job of an ensemble that was admitted as ``whole``."""
    return replace(whole, uid=gang.uid, kind=gang.kind, name=gang.name, pod_sets=split(whole, gang))


def mismatch(gangs: Iterable[Gang]) -> Reason | None:
    """Return why ``gangs`` cannot start together, or None when they can: one queue, one priority."""
    gangs = list(gangs)
    queues = sorted({gang.queue or "none" for gang in gangs})
    if len(queues) > 1:
        text = f"the jobs of its PodGroup ask for different queues ({', '.join(queues)})"
        return Reason(Code.MISCONFIGURED, text, help="give all of them the same queue label")
    priorities = sorted({gang.priority for gang in gangs})
    if len(priorities) > 1:
        text = f"the jobs of its PodGroup have different priorities ({', '.join(map(str, priorities))})"
        return Reason(Code.MISCONFIGURED, text, help="give all of them the same priority class")
    return None


def incomplete(key: Key, needed: int, brought: int, held: int) -> Reason:
    """Return the reason of jobs that bring too few pods between them; ``held`` is what others of them have started."""
    running = f" and {does(held, 'run')}" if held else ""
    return Reason(
        Code.POD_GROUP_INCOMPLETE,
        f"PodGroup {key[0]}/{key[1]} needs {counted(needed, 'pod')}, its jobs that wait bring {brought}{running}",
        help="create its other jobs, or lower its minMember",
    )


def behind(gangs: Sequence[Gang]) -> Reason:
    """Return the reason of a job whose PodGroup has its quorum in ``gangs``, which wait themselves."""
    names = some(gangs, NAMED_MAX, lambda gang: gang.key)
    return Reason(Code.BEHIND_HEAD, f"{names} of its PodGroup start first", help="it follows once they run")


def stands(parts: Sequence[Reservation]) -> bool:
    """Return whether what remains of an ensemble, and is not being stopped, still makes its quorum."""
    going_on = [reservation for reservation in parts if reservation.stopping is None]
    needed = max((r.membership.still_needed for r in going_on if r.membership is not None), default=0)
    return sum(sum(reservation.counts.values()) for reservation in going_on) >= needed


def left(reservation: Reservation) -> Reservation:
    """Return the reservation of a gang that goes its own way from now on."""
    return replace(reservation, membership=None)


def relieved(reservation: Reservation, succeeded_pods: int) -> Reservation:
    """Return the reservation of a gang of whose ensemble at least so many pods have succeeded and left."""
    known = reservation.membership
    if known is None or succeeded_pods <= known.succeeded_pods:
        return reservation
    return replace(reservation, membership=replace(known, succeeded_pods=succeeded_pods))


def lowered(reservation: Reservation, quorum: int) -> Reservation:
    """Return the reservation of a gang whose ensemble has to make no more than ``quorum`` pods from now on."""
    known = reservation.membership
    if known is None or quorum >= known.quorum:
        return reservation
    return replace(reservation, membership=replace(known, quorum=quorum))
