"""Kueue's objects, ``kueue.x-k8s.io`` v1beta2 and v1beta1: queues, cohorts, local queues, flavors, topologies, classes.

The rules are those of Kueue's CRD schemas and webhooks. Both versions' spellings are read in either version
(``cohortName`` and ``cohort``, ``MayStopSearch`` and ``Borrow``/``Preempt``), because a CRD without a conversion
webhook serves an object under one version with the fields that it was written with under the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from webhook.core.model.policy import (
    Cohort,
    Flavor,
    Fungibility,
    LocalQueue,
    NodeFit,
    Preemption,
    PreemptionPolicy,
    Preference,
    Queue,
    SearchPolicy,
    StopPolicy,
    Strategy,
    Topology,
)
from webhook.core.notation import names
from webhook.dialects import selector
from webhook.dialects.field import Field
from webhook.dialects.fragment import Fragment, opened
from webhook.dialects.kueue import checks as kueue_checks
from webhook.dialects.kueue.quota import BORROWING_PERCENT, LENDING_PERCENT, resource_groups

GROUP: Final = "kueue.x-k8s.io"
DIALECT: Final = "kueue"

_STRATEGIES: Final = {str(strategy): strategy for strategy in Strategy}
_STOP_POLICIES: Final = {str(policy): policy for policy in StopPolicy}
_SEARCH: Final = {
    "MayStopSearch": SearchPolicy.MAY_STOP_SEARCH,
    "TryNextFlavor": SearchPolicy.TRY_NEXT_FLAVOR,
}
_PREFERENCES: Final = {str(preference): preference for preference in Preference}
_MODES: Final = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
_SMALLEST_WEIGHT: Final = Decimal("1e-9")
_SMALL_UNITS: Final = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}


def compile_object(obj: Mapping[str, object]) -> Fragment:
    """Return what one object of the group defines. Kinds without meaning for quota define nothing and say so."""
    fragment, at = opened(obj)
    reader = _READERS.get(fragment.source.kind)
    if reader is None:
        at["kind"].warn("is not a kind that Tutti reads", f"kinds read here: {', '.join(_READERS)}")
    elif fragment.source.name:
        reader(at, fragment)
    return fragment


# -- ClusterQueue -----------------------------------------------------------------------------------------------------


def _cluster_queue(at: Field, fragment: Fragment) -> None:
    spec = at["spec"]
    spec.only(_CLUSTER_QUEUE_FIELDS)
    cohort = _cohort_name(spec)
    groups = resource_groups(spec, has_parent=cohort is not None, is_cohort=False)
    queue = Queue(
        name=fragment.source.name,
        dialect=DIALECT,
        cohort=cohort,
        resource_groups=groups,
        strategy=spec["queueingStrategy"].choice(Strategy.BEST_EFFORT_FIFO, _STRATEGIES),
        stop_policy=spec["stopPolicy"].choice(StopPolicy.NONE, _STOP_POLICIES),
        namespace_selector=selector.label_selector(spec["namespaceSelector"]),
        preemption=_preemption(spec["preemption"]),
        fungibility=_fungibility(spec["flavorFungibility"]),
        weight_millis=_weight(spec["fairSharing"]),
        usage_based_ordering=_admission_mode(spec["admissionScope"]),
    )
    if spec["concurrentAdmissionPolicy"].present:
        spec["concurrentAdmissionPolicy"].warn("has no effect in Tutti", "remove it")
    if rules := kueue_checks.rules(spec, {quotas.flavor for group in groups for quotas in group.flavors}):
        fragment.check_rules[queue.name] = rules
    if at["metadata"]["deletionTimestamp"].present:
        queue = replace(queue, inactive="it is being deleted", inactive_reason="Terminating")
    if fragment.broken is not None:
        queue = Queue(queue.name, DIALECT, cohort=cohort, inactive=fragment.broken)
    fragment.queues.append(queue)


_CLUSTER_QUEUE_FIELDS: Final = (
    "resourceGroups",
    "cohortName",
    "cohort",
    "queueingStrategy",
    "namespaceSelector",
    "flavorFungibility",
    "preemption",
    "admissionChecksStrategy",
    "admissionChecks",
    "stopPolicy",
    "fairSharing",
    "admissionScope",
    "concurrentAdmissionPolicy",
    BORROWING_PERCENT,
    LENDING_PERCENT,
)


def _cohort_name(spec: Field) -> str | None:
    current, older = spec["cohortName"].subdomain(), spec["cohort"].subdomain()
    if current and older and current != older:
        spec["cohort"].error(f"differs from cohortName {current!r}", "keep cohortName only")
    return current or older or None


def _preemption(at: Field) -> Preemption:
    at.only(("withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort"))
    never, lower = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY
    newer, anyone = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY, PreemptionPolicy.ANY
    borrow = at["borrowWithinCohort"]
    borrow.only(("policy", "maxPriorityThreshold"))
    result = Preemption(
        at["withinClusterQueue"].choice(never, {str(p): p for p in (never, lower, newer)}),
        at["reclaimWithinCohort"].choice(never, {str(p): p for p in (never, lower, anyone)}),
        borrow["policy"].choice(never, {str(p): p for p in (never, lower)}),
        borrow["maxPriorityThreshold"].integer(),
    )
    if result.reclaim_within_cohort is never and result.borrow_within_cohort is not never:
        borrow["policy"].error(
            "preempting while borrowing needs reclaimWithinCohort", "set reclaimWithinCohort or write Never here"
        )
    return result


def _fungibility(at: Field) -> Fungibility:
    at.only(("whenCanBorrow", "whenCanPreempt", "preference"))
    result = Fungibility(
        at["whenCanBorrow"].choice(SearchPolicy.MAY_STOP_SEARCH, {**_SEARCH, "Borrow": SearchPolicy.MAY_STOP_SEARCH}),
        at["whenCanPreempt"].choice(SearchPolicy.TRY_NEXT_FLAVOR, {**_SEARCH, "Preempt": SearchPolicy.MAY_STOP_SEARCH}),
        at["preference"].choice(Preference.BORROWING_OVER_PREEMPTION, _PREFERENCES),
    )
    if at["preference"].present and {result.when_can_borrow, result.when_can_preempt} != {SearchPolicy.TRY_NEXT_FLAVOR}:
        at["preference"].error(
            "chooses among scanned flavors, but the scan may stop earlier",
            "set whenCanBorrow and whenCanPreempt to TryNextFlavor",
        )
    return result


def _weight(sharing: Field) -> int:
    """Return a fair-sharing weight in thousandths; Kueue refuses weights above 0 and up to a billionth."""
    sharing.only(("weight",))
    at = sharing["weight"]
    amount = at.amount()
    if amount is None:
        return 1000
    text = str(at.value)
    unit = _SMALL_UNITS.get(text[-1:])
    try:
        exact = Decimal(text) if unit is None else Decimal(text[:-1]) * unit
    except InvalidOperation:
        return amount  # a larger unit
    if 0 < exact <= _SMALLEST_WEIGHT:
        at.error("is too small a weight", "write 0 or more than 1n")
    return amount


def _local_weight(sharing: Field) -> int:
    """Return the weight of a LocalQueue in thousandths. Kueue does not bound it: 0 and less send it to the end."""
    sharing.only(("weight",))
    amount = sharing["weight"].amount(signed=True)
    return 1000 if amount is None else max(0, amount)


def _admission_mode(scope: Field) -> bool:
    scope.only(("admissionMode",))
    at = scope["admissionMode"]
    mode = at.text()
    if scope.present and mode not in _MODES:
        at.error("is not an allowed value", f"write one of {', '.join(_MODES)}")
    return mode == _MODES[0]


# -- the other kinds --------------------------------------------------------------------------------------------------


def _cohort(at: Field, fragment: Fragment) -> None:
    spec = at["spec"]
    spec.only(("parentName", "parent", "resourceGroups", "fairSharing", BORROWING_PERCENT, LENDING_PERCENT))
    parent = spec["parentName"].subdomain() or spec["parent"].subdomain() or None
    groups = resource_groups(spec, has_parent=parent is not None, is_cohort=True)
    weight = _weight(spec["fairSharing"])
    if fragment.broken is not None:
        groups, weight = (), 1000
    fragment.cohorts.append(Cohort(fragment.source.name, parent, groups, weight))


def _local_queue(at: Field, fragment: Fragment) -> None:
    spec = at["spec"]
    spec.only(("clusterQueue", "stopPolicy", "fairSharing"))
    queue = spec["clusterQueue"].subdomain()
    if spec["clusterQueue"].value == "":
        spec["clusterQueue"].error("the name is empty", "name a ClusterQueue")
    elif not spec["clusterQueue"].present:
        spec["clusterQueue"].warn("the cluster queue is missing: its jobs wait", "name a ClusterQueue")
    if not fragment.source.namespace:
        at["metadata"]["namespace"].error("a LocalQueue lives in a namespace", "set metadata.namespace")
    stop = spec["stopPolicy"].choice(StopPolicy.NONE, _STOP_POLICIES)
    weight = _local_weight(spec["fairSharing"])
    if fragment.broken is None:
        fragment.local_queues.append(LocalQueue(fragment.source.namespace, fragment.source.name, queue, stop, weight))


def _flavor(at: Field, fragment: Fragment) -> None:
    spec = at["spec"]
    spec.only(("nodeLabels", "nodeTaints", "tolerations", "topologyName"))
    topology = spec["topologyName"].subdomain()
    labels = selector.labels(spec["nodeLabels"], most=8)
    flavor = Flavor(
        fragment.source.name,
        labels,
        selector.taints(spec["nodeTaints"]),
        selector.tolerations(spec["tolerations"]),
        _node_fit(at["metadata"]["annotations"], labels),
        topology or None,
    )
    if spec["topologyName"].value == "":
        spec["topologyName"].error("the name is empty", "name a Topology or remove the field")
    elif topology and not flavor.node_labels:
        spec["topologyName"].error("a topology needs at least one node label", "set nodeLabels")
    if fragment.broken is None:
        fragment.flavors.append(flavor)


def _topology(at: Field, fragment: Fragment) -> None:
    spec = at["spec"]
    spec.only(("levels",))
    items = list(spec["levels"].items(least=1, most=16))
    levels: list[str] = []
    for item in items:
        item.only(("nodeLabel",))
        label = item["nodeLabel"].label_key()
        if label in levels:
            item["nodeLabel"].error("is the label of a level above too", "list each label once")
        elif label == names.HOSTNAME and item is not items[-1]:
            item["nodeLabel"].error("is not the lowest level", f"list {names.HOSTNAME} last, or leave it out")
        levels += [label] if label else []
    if fragment.broken is None:
        fragment.topologies.append(Topology(fragment.source.name, tuple(levels)))


def _node_fit(annotations: Field, labels: Mapping[str, str]) -> NodeFit | None:
    """Return whether who starts on a flavor waits for nodes. Where nobody says so, not for those that are made on
    demand: they come once there are pods.
    """
    stated = annotations[names.NODE_FIT]
    if stated.value in tuple(NodeFit):
        return NodeFit(str(stated.value))
    if stated.present:
        stated.warn("is not known and is ignored", f"write one of {', '.join(NodeFit)}")
    noted = annotations.value if isinstance(annotations.value, dict) else {}
    on_demand = any(str(key).startswith(names.AUTOSCALERS) for key in (*noted, *labels))
    return NodeFit.OBSERVE if on_demand else None


def _priority_class(at: Field, fragment: Fragment) -> None:
    value = at["value"].integer()
    if not at["value"].present:
        at["value"].error("the value is missing", "write a whole number")
    if len(at["description"].text()) > 2048:
        at["description"].error("is too long", "write at most 2048 characters")
    if value is not None:
        fragment.priority_classes[fragment.source.name] = value


_READERS: Final[dict[str, Callable[[Field, Fragment], None]]] = {
    kueue_checks.KIND: kueue_checks.read,
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "ResourceFlavor": _flavor,
    "Topology": _topology,
    "WorkloadPriorityClass": _priority_class,
}
