"""Read one object of a known job kind into a ``JobRecord``. Pure, and total: odd input becomes a ``problem``.

Priority follows Kueue: WorkloadPriorityClass label, the kind's own class, the first pod set that names a class, the
cluster's default class, 0. An object stopped by Tutti whose templates still carry what its last start injected is read
as its owner wrote it, so that a stale node selector decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Any, Final

from webhook.core import names
from webhook.core.gang import Gang, PodPrice, PodSet, Requirement, Toleration
from webhook.jobs import annotations, editing, limit_ranges, paths, status
from webhook.jobs.annotations import original_count
from webhook.jobs.context import ReadContext
from webhook.jobs.gating import managed_by_other, owner_of, pod_group_of, queue_label
from webhook.jobs.kinds import JobKind
from webhook.jobs.pod_requests import PriceError, named, price, with_limit_range_defaults
from webhook.jobs.pod_sets import PodSetSite, UnreadableJob, find_pod_sets
from webhook.jobs.record import Admission, JobRecord, Requeue, Template

_EMPTY: Final[dict[str, Any]] = {}
_MOST_DIGITS: Final = 11
BUILT_IN_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def read(kind: JobKind, obj: Mapping[str, Any], context: ReadContext) -> JobRecord:
    """Return what ``obj`` asks and where it stands. Never raises: what cannot be read becomes ``problem``."""
    obj = obj if isinstance(obj, dict) else _EMPTY
    metadata = paths.find_mapping(obj, ("metadata",))
    own = metadata.get("annotations")
    marks: Mapping[str, Any] = own if isinstance(own, dict) else _EMPTY
    uid = _text(metadata.get("uid"))
    admission = annotations.decode_admission(marks.get(names.ADMISSION), uid) if marks else None
    requeue = annotations.decode_requeue(marks.get(names.REQUEUE), uid) if marks else None
    sites: list[PodSetSite] = []
    gang, problem = None, None
    try:
        sites = find_pod_sets(kind, obj, context)
        asked = _as_written(kind, obj, sites, context, requeue)
        gang = _gang(kind, obj, metadata, asked, context, admission=admission, requeue=requeue)
    except (UnreadableJob, PriceError) as error:
        problem = str(error)
    suspended = admission is None if kind.suspend is None else paths.find(obj, kind.suspend) is True
    active = status.active(kind, obj)
    finished = status.finished(kind, obj)
    return JobRecord(
        kind=kind.key,
        version=kind.version,
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=uid,
        resource_version=_integer(metadata.get("resourceVersion")),
        created_seconds=seconds(metadata.get("creationTimestamp")),
        gang=gang,
        problem=problem,
        queue_label=queue_label(obj, kind),
        owner=owner_of(obj),
        suspended=suspended,
        finished=finished,
        active=active,
        ready=finished is not None or (gang is not None and status.ready(kind, obj, gang.counts)),
        deleting=metadata.get("deletionTimestamp") is not None,
        marked=any(names.GANG_LABEL in site.labels for site in sites),
        restorable=status.restorable(kind, obj, suspended, active),
        managed_by_other=managed_by_other(kind, obj),
        has_annotations=isinstance(own, dict),
        admission=admission,
        requeue=requeue,
        held=bool(marks) and annotations.decode_hold(marks.get(names.HOLD), uid),
        reclaimed=status.reclaimed(kind, obj, sites),
        templates=tuple(_template(site) for site in sites if site.metadata_path is not None),
        generation=_integer(metadata.get("generation")),
        suspend_gap=_suspend_gap(kind, obj),
        out_of_bounds="" if gang is None else _out_of_bounds(gang, sites, context),
        missing_class=_missing_class(kind, obj, sites, context),
        admission_gates=_text(marks.get(names.ADMISSION_GATES)),
        ordered_start=any(status.holds(signal, obj) for signal in kind.ordered_start),
        finished_seconds=0.0 if finished is None else seconds(status.finished_at(kind, obj)),
        run_limit_seconds=_run_limit_seconds(kind, paths.find_mapping(metadata, ("labels",))),
    )


def _as_written(
    kind: JobKind, obj: Mapping[str, Any], sites: list[PodSetSite], context: ReadContext, requeue: Requeue | None
) -> list[PodSetSite]:
    """Return the pod sets with the counts their owner wrote, where the last start lowered them."""
    undo = None if requeue is None else requeue.undo
    if undo is None or not undo.original_counts:
        return sites
    restored: Any = obj
    for site in sites:
        count = original_count(undo, site.name, site.count_written)
        if count is not None and site.count_path is not None:
            for place in (site.count_path, site.count_follower):
                restored = restored if place is None else editing.put(restored, place, count)
    return find_pod_sets(kind, restored, context)


def _gang(
    kind: JobKind,
    obj: Mapping[str, Any],
    metadata: Mapping[str, Any],
    sites: Sequence[PodSetSite],
    context: ReadContext,
    *,
    admission: Admission | None,
    requeue: Requeue | None,
) -> Gang:
    namespace, admitted = _text(metadata.get("namespace")), admission is not None
    if len({site.name for site in sites}) < len(sites):
        raise UnreadableJob(f"{', '.join(site.name for site in sites)}: two pod sets have one name; rename one")
    undo = None if requeue is None else requeue.undo
    pod_sets = tuple(pod_set_of(site, namespace, context, undo, admitted=admitted) for site in sites)
    labels = paths.find_mapping(metadata, ("labels",))
    created = seconds(metadata.get("creationTimestamp"))
    pod_group = _pod_group(sites)
    ensemble = _ensemble(kind, obj, pod_group, pod_sets)
    return Gang(
        uid=_text(metadata.get("uid")),
        kind=kind.key,
        namespace=namespace,
        name=_text(metadata.get("name")),
        queue=queue_label(obj, kind),
        pod_sets=pod_sets,
        priority=_priority(kind, obj, sites, context),
        created_seconds=created if requeue is None else requeue.place_seconds,
        quorum=_quorum(kind, obj, sites, pod_sets, admitted, shared=bool(ensemble)),
        max_run_seconds=_max_run_seconds(kind, obj, labels, admission or requeue),
        not_before_seconds=0.0 if requeue is None else requeue.not_before_seconds,
        pod_group=pod_group,
        ensemble=ensemble,
        succeeded_pods=0 if requeue is None else requeue.succeeded_pods,
        labels=labels,
        evictable=kind.evictable,
        loose_pods=kind.loose_pods,
        preemptible="false" not in [labels.get(name) for name in names.PREEMPTIBLE_LABELS],
    )


def pod_set_of(
    site: PodSetSite, namespace: str, context: ReadContext, undo: Admission | None = None, *, admitted: bool = False
) -> PodSet:
    """Return a pod set as it is priced and placed in ``namespace``. Raises UnreadableJob.

    ``undo`` is the start whose changes are still in the template; ``admitted`` pod sets may be at their fewest pods.
    """
    try:
        cost = own = _price(site.spec, namespace, context)
        if site.added:
            cost = _price(site.whole_spec, namespace, context)
    except PriceError as error:
        raise UnreadableJob(f"pod set {site.name}: {error}") from None
    scheduling = _scheduling(site)
    pod_set = PodSet(
        name=site.name,
        count=site.count,
        price=cost,
        added=frozenset(cost.requests.keys() - own.requests.keys()),
        min_count=_min_count(site, admitted),
        node_selector=_node_selector(scheduling.get("nodeSelector")),
        node_affinity=_node_affinity(site.spec.get("affinity")),
        tolerations=_tolerations(scheduling.get("tolerations")),
        together=str(paths.find(site.metadata or {}, ("annotations", names.POD_SET_GROUP)) or ""),
    )
    return pod_set if undo is None else _undone(pod_set, undo)


def _price(spec: Mapping[str, Any], namespace: str, context: ReadContext) -> PodPrice:
    if namespace in context.limit_ranges:
        spec = with_limit_range_defaults(spec, context.limit_ranges[namespace])
    overhead = context.runtime_overheads.get(named(spec, "runtimeClassName"))
    return price(spec, overhead, default_priority_class=context.default_priority_class)


def _scheduling(site: PodSetSite) -> Mapping[str, Any]:
    """Return node selector and tolerations of the pods: the template's, then those at the place patches write to."""
    if site.scheduling is site.spec:
        return site.scheduling
    selectors = [s for s in (site.spec.get("nodeSelector"), site.scheduling.get("nodeSelector")) if isinstance(s, dict)]
    merged = {key: value for selector in selectors for key, value in selector.items()}
    lists = [t for t in (site.spec.get("tolerations"), site.scheduling.get("tolerations")) if isinstance(t, list)]
    return {"nodeSelector": merged, "tolerations": [item for tolerations in lists for item in tolerations]}


def _undone(pod_set: PodSet, undo: Admission) -> PodSet:
    """Return the pod set as its owner wrote it, before the start that ``undo`` records."""
    injected = undo.injected.get(pod_set.name, _EMPTY)
    keys = injected.get("nodeSelector")
    count = injected.get("tolerations")
    keep = len(pod_set.tolerations) - (count if isinstance(count, int) else 0)
    return replace(
        pod_set,
        node_selector={
            key: value
            for key, value in pod_set.node_selector.items()
            if not (isinstance(keys, (list, tuple)) and key in keys)
        },
        tolerations=pod_set.tolerations[: max(keep, 0)],
    )


def _min_count(site: PodSetSite, admitted: bool) -> int | None:
    least = site.min_count
    if least is None or (admitted and least >= site.count):
        return None
    # Where a start writes the number of pods down, none at all would be the end of the set.
    fewest = 0 if site.count_path is None else 1
    if fewest <= least <= site.count:
        return least
    message = f"fewest pods worth starting must be from {fewest} to the number of pods"
    raise UnreadableJob(f"{site.min_count_at}: {least}: {message}; write {fewest} to {site.count}")


def _priority(kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext) -> int:
    """Return the value of the first class named that exists."""
    values = (value for value, _ in _named_classes(kind, obj, sites, context) if value is not None)
    return next(values, context.default_priority)


def _out_of_bounds(gang: Gang, sites: Sequence[PodSetSite], context: ReadContext) -> str:
    """Return what keeps pods of ``gang`` from being created, a LimitRange or their own limits, and in which pod set."""
    ranges = context.limit_ranges.get(gang.namespace, ())
    for site in sites:
        found = limit_ranges.violation(site.whole_spec, ranges)
        if found is not None:
            return f"pod set {site.name}: {found}"
    return ""


def _missing_class(kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext) -> str:
    """Return the class that decides the priority, where it does not exist (yet)."""
    value, called = next(_named_classes(kind, obj, sites, context), (0, ""))
    return called if value is None else ""


def _named_classes(
    kind: JobKind, obj: Mapping[str, Any], sites: Sequence[PodSetSite], context: ReadContext
) -> Iterator[tuple[int | None, str]]:
    """Yield each class that the object names, with its value where there is such a class; the first one counts."""
    label = paths.find_mapping(obj, ("metadata", "labels")).get(names.PRIORITY_CLASS_LABEL)
    if not label and names.DEFAULT_PRIORITY_CLASS in context.workload_priority_classes and queue_label(obj, kind):
        label = names.DEFAULT_PRIORITY_CLASS
    known, classes = context.workload_priority_classes, context.priority_classes
    if label and isinstance(label, str):
        yield known.get(label, BUILT_IN_PRIORITIES.get(label)), f"WorkloadPriorityClass {label!r}"
    fields = (paths.find(obj, path) for path in kind.priority_classes)
    for name in (*fields, *(site.spec.get("priorityClassName") for site in sites)):
        if name and isinstance(name, str):
            yield classes.get(name, BUILT_IN_PRIORITIES.get(name)), f"PriorityClass {name!r}"


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
    number, where = _written_quorum(kind, obj, pod_sets), paths.render(kind.quorum or ())
    pods = sum(pod_set.count for pod_set in pod_sets)
    for site in sites:
        text = site.pod_labels.get(names.MIN_AVAILABLE_LABEL)
        if text is not None:
            number = int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else text
            where = f"label {names.MIN_AVAILABLE_LABEL}"
    if number is None:
        return None
    if type(number) is not int or number < 1:
        most = "on" if shared else f"to {pods}"
        raise UnreadableJob(f"{where}: {number!r:.60}: is no quorum; write a number of pods from 1 {most}")
    if number > pods and not shared:
        if admitted:
            return pods
        raise UnreadableJob(f"{where}: {number}: the gang has only {pods} pods; write at most {pods}")
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
        raise UnreadableJob(f"{', '.join(sorted(groups))}: one gang names several PodGroups; name one")
    return next(iter(groups), None)


def _ensemble(kind: JobKind, obj: Mapping[str, Any], pod_group: str | None, pod_sets: Sequence[PodSet]) -> str:
    """Return the PodGroup whose quorum the job shares with others that name it; empty when it is judged alone.

    That is so where its own object says what it is worth starting with, and where it could not be stopped with others.
    """
    stated = _written_quorum(kind, obj, pod_sets) is not None
    if pod_group is None or stated or kind.scheduling_gated or not kind.evictable or kind.loose_pods:
        return ""
    return pod_group


def _run_limit_seconds(kind: JobKind, labels: Mapping[str, Any]) -> int | None:
    """Return the limit that Tutti enforces by stopping the gang; None for a kind whose pods would stay."""
    text = labels.get(names.MAX_EXECUTION_LABEL)
    if not kind.evictable or not isinstance(text, str) or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    return int(text) or None


def _max_run_seconds(
    kind: JobKind, obj: Mapping[str, Any], labels: Mapping[str, Any], noted: Admission | Requeue | None
) -> int | None:
    """Return how long one start of it can last: what its limit has left, or its controller's own, which starts anew."""
    limits = []
    limit, text = _run_limit_seconds(kind, labels), labels.get(names.MAX_EXECUTION_LABEL)
    if limit is None and text is not None and kind.evictable and not isinstance(noted, Admission):
        raise UnreadableJob(
            f"label {names.MAX_EXECUTION_LABEL}: {text!r:.60}: is no run time; write seconds, a whole number from 1"
        )
    if limit is not None:
        ran = 0.0 if noted is None else noted.ran_seconds
        limits.append(max(1, ceil(limit - ran)))
    deadline = None if kind.deadline_seconds is None else paths.find(obj, kind.deadline_seconds)
    takes_pods = kind.deadline_if is None or status.holds(kind.deadline_if, obj)
    if type(deadline) is int and deadline > 0 and takes_pods:
        limits.append(deadline)
    return min(limits, default=None)


def _template(site: PodSetSite) -> Template:
    metadata, scheduling = site.metadata, site.scheduling
    tolerations = scheduling.get("tolerations")
    selector = scheduling.get("nodeSelector")
    labels = None if metadata is None else metadata.get("labels")
    return Template(
        pod_set=site.name,
        path=site.path,
        has_metadata=metadata is not None,
        labels=labels if isinstance(labels, dict) else None,
        has_annotations=metadata is not None and isinstance(metadata.get("annotations"), dict),
        node_selector=selector if isinstance(selector, dict) else None,
        tolerations=len(tolerations) if isinstance(tolerations, list) else None,
        count_path=None if site.count_path is None else paths.pointer(*site.count_path),
        count_written=site.count_written,
        count_follower=None if site.count_follower is None else paths.pointer(*site.count_follower),
        metadata_path=None if site.template_path else paths.pointer(*(site.metadata_path or ())),
        spec_path=None if site.template_path else paths.pointer(*(site.spec_path or ())),
        missing=tuple((paths.pointer(*part.place), part.value) for part in site.scaffold if not part.stands),
        tolerations_along=site.tolerations_along,
        node=str(site.spec.get("nodeName") or ""),
    )


def _node_selector(selector: object) -> Mapping[str, str]:
    return selector if isinstance(selector, dict) else _EMPTY


def _tolerations(tolerations: object) -> tuple[Toleration, ...]:
    if not isinstance(tolerations, list):
        return ()
    return tuple(
        Toleration(
            key=_text(item.get("key")),
            operator=_text(item.get("operator")) or "Equal",
            value=_text(item.get("value")),
            effect=_text(item.get("effect")),
            seconds=item["tolerationSeconds"] if type(item.get("tolerationSeconds")) is int else None,
        )
        for item in tolerations
        if isinstance(item, dict)
    )


def _node_affinity(affinity: object) -> tuple[tuple[Requirement, ...], ...]:
    if not isinstance(affinity, dict):
        return ()
    terms = paths.find(affinity, _AFFINITY_TERMS)
    if not isinstance(terms, list):
        return ()
    return tuple(_term(term) for term in terms if isinstance(term, dict))


_AFFINITY_TERMS: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(str(item.get("key")), str(item.get("operator")), tuple(map(str, _list(item.get("values")))))
        for item in _list(term.get("matchExpressions"))
        if isinstance(item, dict)
    )


def _suspend_gap(kind: JobKind, obj: Mapping[str, Any]) -> str | None:
    gap = None if kind.suspend is None else paths.find_gap(obj, kind.suspend)
    return None if gap is None else paths.pointer(*gap)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: object) -> int:
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        return int(value[:32])
    return value if type(value) is int else 0


def seconds(value: object) -> float:
    """Return a timestamp of an object as Unix time; 0 when it is absent or unreadable."""
    if not isinstance(value, str):
        return 0.0
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return 0.0
