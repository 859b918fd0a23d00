"""Plain pods that joined a PodGroup by themselves, read as one gang.

A pod joins by a label, an annotation or a field (``group_names``). The gang has no object of its own: its identity
follows from the group's namespace and name, so that a pod tells at creation whose it is, and a ledger can be rebuilt
from pods alone. Pods that ask the same are a pod set, as Kueue's roles. Pods of a job's controller belong to the job's
gang and never come here.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Problem
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.plain_pods.group_names import number_of_pods
from webhook.jobs.plain_pods.pod_group import NO_GROUP, PodGroupRecord
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.pricing.host_ports import host_ports
from webhook.jobs.reading import annotations, network_topology
from webhook.jobs.reading.missing_class import MissingClass, missing_class
from webhook.jobs.reading.record import Admission, JobRecord, Requeue

POD_GROUP: Final = JobKind(
    group="scheduling.x-k8s.io",
    version="v1alpha1",
    kind="PodGroup",
    plural="podgroups",
    scheduling_gated=True,
)
"""The kind under which such gangs stand in ledger and read API, whichever generation their PodGroup is of."""
_NAMESPACE: Final = uuid.UUID("5c1a1f0e-9d2b-4c55-8a55-6f6d2f7d7c10")
_ROLE_CHARACTERS: Final = 8
PODS_MAX: Final = 5_000
"""Of one group: all of them are looked at in one go, in every process."""
Terms = tuple[str | None, int, str, int]
"""The queue that a pod asks for, its priority, its WorkloadPriorityClass, and the size of its group, 0 if unsaid."""
_SPARING: Final = frozenset(names.PREEMPTIBLE_LABELS)


def gang_uid(namespace: str, group: str) -> str:
    """Return the identity of the gang that the plain pods of a PodGroup make."""
    return str(uuid.uuid5(_NAMESPACE, f"{namespace}/{group}"))


def role_of(price: PodPrice, spec: Mapping[str, Any]) -> str:
    """Return the name of the pod set that pods of this price with this way of being scheduled make."""
    keys = ("nodeSelector", "affinity", "tolerations")
    shape = [dict(price.requests), dict(price.limits), price.priority_class, price.has_deadline]
    placed = [*(spec.get(key) or None for key in keys), *host_ports(spec)]
    text = orjson.dumps([*shape, *placed], option=orjson.OPT_SORT_KEYS)
    return "pods-" + hashlib.blake2b(text, digest_size=_ROLE_CHARACTERS // 2).hexdigest()


def read(
    namespace: str, group: str, pods: Iterable[PodRecord], context: ReadContext, stated: PodGroupRecord = NO_GROUP
) -> JobRecord | None:
    """Return the gang that the ``pods`` of one PodGroup make, those that have ended included; None without any.

    Of what the PodGroup has ``stated``, its queue is for pods that carry no label of one. Once some of them run, what
    these say of queue and priority counts: who says something else does not join them.
    """
    known = list(pods)
    members = sorted(known[:PODS_MAX], key=lambda pod: (pod.resource_version, pod.uid))
    if not members:
        return None
    uid = gang_uid(namespace, group)
    waiting = [pod for pod in members if pod.gated and pod.live]
    running = [pod for pod in members if not pod.gated and not pod.terminal]
    counted = [pod for pod in members if pod.live] or members
    deciding = [pod for pod in counted if not pod.gated and not pod.terminal] or counted
    total = _total(deciding)
    succeeded = done(members, total)
    ended = all(pod.terminal for pod in members)
    # Pods of an earlier start may still lie about while those of the next one wait.
    starts = [start for pod in members if (start := _start(pod, uid)) is not None] if running or ended else []
    admission = max((start for _, start in starts), key=lambda start: (start.epoch, start.seq), default=None)
    requeue = _requeue(waiting, uid)
    created = min(pod.created_seconds for pod in counted)
    problem = _too_many(len(known)) or _all_done(waiting, total, succeeded) or _problem(deciding, context)
    gang = Gang(
        uid=uid,
        kind=POD_GROUP.key,
        namespace=namespace,
        name=group,
        queue=_queue(deciding[0]) or stated.queue,
        pod_sets=network_topology.of_group(_pod_sets(seated(members) or members), stated.network_topology, context),
        priority=_priority(deciding[0], context),
        created_seconds=created if requeue is None else requeue.place_seconds,
        # What runs is whole with those that have succeeded; what waits lacks no more than these have left to do.
        quorum=(total if running else total - succeeded) or _quorum(counted),
        not_before_seconds=0.0 if requeue is None else requeue.not_before_seconds,
        pod_group=group,
        labels=dict(deciding[0].labels),
        joinable=True,
        preemptible=not any(value == "false" for pod in counted for name, value in pod.labels if name in _SPARING),
    )
    return JobRecord(
        kind=POD_GROUP.key,
        namespace=namespace,
        name=group,
        uid=uid,
        resource_version=members[-1].resource_version,
        created_seconds=created,
        gang=gang if problem is None else None,
        problem=problem,
        queue_label=gang.queue,
        suspended=not running,
        finished=_outcome(members, total) if ended else None,
        active=bool(running),
        ready=ended or (admission is not None and _whole(starts, admission)),
        deleting=not ended and not any(pod.live for pod in members),
        marked=True,
        restorable=True,
        admission=admission,
        requeue=requeue,
        waiting_pods=len(waiting),
        missing_class=next(filter(None, (_missing_class(pod, context) for pod in deciding)), None),
    )


def terms(pod: PodRecord) -> Terms:
    """Return on which terms a pod joins its group; pods that run with each other have the same."""
    return terms_of(dict(pod.labels), pod.priority, pod.group_size)


def terms_of(labels: Mapping[str, Any], priority: object, size: int) -> Terms:
    """Return the terms of a pod with these labels, this priority of its own and this size of its group."""
    queue = next((labels[label] for label in names.QUEUE_LABELS if labels.get(label)), None)
    return queue, priority if type(priority) is int else 0, str(labels.get(names.PRIORITY_CLASS_LABEL) or ""), size


def seated(pods: Sequence[PodRecord]) -> list[PodRecord]:
    """Return the live pods of a gang that have a place in it, ``pods`` being all of it, those that have ended included.

    A pod that the running part of a group does not take along waits until the gang starts again. Of a group that has a
    size (Kueue's) only so many have a place, those that have succeeded too: what runs goes first, then the oldest.
    Kueue deletes the others; here they wait.
    """
    live = [pod for pod in pods if pod.live]
    known = {terms(pod) for pod in live if pod.group and not pod.gated}
    if known:
        live = [pod for pod in live if terms(pod) in known]
    total = _total(live)
    if not total:
        return live
    live.sort(key=lambda pod: (pod.gated, pod.created_seconds, pod.name))
    return live[: total - done(pods, total)]


def done(pods: Sequence[PodRecord], total: int) -> int:
    """Return how many places of a group of ``total`` are filled for good, by pods that have succeeded.

    Once all are, the group is finished, and as long as these pods are there no other starts. 0 without a size.
    """
    return min(sum(pod.phase == "Succeeded" for pod in pods), total)


def vacancies(pods: Sequence[PodRecord], total: int) -> int:
    """Return how many pods a group of ``total`` has room for besides ``pods``, which are all of it."""
    return total - done(pods, total) - sum(pod.live for pod in pods)


def _total(pods: Iterable[PodRecord]) -> int:
    return max((pod.group_size for pod in pods), default=0)


def _outcome(pods: Sequence[PodRecord], total: int) -> str:
    """Return how a group ended; one with a size has succeeded with that many, whoever failed before."""
    made = sum(pod.phase == "Succeeded" for pod in pods)
    return "Succeeded" if made == len(pods) or 0 < total <= made else "Failed"


def _pod_sets(pods: Sequence[PodRecord]) -> tuple[PodSet, ...]:
    sets: dict[str, PodSet] = {}
    for pod in pods:
        known = sets.get(pod.pod_set)
        asks = PodSet(pod.pod_set, 1, pod.price) if pod.waiting is None else pod.waiting.asks
        # Of a set that runs in part, those that wait say what its pods asked before they were started.
        base = asks if known is None or pod.waiting is not None else known
        sets[pod.pod_set] = replace(base, count=1 if known is None else known.count + 1)
    return tuple(sets[name] for name in sorted(sets))


def _too_many(pods: int) -> Problem | None:
    if pods <= PODS_MAX:
        return None
    why = f"the group has {counted(pods, 'pod')}, more than {PODS_MAX}"
    return Problem("", "", why, "delete some, or have a job make them")


def _all_done(waiting: Sequence[PodRecord], total: int, succeeded: int) -> Problem | None:
    if not waiting or not total or succeeded != total:
        return None
    why = f"all {counted(total, 'pod')} of the group {'has' if total == 1 else 'have'} succeeded"
    return Problem("", "", why, "delete these to run it again, or name another group")


def _problem(pods: Sequence[PodRecord], context: ReadContext) -> Problem | None:
    queues = sorted({str(_queue(pod)) for pod in pods})
    if len(queues) > 1:
        why = f"its pods ask for different queues ({', '.join(queues)})"
        return Problem("", "", why, "give all of them the same label")
    sizes = sorted({pod.group_size for pod in pods})
    if len(sizes) > 1:
        said = ", ".join(str(size or "none") for size in sizes)
        why = f"its pods have different {names.KUEUE_POD_COUNT} ({said})"
        return Problem("", "", why, "give all of them the same annotation")
    # Those of the pods themselves are the kubelets' and the scheduler's, the classes' are the queue's: all must agree.
    for priorities in (sorted({pod.priority for pod in pods}), sorted({_priority(pod, context) for pod in pods})):
        if len(priorities) > 1:
            why = f"its pods have different priorities ({', '.join(map(str, priorities))})"
            return Problem("", "", why, "give all of them the same")
    return None


def _queue(pod: PodRecord) -> str | None:
    return terms(pod)[0]


def _class(pod: PodRecord, context: ReadContext) -> str:
    """Return the WorkloadPriorityClass that a pod names, or that pods with a queue have by default; empty for none."""
    named = dict(pod.labels).get(names.PRIORITY_CLASS_LABEL, "")
    if not named and names.DEFAULT_PRIORITY_CLASS in context.workload_priority_classes and _queue(pod):
        return names.DEFAULT_PRIORITY_CLASS
    return named


def _priority(pod: PodRecord, context: ReadContext) -> int:
    return context.workload_priority_classes.get(_class(pod, context), pod.priority)


def _missing_class(pod: PodRecord, context: ReadContext) -> MissingClass | None:
    named, known = _class(pod, context), context.workload_priority_classes
    return missing_class("WorkloadPriorityClass", named, known) if named and named not in known else None


def _quorum(pods: Iterable[PodRecord]) -> int | None:
    """Return what the pods themselves say; otherwise their PodGroup does."""
    found = (number_of_pods(dict(pod.labels).get(names.MIN_AVAILABLE_LABEL)) for pod in pods)
    return max((number for number in found if number is not None), default=None)


def _start(pod: PodRecord, uid: str) -> tuple[PodRecord, Admission] | None:
    """Return a pod that was let go, with what its gang was admitted with then; None for any other."""
    admission = annotations.decode_admission(pod.admission, uid) if pod.admission and not pod.gated else None
    return None if admission is None else (pod, admission)


def _whole(starts: Iterable[tuple[PodRecord, Admission]], admission: Admission) -> bool:
    """Return whether all that were admitted run, or have run to their end; ``admission`` is the last start's."""
    ours = (pod for pod, start in starts if start.since_seconds == admission.since_seconds)
    return sum(pod.phase in ("Running", "Succeeded") for pod in ours) >= sum(admission.counts.values())


def _requeue(pods: Iterable[PodRecord], uid: str) -> Requeue | None:
    texts = (pod.waiting.requeue for pod in pods if pod.waiting is not None and pod.waiting.requeue)
    found = (annotations.decode_requeue(text, uid) for text in texts)
    return max((r for r in found if r is not None), key=lambda r: (r.not_before_seconds, r.attempts), default=None)
