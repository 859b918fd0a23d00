"""From a job object to the gang that waits: adds what other objects say about it, or says why it cannot wait yet."""

from dataclasses import replace
from typing import Final

from webhook.cluster.view import NAMESPACE_QUEUES, POD_GROUPS, POLICY, View
from webhook.core.ledger import bounds
from webhook.core.model.gang import Gang
from webhook.core.notation import names
from webhook.core.notation.counted import counted, does
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import JobRecord


def waiting_gang(job: JobRecord, view: View) -> Gang | Reason:
    """Return what ``job`` asks with its PodGroup's quorum, or the reason why the engine must not consider it yet."""
    gang = job.asks
    if gang is None:
        return Reason(Code.UNREADABLE, str(job.problem))
    unread = _unread(job, gang, view)
    if unread is not None:
        return unread
    if job.left_over and not job.asks_itself and view.policy.queue_of(job.namespace, None) is None:
        return Reason(
            Code.MISCONFIGURED,
            "it was created for another gang, whose job has been deleted, and names no queue of its own",
            help=f"label it with {names.QUEUE_LABELS[0]}, or delete it",
        )
    if job.admission_gates:
        return behind_gates(job.admission_gates)
    if job.dispatching_suspended_by:
        why = f"{job.dispatching_suspended_by} suspends dispatching"
        return Reason(Code.SUSPENDED, why, help="it queues once that policy does not")
    missing = job.missing_class
    if missing:
        return Reason(Code.PRIORITY_CLASS_NOT_FOUND, f"{missing.label} does not exist", help=missing.help)
    too_large = bounds.too_large(gang)
    if too_large is not None:
        return Reason(Code.ENTRY_TOO_LARGE, too_large)
    if job.out_of_bounds:
        return Reason(Code.MISCONFIGURED, job.out_of_bounds, help="correct the pod template or the LimitRange")
    if gang.pod_group is not None and gang.quorum is None:
        pod_group = view.pod_group_of(gang)
        if pod_group is None:
            where = "pods" if job.kind == POD_GROUP.key else "pod template"
            return Reason(
                Code.POD_GROUP_NOT_FOUND,
                f"PodGroup {gang.namespace}/{gang.pod_group} does not exist",
                help=f"create it, or remove its label from the {where}",
            )
        gang = replace(gang, quorum=max(1, pod_group.min_member))
    if gang.quorum is not None and gang.quorum > gang.pods and not gang.ensemble:
        if job.kind == POD_GROUP.key:
            return Reason(
                Code.WAITING_FOR_PODS,
                f"it needs {counted(gang.quorum, 'pod')}, and {does(gang.pods, 'exist')}",
                help="it waits until the others are created; those that exist stay behind their gates",
            )
        return Reason(
            Code.MISCONFIGURED,
            f"its quorum is {counted(gang.quorum, 'pod')} and it has only {gang.pods}",
            help="lower minMember or raise the number of pods",
        )
    if view.fences.fences(gang.namespace) and not is_fenced(view, gang.namespace):
        return Reason(
            Code.NAMESPACE_NOT_FENCED,
            f"namespace {gang.namespace} has a ResourceQuota and its label {names.FENCED_NAMESPACE} is not stored yet",
        )
    return gang


OWNER_GATE: Final = "tutti.dev/owner"
"""What ``tutti hold`` writes into the annotation for admission gates."""
RELEASED: Final = "`tutti release` lets it queue again, at its place"
"""What helps a gang that its owner holds."""


def _unread(job: JobRecord, gang: Gang, view: View) -> Reason | None:
    """Return what the gang cannot be judged without and nobody lets Tutti read."""
    needed = [job.kind, POLICY, NAMESPACE_QUEUES]
    if gang.pod_group is not None and gang.quorum is None:
        needed.append(POD_GROUPS)
    topic = next((topic for topic in needed if topic in view.unread), None)
    if topic is None:
        return None
    return Reason(
        Code.KIND_UNREAD,
        f"Tutti cannot read {topic}: {view.unread[topic]}",
        help="it continues once the API server lists them; check their CRD's conversion webhook and Tutti's rights",
    )


def behind_gates(gates: str) -> Reason:
    """Return the reason of a gang that its owner holds, or that others have to agree to before it is queued."""
    if gates == OWNER_GATE:
        return Reason(Code.ON_HOLD, "its owner holds it", help=RELEASED)
    return Reason(
        Code.ADMISSION_GATED,
        f"its annotation {names.ADMISSION_GATES} names {gates}",
        help="it queues once that name is removed",
    )


def is_fenced(view: View, namespace: str) -> bool:
    """Return whether loose pods of the namespace are checked: its label is stored."""
    return view.namespaces.get(namespace, {}).get(names.FENCED_NAMESPACE) == "true"


def write_refused(why: str) -> Reason:
    """Return the reason of a gang whose job somebody lets nobody write."""
    return Reason(
        Code.WRITE_REFUSED,
        f"Tutti's write to the job is refused: {why}",
        help="correct the job or whatever refuses it; Tutti tries again twice a minute",
    )
