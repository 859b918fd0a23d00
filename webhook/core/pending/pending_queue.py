"""Where gangs wait: the queues, and in each of them equivalence classes of gangs that ask the same of it.

Gangs of one queue with the same namespace, label, priority and pod sets get the same answer, so they stand in one class
and one answer serves all: a decision about the head of a class decides the class. A class is active or unschedulable.
Each queue nominates one class at a time, the first in queue order that is active; in a StrictFIFO queue none passes an
unschedulable one.

Order within a queue: usage-decay rank where the queue has one, then priority, time, uid.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from webhook.core.assignment.request import ClassKey, Request
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import PreemptionPolicy, Queue, Strategy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.gang_state import ALLOWED, Event, GangState
from webhook.core.pending.keyed_heap import KeyedHeap
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.quota.tree import AmountsByFlavor, Vertex
from webhook.core.reasons.barriers import Barrier
from webhook.core.reasons.reasons import Reason

OrderKey = tuple[float, int, float, str]
"""Rank, negated priority, time, uid: smaller goes first."""


def class_key(gang: Gang) -> ClassKey:
    """Return what two gangs of one queue must have in common to get the same answer."""
    sets = tuple(map(_pod_set_key, gang.pod_sets))
    own = (gang.priority, gang.namespace, gang.queue or "", gang.quorum, gang.max_run_seconds, gang.preemptible)
    # Kueue turns each of these down in a turn of its own, whatever it said of others that ask the same.
    apart = gang.uid if gang.refusal is not None or gang.stops_nobody else None
    return (*own, gang.loose_pods, apart, sets)


def _pod_set_key(pod_set: PodSet) -> ClassKey:
    placement: ClassKey = ()
    if pod_set.node_selector or pod_set.node_affinity or pod_set.tolerations:
        placement = (tuple(sorted(pod_set.node_selector.items())), pod_set.node_affinity, pod_set.tolerations)
    requests = tuple(sorted(pod_set.price.requests.items()))
    seats = (placement, pod_set.together, pod_set.price.priority_class, pod_set.near, pod_set.host_ports)
    shape = (pod_set.name, pod_set.count, pod_set.min_count, requests, seats)
    return (shape, _fence_key(pod_set.price, requests), tuple(sorted(pod_set.added)) if pod_set.added else ())


def _fence_key(price: PodPrice, requests: ClassKey) -> ClassKey:
    """Return what of a pod only fences look at."""
    limits: ClassKey = ()
    if price.limits:
        limits = requests if price.limits is price.requests else tuple(sorted(price.limits.items()))
    return (limits, price.has_deadline, price.best_effort, price.cross_namespace_affinity, price.unstated)


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Gangs of one queue that ask the same. The head is the earliest."""

    queue: "PendingQueue"
    key: ClassKey
    sample: Gang
    """Any of its gangs: they differ in name, uid and time only."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    order: list[tuple[float, str]] = field(default_factory=list)
    """(time, uid), sorted."""
    request: Request = field(default_factory=Request)
    smallest: AmountsByFlavor | None = None
    """What its smallest start is charged, where there is no choice of flavors."""
    elastic: bool = False
    """It may start with fewer pods than it has."""
    shifting: bool = False
    """Its borrow level may fall as others are admitted: it may turn to another flavor or to a smaller size."""
    ineligible: Reason | None = None
    """Why the policy keeps the class out (namespace not selected, local queue stopped): it blocks nobody."""
    state: GangState = GangState.ACTIVE
    """Active or unschedulable: that of all its gangs."""
    hopeless: bool = False
    """Under this policy it can never start: there is nothing to keep for it."""
    never: bool = False
    """In a Backfill queue: that was so when the class was made, before anybody decided about it."""
    short_of: Asked | None = None
    """Pods of it that have to fit the nodes at least; None where something else would help too."""
    barrier: Barrier | Misplaced | None = None
    """What blocked it, where that was not quota."""
    level: int = 0
    """The lowest borrow level at which its head could start, as far as known."""
    rank: float = 0.0
    least: Mapping[FlavorResource, int] | None = None
    """What its smallest start is charged; empty where no flavor fits it, None until somebody asked."""

    @property
    def unschedulable(self) -> bool:
        """It was decided about, and is blocked."""
        return self.state is GangState.UNSCHEDULABLE

    def move(self, event: Event) -> None:
        """Become unschedulable, or active again."""
        after = GangState.UNSCHEDULABLE if event is Event.BLOCKED else GangState.ACTIVE
        assert (event, self.state, after) in ALLOWED, f"{event}: {self.state} to {after}"
        self.state = after

    def put(self, gang: Gang) -> None:
        """Add one gang that is not yet in the class."""
        self.gangs[gang.uid] = gang
        insort(self.order, (gang.created_seconds, gang.uid))

    def drop(self, uid: str) -> Gang:
        """Take one gang out."""
        gang = self.gangs.pop(uid)
        del self.order[bisect_left(self.order, (gang.created_seconds, uid))]
        return gang

    def before(self, group: tuple[float, int], other: tuple[float, int], place: tuple[float, str]) -> int:
        """Return how many gangs of the class, which stands at ``group``, are before one at ``place`` of ``other``."""
        return len(self.order) if group < other else bisect_left(self.order, place) if group == other else 0

    @property
    def head(self) -> Gang:
        """The gang whose turn it is."""
        return self.gangs[self.order[0][1]]

    @property
    def order_key(self) -> OrderKey:
        """Place of its head in the queue."""
        return (self.rank, -self.sample.priority, *self.order[0])


@dataclass(slots=True, eq=False)
class PendingQueue:
    """All that waits in one queue; the queue without queue serves gangs that only fences bind."""

    name: str | None
    spec: Queue | None = None
    vertex: Vertex | None = None
    eclasses: dict[ClassKey, EquivalenceClass] = field(default_factory=dict)
    backoff: dict[str, Gang] = field(default_factory=dict)
    """Gangs in back-off, by uid: neither considered nor in anybody's way."""
    claiming: dict[str, Gang] = field(default_factory=dict)
    """Gangs, by uid, for which others are being stopped: decided, and waiting for the room."""
    ranks: dict[tuple[str, str], float] = field(default_factory=dict)
    """Usage-decay rank by local queue (namespace, name), where the queue orders by it; absent: 0."""
    closed: Reason | None = None
    """Why the queue admits nothing at all."""
    strict: bool = field(init=False)
    """Nobody passes the head."""
    backfills: bool = field(init=False)
    """Only those pass the head that do not delay it."""
    _order: KeyedHeap[EquivalenceClass] = field(default_factory=KeyedHeap)
    """Its classes that may be active, in order."""
    _standing: KeyedHeap[EquivalenceClass] = field(default_factory=KeyedHeap)
    """Of a Backfill queue: its classes in order, unschedulable or not."""

    def __post_init__(self) -> None:
        self.strict = self.spec is not None and self.spec.strategy is Strategy.STRICT_FIFO
        self.backfills = self.spec is not None and self.spec.strategy is Strategy.BACKFILL

    @property
    def yields(self) -> bool:
        """Its gangs may be starved, and leave room to starved ones of other queues."""
        return self.spec is not None and self.spec.guards_borrowing

    def head(self) -> EquivalenceClass | None:
        """Return the first class of a Backfill queue that could ever start, unschedulable or not."""
        while (eclass := self._standing.first()) is not None:
            if not (eclass.ineligible is not None or eclass.hopeless or eclass.never or not eclass.order):
                return eclass
            self._standing.discard(eclass)
        return None

    def leads(self, eclass: EquivalenceClass) -> bool:
        """Return whether nobody who could ever start waits here before the head of ``eclass``: it passes nobody."""
        if self.backfills:
            return self.head() in (None, eclass)
        ahead = (each for each in self.eclasses.values() if each.ineligible is None and not each.hopeless)
        return self.strict or all(each is eclass or each.order_key > eclass.order_key for each in ahead)

    def keeps_quota(self, eclass: EquivalenceClass) -> bool:
        """Return whether the head of ``eclass``, while it is blocked, may keep what its queue owns and does not use:
        that of a StrictFIFO or Backfill queue may, unless it can take all of that back anyway.
        """
        takes_back = self.spec is not None and self.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
        return not takes_back and self.heads(eclass)

    def heads(self, eclass: EquivalenceClass) -> bool:
        """Return whether ``eclass`` is the head of a StrictFIFO or Backfill queue, if its turn is now."""
        return self.strict or (self.backfills and self.head() is eclass)

    def has_to_lead(self, eclass: EquivalenceClass) -> bool:
        """Return whether a class has to be the head to start: in a Backfill queue nobody passes without a limit."""
        return self.backfills and eclass.sample.max_run_seconds is None and not self.leads(eclass)

    def nominate(self, eclass: EquivalenceClass) -> None:
        """Put a class (back) into the order, after its head changed or it woke up."""
        eclass.rank = self._rank_of(eclass.sample)
        place = eclass.order_key
        self._order.push(place, eclass)
        # All that could make it the head goes through here.
        if self.backfills and self._standing.place_of(eclass) != place:
            self._standing.push(place, eclass)

    def rerank(self, local: tuple[str, str], rank: float) -> None:
        """Give the gangs of one local queue another place in the order."""
        if self.ranks.get(local, 0.0) == rank:
            return
        self.ranks[local] = rank
        for eclass in self.eclasses.values():
            if (eclass.sample.namespace, eclass.sample.queue or "") == local:
                self.nominate(eclass)

    def first(self) -> EquivalenceClass | None:
        """Return the class to decide about next, or None when all that may go is unschedulable."""
        if self.closed is not None or (self.claiming and self.strict):
            return None
        return self.top()

    def top(self) -> EquivalenceClass | None:
        """Return the first class that is active, whoever claims room and whether or not the queue is closed."""
        order = self._order
        while (eclass := order.first()) is not None:
            if eclass.order and eclass.ineligible is None:
                if eclass.state is not GangState.UNSCHEDULABLE:
                    return eclass
                if self.strict:
                    return None
            order.discard(eclass)
        return None

    def strict_head(self) -> EquivalenceClass | None:
        """Return the unschedulable class that everybody else in a StrictFIFO queue stands behind."""
        blocked = self.strict and self.closed is None and self.first() is None and not self.claiming
        return self._order.first() if blocked else None

    def copy(self, eclasses: dict[EquivalenceClass, EquivalenceClass]) -> "PendingQueue":
        """Return an independent queue; ``eclasses`` collects which class became which."""
        twin = replace(
            self,
            eclasses={},
            backoff=dict(self.backoff),
            claiming=dict(self.claiming),
            ranks=dict(self.ranks),
        )
        for key, eclass in self.eclasses.items():
            copied = replace(eclass, queue=twin, gangs=dict(eclass.gangs), order=list(eclass.order))
            twin.eclasses[key] = eclasses[eclass] = copied
        twin._order, twin._standing = self._order.copy(eclasses.get), self._standing.copy(eclasses.get)
        return twin

    def ahead_of(self, gang: Gang, counts: Callable[[Gang], bool] = lambda gang: True) -> int:
        """Return how many gangs that ``counts`` holds for wait here before ``gang``, which waits here too."""
        group, place = (self._rank_of(gang), -gang.priority), (gang.created_seconds, gang.uid)
        count = 0
        for eclass in self.eclasses.values():
            if counts(eclass.sample):
                count += eclass.before((eclass.rank, -eclass.sample.priority), group, place)
        apart = (*self.backoff.values(), *self.claiming.values())
        return count + sum(self._place_of(other) < (*group, *place) for other in apart if counts(other))

    def waiting(self) -> Iterator[tuple[OrderKey, Gang]]:
        """Yield every gang that waits here with its place, in no order."""
        for eclass in self.eclasses.values():
            for created, uid in eclass.order:
                yield (eclass.rank, -eclass.sample.priority, created, uid), eclass.gangs[uid]
        for gang in (*self.backoff.values(), *self.claiming.values()):
            yield self._place_of(gang), gang

    def _rank_of(self, gang: Gang) -> float:
        return self.ranks.get((gang.namespace, gang.queue or ""), 0.0)

    def _place_of(self, gang: Gang) -> OrderKey:
        return self._rank_of(gang), -gang.priority, gang.created_seconds, gang.uid


@dataclass(frozen=True, slots=True)
class PendingGang:
    """All that is known of one gang that waits."""

    gang: Gang
    queue: PendingQueue | None
    """None while its queue is unknown."""
    eclass: EquivalenceClass | None
    """None while it is in back-off or claims, or its queue is unknown."""
    apart: GangState | None
    """Its state where it is in no equivalence class."""

    @property
    def state(self) -> GangState:
        """Its state, or that of its class."""
        state = self.apart if self.eclass is None else self.eclass.state
        assert state is not None
        return state
