"""What asks: a gang and its pod sets, as read from a job object of any kind.

A gang is the unit of admission: the pods that must start together. It starts with all its pods, or with its quorum
where its owner said that fewer are worth starting (PodGroup ``minMember``, ``min_count`` of a pod set).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakValueDictionary

from webhook.core.model.frozen import frozen
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts
from webhook.core.reasons.reasons import Reason

GRACE_SECONDS_MAX: Final = 3600
"""How long pods of a gang may take to go when they are stopped; an admission policy holds pods and deletions to it."""


@frozen
class Toleration:
    """One pod or flavor toleration, as in core/v1."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None
    """How long a taint of effect NoExecute is borne; None for ever."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One node selector requirement of a required node affinity term, as in core/v1."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Shared:
    """What can be found again as long as somebody has it."""

    __slots__ = ("__weakref__",)


@frozen
class PodPrice(_Shared):
    """What one pod costs, as the API server prices it, and what decides which ResourceQuota scopes it meets."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    has_deadline: bool = False
    """activeDeadlineSeconds is set on the pod: scope Terminating, else NotTerminating."""
    best_effort: bool = False
    """No container asks or limits cpu or memory: scope BestEffort, else NotBestEffort."""
    priority_class: str = ""
    cross_namespace_affinity: bool = False
    unstated: frozenset[str] = field(default=frozenset(), compare=False)
    """Of ``requests.`` and ``limits.`` of cpu and memory, what some container leaves out: a ResourceQuota of it refuses
    the pod. Known of pods that do not exist yet."""

    def interned(self) -> "PodPrice":
        """Return an equal one that is in use already, if there is: jobs by the thousand cost the same."""
        asked = tuple(self.requests.items())
        amounts = asked, asked if self.limits is self.requests else tuple(self.limits.items())
        flags = self.has_deadline, self.best_effort, self.cross_namespace_affinity
        return _PRICES.setdefault((*amounts, *flags, self.priority_class, self.unstated), self)


_PRICES: Final[WeakValueDictionary[tuple[object, ...], PodPrice]] = WeakValueDictionary()
"""Those that somebody has still. Equal ones are told apart by nobody, so that it does not matter whose they were."""


@frozen
class Nearness:
    """The pods of one set are to be in one domain: on nodes with the same value of a label (a rack, a block)."""

    level: str
    """The label; empty for a set that may lie anywhere."""
    required: bool
    """False: only where one has room for all."""
    slice_level: str = ""
    """The label of which the pods of each slice have to meet one value."""
    slice_size: int = 0
    """Pods of a slice, one after another by their ranks; 0: there are none."""
    path: tuple[str, ...] = ()
    """Where the labels nest (Volcano's tiers), all of them that matter, the widest first; the set goes to the narrowest
    domain that holds it."""

    @property
    def binding(self) -> bool:
        """Whether the pods may not start where this does not hold."""
        return self.required or bool(self.slice_size)

    @property
    def anywhere(self) -> bool:
        """Whether any nodes will do: the smallest holes are filled first then."""
        return not self.level and not self.slice_size


ANYWHERE: Final = Nearness("", required=False)
"""Kueue's ``podset-unconstrained-topology``."""


@frozen
class PodSet:
    """Identical pods of a gang."""

    name: str
    count: int
    price: PodPrice
    min_count: int | None = None
    """Fewest pods worth starting, where the owner allows partial admission of this set; 0 needs none of them."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: a pod fits a node if any term (all of its requirements) matches."""
    tolerations: tuple[Toleration, ...] = ()
    added: frozenset[str] = frozenset()
    """Resources that no template asks, but what the kind's controller adds to its pods: counted where a queue or fence
    counts them, and no reason to refuse the gang where none does."""
    together: str = ""
    """Pod sets of the gang with the same name here take the same flavors, and the same domain where they ask for one
    (Kueue's ``podset-group-name``)."""
    near: Nearness | None = None
    host_ports: tuple[str, ...] = ()
    """Ports of its node that a pod takes for itself, as ``TCP/29500``, in order."""
    job: str = ""
    """Uid of the job that it belongs to, where the gang is an ensemble."""

    @property
    def floor(self) -> int:
        """Fewest pods of this set worth starting."""
        return self.count if self.min_count is None else self.min_count

    def share_price(self) -> None:
        """Put an equal price that is in use already in the place of its own. What is read to be kept does so: of what a
        review reads nothing stays.
        """
        object.__setattr__(self, "price", self.price.interned())

    def without(self, ended: int) -> "PodSet":
        """Return the set less ``ended`` pods; one that has fewer left than its own minimum needs all of these."""
        count, least = max(0, self.count - ended), self.min_count
        return replace(self, count=count, min_count=None if least is None or least > count else least)


@frozen
class Gang:
    """One job that starts whole or not at all."""

    uid: str
    kind: str
    """Registry key of its job kind, ``Kind.group``: ``Job.batch``, ``JobSet.jobset.x-k8s.io``."""
    namespace: str
    name: str
    queue: str | None
    """Value of the queue label; None when only fences and quorum bind the gang (or a namespace maps to a queue)."""
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    created_seconds: float = 0.0
    """Unix time of the place in the queue: creation, unless an eviction sent it back; below 0 for who was moved to the
    top.
    """
    quorum: int | None = None
    """Pods that must be able to run together (PodGroup minMember); None means the floors of all pod sets."""
    max_run_seconds: int | None = None
    """Enforced limit on its run time; only gangs that have one may be backfilled past a head."""
    not_before_seconds: float = 0.0
    """Back-off: the gang is not considered before this time."""
    pod_group: str | None = None
    ensemble: str = ""
    """PodGroup whose quorum it makes together with the other jobs of its namespace that have the same name here."""
    succeeded_pods: int = 0
    """Pods of its ensemble that need not run again: those of jobs that have succeeded since it started first."""
    labels: Mapping[str, str] = field(default_factory=dict)
    evictable: bool = True
    """Stopping it takes its pods away. A kind whose pods stay is never chosen as a victim."""
    loose_pods: bool = False
    """Its pods cannot be told from others: the fences meet them one by one, and nobody waits for them to be whole."""
    preemptible: bool = True
    """Its owner lets it be stopped for others. Where the queue honours this, a gang that is not may use guaranteed
    quota only."""
    joinable: bool = False
    """Pods of other shapes than those that it was admitted with may join it while it runs."""
    refusal: Reason | None = None
    """Why it may not start although it takes its turn in its queue, as in Kueue: its pods could not be created, or an
    admission check said no."""
    stops_nobody: bool = False
    """It may start, but not at the cost of others (a closed preemption gate of Kueue's)."""

    @property
    def pods(self) -> int:
        """Number of pods when whole."""
        return sum(pod_set.count for pod_set in self.pod_sets)

    @property
    def counts(self) -> dict[str, int]:
        """Pods of each set when whole."""
        return {pod_set.name: pod_set.count for pod_set in self.pod_sets}

    @property
    def least_counts(self) -> dict[str, int]:
        """Pods of each set in the smallest start that reaches the quorum, or one pod where no set needs any.

        A gang-wide quorum below the sum of the floors takes pods away from the last sets first, never below one pod
        a set while another set still has more; one above the sum gives pods to the first sets first.
        """
        counts = {pod_set.name: pod_set.floor for pod_set in self.pod_sets}
        floors = sum(counts.values())
        spare = floors - max(floors if self.quorum is None else self.quorum, 1)
        if not spare:
            return counts
        for pod_set in self.pod_sets if spare < 0 else ():
            given = min(-spare, pod_set.count - counts[pod_set.name])
            counts[pod_set.name] += given
            spare += given
        for floor in (1, 0):
            for pod_set in reversed(self.pod_sets):
                taken = max(0, min(spare, counts[pod_set.name] - floor))
                counts[pod_set.name] -= taken
                spare -= taken
        return counts

    @property
    def least_pods(self) -> int:
        """Number of pods in the smallest start worth making."""
        return sum(self.least_counts.values())

    def without(self, ended: Mapping[str, int]) -> "Gang":
        """Return what is left of it when ``ended`` pods of each set have run to their end and will not come again.

        A gang-wide quorum that is more than what is left means all of that.
        """
        if not ended:
            return self
        sets = tuple(pod_set.without(ended.get(pod_set.name, 0)) for pod_set in self.pod_sets)
        left = max(1, sum(pod_set.count for pod_set in sets))
        return replace(self, pod_sets=sets, quorum=None if self.quorum is None else min(self.quorum, left))

    def requests(self, counts: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the summed requests of ``counts`` pods per set (all of them by default)."""
        sizes = self.counts if counts is None else counts
        return amounts.total(amounts.scale(s.price.requests, sizes.get(s.name, 0)) for s in self.pod_sets)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind.partition('.')[0]} {self.key}"
