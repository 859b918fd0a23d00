"""What an object of a known job kind asks: its gang, or why it cannot be read as one. Pure, and total.

Priority follows Kueue: WorkloadPriorityClass label, the kind's own class, the first pod set that names a class, the
cluster's default class, 0. An object stopped by Tutti whose templates still carry what its last start injected is read
as its owner wrote it, so that a stale node selector decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.core.model.gang import Gang, PodSet
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Problem, Unreadable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.find import find_pod_sets
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading import annotations, network_topology, status
from webhook.jobs.reading.annotations import original_count
from webhook.jobs.reading.ended import Ended
from webhook.jobs.reading.gating import pod_group_of, queue_label
from webhook.jobs.reading.missing_class import MissingClass, missing_class
from webhook.jobs.reading.pod_set import pod_set_of
from webhook.jobs.reading.record import Admission, Requeue
from webhook.untyped import editing, paths
from webhook.untyped.values import mapping, seconds, text

_NONE: Final[Mapping[str, int]] = {}
_MOST_DIGITS: Final = 11
BUILT_IN_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""PriorityClasses that every cluster has, also where none can be read. No WorkloadPriorityClass is built in."""


class GangReading(NamedTuple):
    """One object read as a gang."""

    gang: Gang | None
    """What it asks; None when it cannot be read as a gang, then ``problem`` says why."""
    problem: Problem | None
    sites: Sequence[PodSetSite]
    """The pod sets as they stand in the object; none when they could not be found."""
    missing_class: MissingClass | None
    """The priority class that the gang names and that does not exist (yet)."""
    ended: Mapping[str, Ended]
    """Of each set of which pods have ended for good."""
    spared: Mapping[str, int]
    """How many of these another start need not ask for."""
    admission: Admission | None
    requeue: Requeue | None

    @property
    def asks(self) -> Gang | None:
        """What a start of it asks: the gang that its owner wrote, less the pods that it is spared."""
        return None if self.gang is None else self.gang.without(self.spared)


def read_gang(kind: JobKind, obj: Mapping[str, Any], context: ReadContext) -> GangReading:
    """Return what ``obj`` asks. Never raises: what cannot be read becomes ``problem``."""
    metadata = mapping(obj.get("metadata"))
    marks = mapping(metadata.get("annotations"))
    uid = text(metadata.get("uid"))
    admission = annotations.decode_admission(marks.get(names.ADMISSION), uid) if marks else None
    requeue = annotations.decode_requeue(marks.get(names.REQUEUE), uid) if marks else None
    sites: Sequence[PodSetSite] = ()
    gang, problem, missing = None, None, None
    ended: Mapping[str, Ended] = {}
    spared = _NONE
    try:
        sites = find_pod_sets(kind, obj, context)
        written, asked = _as_written(kind, obj, sites, context, requeue)
        priority, missing = _priority(kind, obj, asked, context)
        gang = _gang(kind, obj, metadata, asked, context, priority=priority, admission=admission, requeue=requeue)
        ended = _as_started(status.ended(kind, written, asked), asked, admission, requeue)
        spared = _NONE if ended and status.runs_again(kind, obj, context) else _spared(gang, asked, ended)
    except Unreadable as error:
        problem = error.problem
    return GangReading(gang, problem, sites, missing, ended, spared, admission, requeue)


def _as_written(
    kind: JobKind, obj: Mapping[str, Any], sites: list[PodSetSite], context: ReadContext, requeue: Requeue | None
) -> tuple[Mapping[str, Any], list[PodSetSite]]:
    """Return the object and its pod sets with the counts their owner wrote, where the last start lowered them."""
    undo = None if requeue is None else requeue.undo
    if undo is None or not undo.original_counts:
        return obj, sites
    restored: Any = obj
    for site in sites:
        count = original_count(undo, site.name, site.count_written)
        if count is not None and site.count_path is not None:
            for place in (site.count_path, site.count_follower):
                restored = restored if place is None else editing.put(restored, place, count)
    return restored, find_pod_sets(kind, restored, context)


def _as_started(
    ended: Mapping[str, Ended], sites: Sequence[PodSetSite], admission: Admission | None, requeue: Requeue | None
) -> Mapping[str, Ended]:
    """Return what has ended of the size with which the last start let an object run.

    A stop gives it the completions back that its start had taken: in that run they were not left to do.
    """
    start = admission or (None if requeue is None else requeue.stopped_from)
    if not ended or start is None or not start.original_counts:
        return ended
    lowered = start.original_counts.keys() & {site.name for site in sites if site.count_follower is not None}
    sizes = {name: start.counts.get(name, ended[name].of) for name in lowered & ended.keys()}
    return dict(ended) | {name: ended[name]._replace(of=min(ended[name].of, size)) for name, size in sizes.items()}


def _spared(gang: Gang, sites: Sequence[PodSetSite], ended: Mapping[str, Ended]) -> Mapping[str, int]:
    """Return how many pods of each set a start need not ask for, because they have ended and do not run again.

    Kueue subtracts all that were reclaimed. Here a gang asks for them all the same where its PodGroup counts them, and
    where a start with fewer pods would also lower the completions, of which they are part.
    """
    if not ended or gang.pod_group is not None:
        return _NONE
    sizes = {site.name for site in sites if site.count_follower is not None and site.min_count is not None}
    spared = {name: each.unwanted(gang.counts.get(name, 0)) for name, each in ended.items() if name not in sizes}
    return {name: number for name, number in spared.items() if number}


def _gang(
    kind: JobKind,
    obj: Mapping[str, Any],
    metadata: Mapping[str, Any],
    sites: Sequence[PodSetSite],
    context: ReadContext,
    *,
    priority: int,
    admission: Admission | None,
    requeue: Requeue | None,
) -> Gang:
    namespace, admitted = intern(text(metadata.get("namespace"))), admission is not None
    if len({site.name for site in sites}) < len(sites):
        raise Unreadable(", ".join(site.name for site in sites), "", "two pod sets have one name", "rename one")
    undo = None if requeue is None else requeue.undo
    placed = network_topology.with_annotations(kind, obj, sites, context)
    pod_sets = tuple(pod_set_of(site, namespace, context, undo, admitted=admitted) for site in placed)
    if kind.group == network_topology.GROUP:
        pod_sets = network_topology.nested(pod_sets, context.network_tiers)
    labels, marks = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    created = seconds(metadata.get("creationTimestamp"))
    pod_group = _pod_group(sites)
    ensemble = _ensemble(kind, obj, pod_group, pod_sets)
    return Gang(
        uid=text(metadata.get("uid")),
        kind=kind.key,
        namespace=namespace,
        name=text(metadata.get("name")),
        queue=queue_label(obj, kind),
        pod_sets=pod_sets,
        priority=priority,
        created_seconds=_place(marks, created if requeue is None else requeue.place_seconds),
        quorum=_quorum(kind, obj, sites, pod_sets, admitted, shared=bool(ensemble)),
        max_run_seconds=_max_run_seconds(kind, obj, labels, admission or requeue),
        not_before_seconds=0.0 if requeue is None else requeue.not_before_seconds,
        pod_group=pod_group,
        ensemble=ensemble,
        succeeded_pods=0 if requeue is None else requeue.succeeded_pods,
        labels=labels,
        evictable=kind.evictable,
        loose_pods=kind.loose_pods,
        preemptible="false" not in map(labels.get, names.PREEMPTIBLE_LABELS),
        stops_nobody=marks.get(names.STOPS_NOBODY) == "true",
    )


def _priority(
    kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext
) -> tuple[int, MissingClass | None]:
    """Return the value of the first class named that exists; and the class that should decide, where there is none."""
    missing = None
    for value, called in _named_classes(kind, obj, sites, context):
        if value is not None:
            return value, missing
        missing = missing or called
    return context.default_priority, missing


def _named_classes(
    kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext
) -> Iterator[tuple[int | None, MissingClass | None]]:
    """Yield each class that the object names, by its value or as missing; the first one counts."""
    label = paths.find_mapping(obj, ("metadata", "labels")).get(names.PRIORITY_CLASS_LABEL)
    if not label and names.DEFAULT_PRIORITY_CLASS in context.workload_priority_classes and queue_label(obj, kind):
        label = names.DEFAULT_PRIORITY_CLASS
    known, classes = context.workload_priority_classes, context.priority_classes
    if label and isinstance(label, str):
        yield _value("WorkloadPriorityClass", label, known)
    fields = [paths.find(obj, path) for path in kind.priority_classes]
    for name in (*fields, *[site.spec.get("priorityClassName") for site in sites]):
        if name and isinstance(name, str):
            yield _value("PriorityClass", name, classes)


def _value(kind: str, name: str, known: Mapping[str, int]) -> tuple[int | None, MissingClass | None]:
    value = known.get(name, BUILT_IN_PRIORITIES.get(name) if kind == "PriorityClass" else None)
    return value, missing_class(kind, name, known) if value is None else None


def _place(marks: Mapping[str, Any], place_seconds: float) -> float:
    """Return the place in the queue: before all others for who was moved to the top, the last one first, until it is
    sent back.
    """
    moved = seconds(marks.get(names.TOP))
    return -moved if moved > 0 and moved >= place_seconds else place_seconds


def _quorum(
    kind: JobKind,
    obj: Mapping[str, Any],
    sites: Sequence[PodSetSite],
    pod_sets: Sequence[PodSet],
    admitted: bool,
    *,
    shared: bool,
) -> int | None:
    """Return what the object says: at most its pods, unless the quorum is ``shared`` and others bring the rest."""
    if kind.loose_pods:
        return None
    number, where = _written_quorum(kind, obj, pod_sets), ""
    for site in sites:
        text = site.pod_labels.get(names.MIN_AVAILABLE_LABEL)
        if text is not None:
            number = int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else text
            where = f"label {names.MIN_AVAILABLE_LABEL}"
    if number is None:
        return None
    where = where or paths.render(kind.quorum or ())
    pods = sum(pod_set.count for pod_set in pod_sets)
    if type(number) is not int or number < 1:
        most = "on" if shared else f"to {pods}"
        raise Unreadable(where, number, "is no quorum", f"write a number of pods from 1 {most}")
    if number > pods and not shared:
        if admitted:
            return pods
        raise Unreadable(where, number, f"the gang has only {counted(pods, 'pod')}", f"write at most {pods}")
    return number


def _written_quorum(kind: JobKind, obj: Mapping[str, Any], pod_sets: Sequence[PodSet]) -> Any:
    """Return what the kind's field says; where it is absent or 0, what the pod sets need makes it up, as in Volcano."""
    if kind.quorum is None:
        return None
    number = paths.find(obj, kind.quorum)
    if number is not None and (type(number) is not int or number != 0):
        return number
    unneeded = any(pod_set.min_count is not None for pod_set in pod_sets)
    return max(sum(pod_set.floor for pod_set in pod_sets), 1) if unneeded else None


def _pod_group(sites: Sequence[PodSetSite]) -> str | None:
    groups = {group for site in sites if (group := pod_group_of(site.pod_labels)) is not None}
    if len(groups) > 1:
        raise Unreadable(", ".join(sorted(groups)), "", "one gang names several PodGroups", "name one")
    return next(iter(groups), None)


def _ensemble(kind: JobKind, obj: Mapping[str, Any], pod_group: str | None, pod_sets: Sequence[PodSet]) -> str:
    """Return the PodGroup whose quorum the job shares with others that name it; empty when it is judged alone.

    That is so where its own object says what it is worth starting with, and where it could not be stopped with others.
    """
    if pod_group is None or kind.scheduling_gated or not kind.evictable or kind.loose_pods:
        return ""
    return pod_group if _written_quorum(kind, obj, pod_sets) is None else ""


def _max_run_seconds(
    kind: JobKind, obj: Mapping[str, Any], labels: Mapping[str, Any], noted: Admission | Requeue | None
) -> int | None:
    """Return how long one start of it can last: what its limit has left, or its controller's own, which restarts."""
    limits = []
    limit, text = run_limit_seconds(kind, labels), labels.get(names.MAX_EXECUTION_LABEL)
    if limit is None and text is not None and kind.evictable and not isinstance(noted, Admission):
        raise Unreadable(
            f"label {names.MAX_EXECUTION_LABEL}", text, "is not a run time", "write seconds, a whole number from 1"
        )
    if limit is not None:
        ran = 0.0 if noted is None else noted.ran_seconds
        limits.append(max(1, ceil(limit - ran)))
    deadline = None if kind.deadline_seconds is None else paths.find(obj, kind.deadline_seconds)
    takes_pods = kind.deadline_if is None or status.holds(kind.deadline_if, obj)
    if type(deadline) is int and deadline > 0 and takes_pods:
        limits.append(deadline)
    return min(limits) if limits else None


def run_limit_seconds(kind: JobKind, labels: Mapping[str, Any]) -> int | None:
    """Return the limit that Tutti enforces by stopping the gang; None for a kind whose pods would stay."""
    text = labels.get(names.MAX_EXECUTION_LABEL)
    if not kind.evictable or not isinstance(text, str) or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    return int(text) or None
