"""What is allowed: queues, cohorts, flavors and limits, as every dialect compiles to them.

The words and the arithmetic are Kueue's (nominal, borrowing limit, lending limit); the other dialects map onto them.
An absent limit is ``None`` (unlimited), never a large number; an absent nominal quota is 0.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final, Protocol

from webhook.core.model.gang import Gang, Requirement, Toleration
from webhook.core.notation.problem import Problem

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_WHOLE_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits on one resource of one flavor at one vertex of the tree, in thousandths."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quotas of one flavor within a resource group."""

    flavor: str
    quotas: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that are always taken from the same flavor, and the flavors in order of preference."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class Strategy(StrEnum):
    """How a queue lets later gangs pass its head."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"
    BACKFILL = "Backfill"


class StopPolicy(StrEnum):
    """Whether a queue admits, and whether it keeps what it admitted."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class PreemptionPolicy(StrEnum):
    """Which admitted gangs may be stopped for another."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class SearchPolicy(StrEnum):
    """Whether a flavor that needs borrowing or preemption ends the scan of flavors."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class Preference(StrEnum):
    """Tie-break among scanned flavors."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Kueue's ``spec.preemption`` of a ClusterQueue."""

    within_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    max_priority_threshold: int | None = None

    def may_stop_own(self, priority: int, other: int) -> bool:
        """Return whether a gang of ``priority`` might ever stop one of priority ``other`` in its own queue."""
        if self.within_queue is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            return other <= priority
        return self.within_queue is PreemptionPolicy.LOWER_PRIORITY and other < priority


@dataclass(frozen=True, slots=True)
class Fungibility:
    """Kueue's ``spec.flavorFungibility`` of a ClusterQueue."""

    when_can_borrow: SearchPolicy = SearchPolicy.MAY_STOP_SEARCH
    when_can_preempt: SearchPolicy = SearchPolicy.TRY_NEXT_FLAVOR
    preference: Preference = Preference.BORROWING_OVER_PREEMPTION


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A metav1.LabelSelector: every label and every requirement must hold; empty selects everything."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` satisfy the selector."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement_holds(requirement, labels) for requirement in self.match_expressions
        )


def requirement_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy one requirement (In, NotIn, Exists, DoesNotExist, Gt, Lt)."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and len(requirement.values) == 1:
            left, right = whole_number(value), whole_number(requirement.values[0])
            if left is None or right is None:
                return False
            return left > right if requirement.operator == "Gt" else left < right
    return False


def whole_number(text: str) -> int | None:
    """Return the whole number that Go reads in a text; Python reads more, such as ``1_000``."""
    number = int(text) if _WHOLE.fullmatch(text) else _WHOLE_MAX + 1
    return number if -_WHOLE_MAX - 1 <= number <= _WHOLE_MAX else None


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint of a flavor."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a pod with ``toleration`` bears ``taint``, as kube-scheduler judges it."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    if toleration.operator in ("Lt", "Gt"):
        asked = Requirement(taint.key, toleration.operator, (toleration.value,))
        return requirement_holds(asked, {taint.key: taint.value})
    return toleration.operator == "Exists" or toleration.value == taint.value


class NodeFit(StrEnum):
    """Whether a gang waits until its pods fit the nodes of a flavor."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    """It starts without: its nodes may be made for it."""
    OFF = "off"
    """The nodes are not asked at all."""


@dataclass(frozen=True, slots=True)
class Topology:
    """How nodes are nested: labels whose values name a block, a rack in it, a node in that."""

    name: str
    levels: tuple[str, ...]
    """The labels, widest first."""


class Pattern(Protocol):
    """A regular expression; two that are written alike are equal."""

    def search(self, text: str, /) -> object:
        """Return something true where it is found in ``text``."""
        ...


@dataclass(frozen=True, slots=True)
class HyperNode:
    """Volcano's: nodes that are near each other, named one by one, by rules, or as those of other HyperNodes."""

    name: str
    tier: int
    """The lower, the nearer its nodes are to each other."""
    tier_name: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)
    """Nodes that it names."""
    patterns: tuple[Pattern, ...] = ()
    """Nodes in whose name one of them is found."""
    selectors: tuple[LabelSelector, ...] = ()
    """Nodes by their labels."""
    below: frozenset[str] = field(default_factory=frozenset)
    """HyperNodes whose nodes are its own too."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of capacity: the nodes it stands for and what a pod must tolerate to use it."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_fit: NodeFit | None = None
    """None: as is configured for all."""
    topology: str | None = None
    """Name of the Topology of its nodes."""
    levels: tuple[str, ...] = ()
    """The labels of that, widest first: a node that lacks one of them is none of the flavor's."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A leaf of the quota tree that gangs wait in."""

    name: str
    dialect: str
    """Who wrote it: ``kueue``, ``elastic-quota-tree``, ``volcano``."""
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    strategy: Strategy = Strategy.BEST_EFFORT_FIFO
    stop_policy: StopPolicy = StopPolicy.NONE
    namespace_selector: LabelSelector | None = None
    """Namespaces that may use the queue; None selects no namespace (Kueue), dialects without selectors use {}."""
    preemption: Preemption = Preemption()
    fungibility: Fungibility = Fungibility()
    weight_millis: int = 1000
    """Fair-sharing weight in thousandths."""
    ignores_undeclared: bool = False
    """A resource no group covers is ignored (ElasticQuotaTree) instead of blocking (Kueue)."""
    inactive: str | None = None
    """Why the queue admits nothing (missing flavor, cohort cycle), as a sentence; None when it is active."""
    inactive_reason: str = "Misconfigured"
    """The same as one word, Kueue's where it has one."""
    usage_based_ordering: bool = False
    """Kueue's admissionScope UsageBasedAdmissionFairSharing."""
    reclaimable: bool = True
    """Other queues may take back what it borrows (Volcano)."""
    spares_non_preemptible: bool = False
    """A gang whose owner rules preemption out is never stopped for others here, and may use guaranteed quota only
    (ElasticQuotaTree)."""
    guards_borrowing: bool = False
    """Above what it owns it takes no room that a starved gang elsewhere in its tree needs (ElasticQuotaTree)."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """An inner vertex of the quota tree. Cohorts that queues or cohorts merely name exist too, without quota."""

    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight_millis: int = 1000
    is_deleted: bool = False
    """It is there only because gangs run below it that were admitted when it was."""


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A namespace's handle on a queue."""

    namespace: str
    name: str
    queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    weight_millis: int = 1000


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything the engine decides by, from all dialects together. Immutable: a change is a new Policy."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], LocalQueue] = field(default_factory=dict)
    """Keyed by (namespace, name)."""
    namespace_queues: Mapping[str, str] = field(default_factory=dict)
    """Namespaces whose jobs all wait in one queue (leaves of an ElasticQuotaTree)."""
    queue_aliases: Mapping[str, str] = field(default_factory=dict)
    """Names fit for a label (a leaf's bare name) to queues whose own name is a path."""
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """WorkloadPriorityClass name to its value."""
    hyper_nodes: tuple[HyperNode, ...] = ()
    """In order of their names."""
    problems: tuple[Problem, ...] = ()
    _local_names: Mapping[str, Sequence[str]] = field(init=False, repr=False, compare=False)
    """Namespace to the names of its LocalQueues, in order."""
    _owned: frozenset[str] = field(init=False, repr=False, compare=False)
    """Queues that belong to namespaces."""
    _open: Sequence[str] = field(init=False, repr=False, compare=False)
    """Queues that every namespace reaches by their own name, in order."""

    def __post_init__(self) -> None:
        """Note what would be looked for among all queues whenever somebody names one that nobody knows."""
        local_names: dict[str, list[str]] = {}
        for namespace, name in sorted(self.local_queues):
            local_names.setdefault(namespace, []).append(name)
        owned, aliases = frozenset(self.namespace_queues.values()), self.queue_aliases
        without = (name for name, queue in self.queues.items() if queue.dialect != "kueue" and name not in owned)
        object.__setattr__(self, "_local_names", local_names)
        object.__setattr__(self, "_owned", owned)
        object.__setattr__(self, "_open", sorted(name for name in without if aliases.get(name, name) == name))

    def cohorts_above(self, cohort: str | None) -> tuple[str, ...]:
        """Return ``cohort`` and what it is below, upwards, each once."""
        found = dict[str, None]()
        while cohort is not None and cohort not in found:
            found[cohort] = None
            above = self.cohorts.get(cohort)
            cohort = None if above is None else above.parent
        return tuple(found)

    def may_be_preempted(self, gang: Gang, queue: str | None) -> bool:
        """Return whether the owner of ``gang`` lets it be stopped for others in ``queue``, or that does not ask."""
        found = self.queues.get(queue or "")
        return gang.preemptible or found is None or not found.spares_non_preemptible

    def queue_of(self, namespace: str, label: str | None) -> str | None:
        """Return the name of the queue that a job of ``namespace`` with queue label ``label`` waits in, if known.

        A LocalQueue of the namespace wins; then a queue of that name or alias in a dialect without local queues, unless
        it belongs to other namespaces; without a label, the queue the namespace itself is mapped to.
        """
        if label is None:
            return self.namespace_queues.get(namespace)
        local = self.local_queues.get((namespace, label))
        if local is not None:
            return local.queue if local.queue in self.queues else None
        name = self.queue_aliases.get(label, label)
        queue = self.queues.get(name)
        if queue is None or queue.dialect == "kueue":
            return None
        is_open = self.namespace_queues.get(namespace) == name or name not in self._owned
        return name if is_open else None

    def why_no_queue(self, namespace: str, label: str | None) -> tuple[str, str]:
        """Return what is wrong with a queue label for which ``queue_of`` knows no queue, and what helps."""
        local = self.local_queues.get((namespace, label or ""))
        if local is not None:
            name = f"LocalQueue {namespace}/{local.name}"
            if not local.queue:
                return f"{name} names no ClusterQueue", "name one in its spec.clusterQueue"
            return f"{name} points to ClusterQueue {local.queue!r}, which does not exist", "create it or name another"
        known = ", ".join(self._known_in(namespace))
        offer = f"; known here: {known}" if known else "; this namespace has none"
        return f"no queue {label!r} in namespace {namespace}", f"create the queue or correct the label{offer}"

    def _known_in(self, namespace: str) -> list[str]:
        """Return the first names by which jobs of ``namespace`` may wait: those of its LocalQueues, then others."""
        known = [*self._local_names.get(namespace, ())[:QUEUES_SHOWN]]
        others = [*islice((name for name in self._open if name not in known), QUEUES_SHOWN)]
        own = self.namespace_queues.get(namespace)
        if own is not None and own not in known and self.queue_of(namespace, own) == own:
            others = sorted([own, *others])
        return [*known, *others][:QUEUES_SHOWN]


QUEUES_SHOWN = 5
"""Names that are offered in place of an unknown one."""


def heir(queue: str, cohorts: Container[str], queues: Container[str] = ()) -> str | None:
    """Return what is charged for what still runs in a queue that is gone: the nearest vertex above it, if any.

    Only queues of an ElasticQuotaTree have paths for names (``root/team``), by which what is above them is known. A
    leaf that was given children has become a cohort of its own name, and a cohort that lost all of them is one of
    the ``queues``.
    """
    steps = queue.split("/")
    paths = ("/".join(steps[:length]) for length in range(len(steps), 0, -1)) if len(steps) > 1 else ()
    return next((path for path in paths if path in cohorts or path in queues), None)
