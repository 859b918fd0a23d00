"""Plain pods that joined a PodGroup by themselves, read as one gang.

A pod joins by a label (the two generations of scheduler-plugins, with or without a PodGroup object), by Volcano's
annotation, or by the field of the native API. The gang has no object of its own: its identity follows from the group's
namespace and name, so that a pod tells at creation whose it is, and a ledger can be rebuilt from pods alone. Pods that
ask the same are a pod set, as Kueue's roles. Pods of a job's controller belong to the job's gang and never come here.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from webhook.core import names
from webhook.core.gang import Gang, PodPrice, PodSet
from webhook.core.pods import PodRecord
from webhook.jobs import annotations, paths
from webhook.jobs.context import ReadContext
from webhook.jobs.gating import pod_group_of
from webhook.jobs.kinds import JobKind
from webhook.jobs.record import Admission, JobRecord, Requeue

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
_NATIVE: Final = ("spec", "schedulingGroup", "podGroupName")


def gang_uid(namespace: str, group: str) -> str:
    """Return the identity of the gang that the plain pods of a PodGroup make."""
    return str(uuid.uuid5(_NAMESPACE, f"{namespace}/{group}"))


def group_of(pod: Mapping[str, Any]) -> str | None:
    """Return the PodGroup that a pod joins, by whichever generation's label, annotation or field."""
    group = pod_group_of(paths.find_mapping(pod, ("metadata", "labels")))
    if group is not None:
        return group
    own = paths.find_mapping(pod, ("metadata", "annotations"))
    for name in (*(own.get(key) for key in names.POD_GROUP_ANNOTATIONS), paths.find(pod, _NATIVE)):
        if isinstance(name, str) and name:
            return name
    return None


def role_of(price: PodPrice, spec: Mapping[str, Any]) -> str:
    """Return the name of the pod set that pods of this price with this way of being scheduled make."""
    keys = ("nodeSelector", "affinity", "tolerations")
    shape = [dict(price.requests), dict(price.limits), price.priority_class, price.has_deadline]
    text = orjson.dumps([*shape, *(spec.get(key) or None for key in keys)], option=orjson.OPT_SORT_KEYS)
    return "pods-" + hashlib.blake2b(text, digest_size=_ROLE_CHARACTERS // 2).hexdigest()


def read(namespace: str, group: str, pods: Iterable[PodRecord], context: ReadContext) -> JobRecord | None:
    """Return the gang that the ``pods`` of one PodGroup make, those that have ended included; None without any."""
    members = sorted(pods, key=lambda pod: (pod.resource_version, pod.uid))
    if not members:
        return None
    uid = gang_uid(namespace, group)
    waiting = [pod for pod in members if pod.gated and pod.live]
    running = [pod for pod in members if not pod.gated and not pod.terminal]
    counted = [pod for pod in members if pod.live] or members
    ended = all(pod.terminal for pod in members)
    # Pods of an earlier start may still lie about while those of the next one wait.
    admission = _admission(members, uid) if running or ended else None
    requeue = _requeue(waiting, uid)
    created = min(pod.created_seconds for pod in counted)
    problem = _problem(counted)
    queues = {queue for pod in counted if (queue := _queue(pod)) is not None}
    gang = Gang(
        uid=uid,
        kind=POD_GROUP.key,
        namespace=namespace,
        name=group,
        queue=next(iter(queues), None),
        pod_sets=_pod_sets(counted),
        priority=_priority(counted[0], context),
        created_seconds=created if requeue is None else requeue.place_seconds,
        quorum=_quorum(counted),
        not_before_seconds=0.0 if requeue is None else requeue.not_before_seconds,
        pod_group=group,
        labels=dict(counted[0].labels),
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
        owner=None,
        suspended=not running,
        finished=("Failed" if any(p.phase == "Failed" for p in members) else "Succeeded") if ended else None,
        active=bool(running),
        ready=ended or (not waiting and all(pod.phase == "Running" for pod in running)),
        deleting=not ended and not any(pod.live for pod in members),
        marked=True,
        restorable=True,
        managed_by_other=False,
        has_annotations=False,
        admission=admission,
        requeue=requeue,
        waiting_pods=len(waiting),
    )


def _pod_sets(pods: Sequence[PodRecord]) -> tuple[PodSet, ...]:
    sets: dict[str, PodSet] = {}
    for pod in pods:
        known = sets.get(pod.pod_set)
        asks = PodSet(pod.pod_set, 1, pod.price) if pod.waiting is None else pod.waiting.asks
        # Of a set that runs in part, those that wait say what its pods asked before they were started.
        base = asks if known is None or pod.waiting is not None else known
        sets[pod.pod_set] = replace(base, count=1 if known is None else known.count + 1)
    return tuple(sets[name] for name in sorted(sets))


def _problem(pods: Sequence[PodRecord]) -> str | None:
    queues = sorted({str(_queue(pod)) for pod in pods})
    if len(queues) > 1:
        return f"its pods ask for different queues ({', '.join(queues)}); give all of them the same label"
    priorities = sorted({pod.priority for pod in pods})
    if len(priorities) > 1:
        return f"its pods have different priorities ({', '.join(map(str, priorities))}); give all of them the same"
    return None


def _queue(pod: PodRecord) -> str | None:
    labels = dict(pod.labels)
    return next((labels[label] for label in names.QUEUE_LABELS if labels.get(label)), None)


def _priority(pod: PodRecord, context: ReadContext) -> int:
    name = dict(pod.labels).get(names.PRIORITY_CLASS_LABEL, "")
    return context.workload_priority_classes.get(name, pod.priority)


def _quorum(pods: Iterable[PodRecord]) -> int | None:
    """Return what the pods themselves say; otherwise their PodGroup does."""
    texts = (dict(pod.labels).get(names.MIN_AVAILABLE_LABEL, "") for pod in pods)
    return max((int(text) for text in texts if text.isdecimal() and 0 < len(text) < 10), default=None)


def _admission(pods: Iterable[PodRecord], uid: str) -> Admission | None:
    found = (annotations.decode_admission(pod.admission, uid) for pod in pods if pod.admission and not pod.gated)
    return max((a for a in found if a is not None), key=lambda a: (a.epoch, a.seq), default=None)


def _requeue(pods: Iterable[PodRecord], uid: str) -> Requeue | None:
    texts = (pod.waiting.requeue for pod in pods if pod.waiting is not None and pod.waiting.requeue)
    found = (annotations.decode_requeue(text, uid) for text in texts)
    return max((r for r in found if r is not None), key=lambda r: (r.not_before_seconds, r.attempts), default=None)
