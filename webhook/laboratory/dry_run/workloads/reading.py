"""Kueue's Workload objects, of any version, as gangs.

Kueue's cache and queue manager are the model: ``status.admission`` holds quota until the gang is not only evicted but
gone; ``Finished`` holds nothing; reclaimed pods count neither for who waits nor for who holds; a time-out (unless the
configuration says otherwise) or a failed admission check moves the place in the queue, every other eviction keeps it;
``Requeued`` False, a ``requeueAt`` that lies ahead, admission checks that say no and ``OnHold`` keep a gang from being
considered; a closed preemption gate keeps it from stopping others.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.cluster.waiting import behind_gates
from webhook.core.assignment.request import Request, compile_request
from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.model.gang import Gang, PodSet
from webhook.core.notation import names, quantity
from webhook.core.notation.problem import Unreadable
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.kind import Factor, JobKind, Layout, PodSetSource
from webhook.jobs.pod_sets.find import find_pod_sets
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.pricing.limit_ranges import out_of_bounds
from webhook.jobs.reading.missing_class import missing_class
from webhook.jobs.reading.pod_set import pod_set_of
from webhook.laboratory.dry_run.workloads import rules as workload_rules
from webhook.laboratory.dry_run.workloads.entrant import Entrant, Surroundings, is_ours
from webhook.laboratory.dry_run.workloads.overdue import (
    CHECK_FAILED,
    TIMED_OUT,
    checks_saying,
    is_admitted,
    is_given_back,
    overdue,
    past_run_seconds,
)
from webhook.untyped import paths
from webhook.untyped.values import seconds

GROUP: Final = "kueue.x-k8s.io"
KIND: Final = JobKind(
    group=GROUP,
    version="v1beta2",
    kind="Workload",
    plural="workloads",
    pod_sets=(
        PodSetSource(
            layout=Layout.LIST,
            items=("spec", "podSets"),
            name="name",
            template=("template",),
            factors=(Factor(("count",)),),
            minimum=("minCount",),
        ),
    ),
)


_TOPOLOGY_REQUEST: Final = {
    "required": names.REQUIRED_TOPOLOGY,
    "preferred": names.PREFERRED_TOPOLOGY,
    "podSetSliceRequiredTopology": names.SLICE_TOPOLOGY,
    "podSetSliceSize": names.SLICE_SIZE,
}


def read(obj: Mapping[str, Any], around: Surroundings) -> Entrant | str:
    """Return the gang of a Workload, or a sentence when there is nothing to decide about it. Raises Unreadable."""
    conditions = _conditions(obj)
    finished = conditions.get("Finished")
    if _holds(finished):
        return f"has ended ({_reason_of(finished) or 'Finished'}): it holds nothing and does not wait"
    gang, counts = _gang(obj, around, conditions)
    admission = paths.find(obj, ("status", "admission"))
    reserved = conditions.get("QuotaReserved")
    evicted = conditions.get("Evicted")
    switched_off = paths.find(obj, ("spec", "active")) is False
    inactive = switched_off or _holds(conditions.get("DeactivationTarget"))
    if not isinstance(admission, dict):
        if _holds(reserved):
            raise Unreadable("status.admission", None, "QuotaReserved is True", "write which flavors it was given")
        admission = None
    withheld, bounds = _withheld(obj, conditions), _out_of_bounds(obj, gang, around.context)
    if admission is None or (reserved is not None and not _holds(reserved)):
        if inactive:
            return "spec.active is false: it does not wait"
        return Entrant(gang, withheld=withheld or _failed_check(obj) or bounds)
    withheld = withheld or bounds
    stopping = (_reason_of(evicted) or "Evicted") if _holds(evicted) else "Deactivated" if inactive else None
    since = seconds(None if reserved is None else reserved.get("lastTransitionTime")) or around.now
    reservation = _reservation(gang, counts, admission, around, since)
    ended = {s.name: max(0, s.count - kept.count) for s, kept in zip(reservation.pod_sets, gang.pod_sets, strict=True)}
    due = None if stopping is not None else overdue(obj, conditions, around, since)
    if due is not None:
        place = gang.created_seconds if due.place_seconds is None else due.place_seconds
        gang = replace(gang, created_seconds=place, not_before_seconds=due.not_before_seconds)
        stopping = due.reason
    if stopping is None and not is_admitted(obj, conditions) and is_given_back(gang, reservation.queue, around.policy):
        return Entrant(gang, withheld=withheld)
    return Entrant(
        gang,
        replace(reservation, stopping=stopping),
        {name: number for name, number in ended.items() if number},
        withheld,
        leaves=inactive or (due is not None and due.leaves),
        written_off=switched_off,
    )


# -- what it asks -----------------------------------------------------------------------------------------------------


def _gang(
    obj: Mapping[str, Any], around: Surroundings, conditions: Mapping[str, Mapping[str, Any]]
) -> tuple[Gang, dict[str, int]]:
    """Return the gang without the pods that have ended for good, and how many pods each set was written with."""
    metadata = paths.find_mapping(obj, ("metadata",))
    spec = paths.find_mapping(obj, ("spec",))
    whole = _with_defaults(obj)
    sites = find_pod_sets(KIND, whole, around.context)
    workload_rules.check(whole, {site.name: site.count for site in sites})
    namespace = str(metadata.get("namespace"))
    written = [pod_set_of(site, namespace, around.context) for site in sites]
    for pod_set in written:
        if "pods" in pod_set.price.requests:
            asked = quantity.render(pod_set.price.requests["pods"])
            raise Unreadable(
                f"pod set {pod_set.name}: pods", asked, "may not be requested", "leave it out, it is counted"
            )
    labels = paths.find_mapping(metadata, ("labels",))
    limit = spec.get("maximumExecutionTimeSeconds")
    spent, ended = past_run_seconds(obj), _reclaimable(obj)
    gang = Gang(
        uid=str(metadata.get("uid")),
        kind=KIND.key,
        namespace=namespace,
        name=str(metadata.get("name")),
        # Without a queue it would never start, unless all of its namespace waits in one.
        queue=str(spec.get("queueName") or "") or (None if namespace in around.policy.namespace_queues else ""),
        pod_sets=tuple(
            replace(pod_set.without(ended.get(pod_set.name, 0)), together=group)
            for pod_set, group in zip(written, _groups(spec), strict=True)
        ),
        priority=_priority(spec, around.context),
        created_seconds=_place(metadata, conditions, around),
        max_run_seconds=max(1, limit - spent) if type(limit) is int else None,
        not_before_seconds=_not_before(obj, around.now),
        labels=labels,
        preemptible=not any(labels.get(name) == "false" for name in names.PREEMPTIBLE_LABELS),
        stops_nobody=_stops_nobody(obj),
    )
    return gang, {pod_set.name: pod_set.count for pod_set in written}


def _with_defaults(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with the names and counts that the API server would have filled in."""
    changed = copy.copy(dict(obj))
    pod_sets = paths.find(obj, ("spec", "podSets"))
    if isinstance(pod_sets, list):
        named = [_with_given(item) if isinstance(item, dict) else item for item in pod_sets]
        changed["spec"] = {**obj["spec"], "podSets": named}
    return changed


def _with_given(item: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {"name": "main", "count": 1} | {key: value for key, value in item.items() if value is not None}
    asked, template = given.get("topologyRequest"), given.get("template")
    if not isinstance(asked, dict) or not isinstance(template, dict):
        return given
    # Kueue reads it of the template's annotations, where a job has them.
    metadata = paths.find_mapping(template, ("metadata",))
    annotations = dict(paths.find_mapping(metadata, ("annotations",)))
    annotations |= {name: str(asked[key]) for key, name in _TOPOLOGY_REQUEST.items() if asked.get(key) is not None}
    if asked.get("unconstrained") is True:
        annotations[names.UNCONSTRAINED_TOPOLOGY] = "true"
    return {**given, "template": {**template, "metadata": {**metadata, "annotations": annotations}}}


def _groups(spec: Mapping[str, Any]) -> list[str]:
    """Return for each pod set with which others it is to be placed together."""
    group = ("topologyRequest", "podSetGroupName")
    return [str(paths.find(item, group) or "") if isinstance(item, dict) else "" for item in spec["podSets"]]


def _reclaimable(obj: Mapping[str, Any]) -> dict[str, int]:
    listed = paths.find(obj, ("status", "reclaimablePods"))
    found = {}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and type(item.get("count")) is int:
            found[str(item.get("name") or "main")] = item["count"]
    return found


def _priority(spec: Mapping[str, Any], context: ReadContext) -> int:
    value = spec.get("priority")
    if value is not None:
        return workload_rules.check_priority(value)
    reference = spec.get("priorityClassRef")
    name, family = spec.get("priorityClassName"), str(spec.get("priorityClassSource") or "")
    if isinstance(reference, dict):
        name, family = reference.get("name"), f"{reference.get('group', '')}/{reference.get('kind', '')}"
    if not isinstance(name, str) or not name:
        return 0
    ours = "workload" in family.lower()
    classes = context.workload_priority_classes if ours else context.priority_classes
    if name not in classes:
        kind, where = "WorkloadPriorityClass" if ours else "PriorityClass", "priorityClassName"
        where = "priorityClassRef.name" if isinstance(reference, dict) else where
        raise Unreadable(
            f"spec.{where}",
            name,
            f"there is no such {kind}",
            f"{missing_class(kind, name, classes).help}; or write spec.priority",
        )
    return classes[name]


# -- where it stands --------------------------------------------------------------------------------------------------


def _conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    listed = paths.find(obj, ("status", "conditions"))
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return {str(item.get("type")): item for item in items}


def _holds(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") in ("True", True)


def _reason_of(condition: Mapping[str, Any] | None) -> str:
    return "" if condition is None else str(condition.get("reason") or "")


def _place(metadata: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], around: Surroundings) -> float:
    evicted = conditions.get("Evicted")
    moving = (TIMED_OUT, CHECK_FAILED) if around.start.place == "Eviction" else (CHECK_FAILED,)
    if evicted is not None and _holds(evicted) and evicted.get("reason") in moving:
        return seconds(evicted.get("lastTransitionTime"))
    return seconds(metadata.get("creationTimestamp"))


def _not_before(obj: Mapping[str, Any], now: float) -> float:
    at = seconds(paths.find(obj, ("status", "requeueState", "requeueAt")))
    return at if at > now else 0.0


def _stops_nobody(obj: Mapping[str, Any]) -> bool:
    """Return whether a preemption gate of the spec is not open in the status; one that is not there yet is closed."""
    open_gates = {gate["name"] for gate in _named(obj, ("status", "preemptionGates")) if gate.get("position") == "Open"}
    return any(gate["name"] not in open_gates for gate in _named(obj, ("spec", "preemptionGates")))


def _named(obj: Mapping[str, Any], path: tuple[str, str]) -> list[Mapping[str, Any]]:
    listed = paths.find(obj, path)
    items = listed if isinstance(listed, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]


def _withheld(obj: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Reason | None:
    gates = paths.find(obj, ("metadata", "annotations", names.ADMISSION_GATES))
    if gates:
        return behind_gates(str(gates))
    reserved = conditions.get("QuotaReserved")
    if reserved is not None and not _holds(reserved) and _reason_of(reserved) == Code.ON_HOLD:
        return Reason(Code.ON_HOLD, "its QuotaReserved is OnHold", help="it waits again once its job wants pods")
    requeued = conditions.get("Requeued")
    if requeued is not None and not _holds(requeued):
        why = _reason_of(requeued) or "no reason given"
        return Reason(Code.BACKING_OFF, f"its condition Requeued is False ({why})", help="it waits until it is True")
    return None


def _failed_check(obj: Mapping[str, Any]) -> Reason | None:
    """Return why a gang without quota is not considered; those of one that has some start again once it is evicted."""
    for check in (*checks_saying(obj, "Retry"), *checks_saying(obj, "Rejected")):
        text = f"its admission check {check.get('name')} says {check['state']}"
        return Reason(Code.PENDING_EVALUATION, text, help="it waits until the check says otherwise")
    return None


def _out_of_bounds(obj: Mapping[str, Any], gang: Gang, context: ReadContext) -> Reason | None:
    sites = find_pod_sets(KIND, _with_defaults(obj), context)
    pods = ((site.name, site.spec) for site in sites)
    broken = out_of_bounds(pods, context.limit_ranges.get(gang.namespace, ()))
    return Reason(Code.MISCONFIGURED, broken, help="correct the pod or the LimitRange") if broken else None


# -- what it holds ----------------------------------------------------------------------------------------------------


def _reservation(
    gang: Gang, counts: Mapping[str, int], admission: Mapping[str, Any], around: Surroundings, since: float
) -> Reservation:
    name = admission.get("clusterQueue")
    if not isinstance(name, str) or not name:
        raise Unreadable("status.admission.clusterQueue", name, "names no queue", "write its ClusterQueue")
    name = name if name in around.policy.queues else around.policy.queue_aliases.get(name, name)
    listed = admission.get("podSetAssignments")
    given = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    by_name = {str(item.get("name") or "main").lower(): item for item in given}
    unknown = by_name.keys() - counts.keys()
    if unknown:
        where = "status.admission.podSetAssignments"
        raise Unreadable(where, ", ".join(sorted(unknown)), "is not a pod set of it", "name one of spec.podSets")
    queue = around.policy.queues.get(name)
    request = Request() if queue is None else compile_request(gang, queue, around.policy.flavors, around.settings)
    return Reservation(
        uid=gang.uid,
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=name,
        pod_sets=tuple(
            _reserved(pod_set, counts[pod_set.name], by_name.get(pod_set.name), request) for pod_set in gang.pod_sets
        ),
        epoch=1,
        since_seconds=since,
        priority=gang.priority,
        preemptible=around.policy.may_be_preempted(gang, name),
        cohorts=() if queue is None else around.policy.cohorts_above(queue.cohort),
    )


def _reserved(pod_set: PodSet, written: int, assignment: Mapping[str, Any] | None, request: Request) -> ReservedPodSet:
    where = f"status.admission.podSetAssignments.{pod_set.name}"
    if assignment is None:
        raise Unreadable(where, None, "is missing", "write the flavors that the pod set was given")
    count = assignment.get("count")
    if count is not None and (type(count) is not int or count < 0):
        raise Unreadable(f"{where}.count", count, "is not a number of pods", "write 0 or more")
    count = written if count is None else count
    usage, charge = assignment.get("resourceUsage"), (request.charges or {}).get(pod_set.name)
    if isinstance(usage, dict) and usage:
        each = {}
        for name, value in usage.items():
            amount = _amount(value, f"{where}.resourceUsage.{name}")
            workload_rules.check_usage(where, str(name), amount, assignment.get("count") or 0)
            each[str(name)] = -(-amount // max(count, 1))
        charge = {name: amount for name, amount in (charge or {}).items() if is_ours(name)} | each
    return ReservedPodSet(pod_set.name, count, pod_set.price, _flavors(assignment, pod_set, request), charge)


def _amount(value: object, where: str) -> int:
    try:
        return quantity.parse(value)
    except quantity.QuantityError as error:
        raise Unreadable.of(error.problem.within(where)) from None


def _flavors(assignment: Mapping[str, Any], pod_set: PodSet, request: Request) -> dict[str, str]:
    """Return the flavor of each resource: as stated, else the queue's first ones (trees know no flavors); what only
    Tutti counts is never stated.
    """
    stated = assignment.get("flavors")
    flavors = {str(k): str(v) for k, v in stated.items()} if isinstance(stated, dict) else {}
    firsts = {
        want.resource: choice.options[0].flavor
        for choice in request.choices
        for want in choice.wants
        if choice.options and any(part.pod_set == pod_set.name for part in (want, *want.more))
    }
    return {name: f for name, f in firsts.items() if not flavors or is_ours(name)} | flavors
