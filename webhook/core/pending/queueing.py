"""Where gangs wait: lanes (one a queue) of lines (gangs that ask the same of it).

Gangs of one queue with the same namespace, label, priority and pod sets get the same answer, so they stand in one line
and one answer serves all: a decision about the head of a line decides the line. A line is awake or parked. Each lane
offers one line at a time, the first in queue order that is awake; in a StrictFIFO queue nobody passes a parked one.

Order within a queue: usage-decay rank where the queue has one, then priority, time, uid.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from webhook.core.assignment.request import LineKey, Request
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import FlavorResource, PreemptionPolicy, Queue, Strategy
from webhook.core.model.reasons import Reason
from webhook.core.pending.gang_state import Event, GangState, allows
from webhook.core.quota.tree import AmountsByFlavor, Node

OrderKey = tuple[float, int, float, str]
"""Rank, negated priority, time, uid: smaller goes first."""


def line_key(gang: Gang) -> LineKey:
    """Return what two gangs of one queue must have in common to get the same answer."""
    sets = tuple(_pod_set_key(pod_set) for pod_set in gang.pod_sets)
    own = (gang.priority, gang.namespace, gang.queue or "", gang.quorum, gang.max_run_seconds, gang.preemptible)
    # Kueue turns each of these down in a turn of its own, whatever it said of others that ask the same.
    apart = gang.uid if gang.refusal is not None or gang.stops_nobody else None
    return (*own, gang.loose_pods, apart, sets)


def _pod_set_key(pod_set: PodSet) -> LineKey:
    placement: LineKey = ()
    if pod_set.node_selector or pod_set.node_affinity or pod_set.tolerations:
        placement = (tuple(sorted(pod_set.node_selector.items())), pod_set.node_affinity, pod_set.tolerations)
    requests = tuple(sorted(pod_set.price.requests.items()))
    seats = (placement, pod_set.together, pod_set.price.priority_class)
    shape = (pod_set.name, pod_set.count, pod_set.min_count, requests, seats)
    return (shape, _fence_key(pod_set.price, requests), tuple(sorted(pod_set.added)))


def _fence_key(price: PodPrice, requests: LineKey) -> LineKey:
    """Return what of a pod only fences look at."""
    limits = requests if price.limits is price.requests else tuple(sorted(price.limits.items()))
    return (limits, price.has_deadline, price.best_effort, price.cross_namespace_affinity, price.unstated)


@dataclass(slots=True, eq=False)
class Line:
    """Gangs of one queue that ask the same. The head is the earliest."""

    lane: "Lane"
    key: LineKey
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
    aside: Reason | None = None
    """Why the policy keeps the line out (namespace not selected, local queue stopped): it blocks nobody."""
    state: GangState = GangState.ACTIVE
    """Active or unschedulable: that of all its gangs."""
    hopeless: bool = False
    """Under this policy it can never start: there is nothing to keep for it."""
    never: bool = False
    """In a Backfill queue: that was so when the line was made, before anybody decided about it."""
    fence: Reason | None = None
    """What the fences said, where they were what blocked it."""
    level: int = 0
    """The lowest borrow level at which its head could start, as far as known."""
    rank: float = 0.0
    stamp: int = 0
    """Changes with every entry in the lane's order, so that stale entries are recognised."""
    least: Mapping[FlavorResource, int] | None = None
    """What its smallest start is charged; empty where no flavor fits it, None until somebody asked."""
    standing: int = 0
    """Number of its entry among those that may be the head of a Backfill queue; 0: it has none."""
    stood_at: OrderKey | None = None
    """Its place when that entry was made."""

    @property
    def unschedulable(self) -> bool:
        """It was decided about, and is blocked."""
        return self.state is GangState.UNSCHEDULABLE

    def move(self, event: Event) -> None:
        """Become unschedulable, or active again."""
        after = GangState.UNSCHEDULABLE if event is Event.BLOCKED else GangState.ACTIVE
        assert allows(event, self.state, after), f"{event}: {self.state} to {after}"
        self.state = after

    def put(self, gang: Gang) -> None:
        """Add one gang that is not yet in the line."""
        self.gangs[gang.uid] = gang
        insort(self.order, (gang.created_seconds, gang.uid))

    def drop(self, uid: str) -> Gang:
        """Take one gang out."""
        gang = self.gangs.pop(uid)
        del self.order[bisect_left(self.order, (gang.created_seconds, uid))]
        return gang

    @property
    def head(self) -> Gang:
        """The gang whose turn it is."""
        return self.gangs[self.order[0][1]]

    @property
    def order_key(self) -> OrderKey:
        """Place of its head in the queue."""
        head = self.head
        return (self.rank, -self.sample.priority, head.created_seconds, head.uid)


@dataclass(slots=True, eq=False)
class Lane:
    """All that waits in one queue; the lane without queue serves gangs that only fences bind."""

    name: str | None
    queue: Queue | None = None
    node: Node | None = None
    lines: dict[LineKey, Line] = field(default_factory=dict)
    backoff: dict[str, Gang] = field(default_factory=dict)
    """Gangs in back-off, by uid: neither considered nor in anybody's way."""
    claiming: dict[str, Gang] = field(default_factory=dict)
    """Gangs, by uid, for which others are being stopped: decided, and waiting for the room."""
    ranks: dict[tuple[str, str], float] = field(default_factory=dict)
    """Usage-decay rank by local queue (namespace, name), where the queue orders by it; absent: 0."""
    closed: Reason | None = None
    """Why the queue admits nothing at all."""
    stamp: int = 0
    """Changes with every entry in a cycle's agenda, so that stale entries are recognised."""
    _heap: list[tuple[OrderKey, int, Line]] = field(default_factory=list)
    _standing: list[tuple[OrderKey, int, Line]] = field(default_factory=list)
    """Of a Backfill queue: its lines in order, parked or not; entries that are not a line's ``standing`` are stale."""
    _offered: int = 0

    @property
    def strict(self) -> bool:
        """Nobody passes the head."""
        return self.queue is not None and self.queue.strategy is Strategy.STRICT_FIFO

    @property
    def backfills(self) -> bool:
        """Only those pass the head that do not delay it."""
        return self.queue is not None and self.queue.strategy is Strategy.BACKFILL

    @property
    def yields(self) -> bool:
        """Its gangs may be hungry, and leave room to hungry ones of other queues."""
        return self.queue is not None and self.queue.yields_to_hungry

    def head(self) -> Line | None:
        """Return the first line of a Backfill queue that could ever start, parked or not."""
        while self._standing:
            _, number, line = self._standing[0]
            if line.standing != number:
                heappop(self._standing)
            elif line.aside is not None or line.hopeless or line.never or not line.order:
                heappop(self._standing)
                line.standing = 0
            else:
                return line
        return None

    def leads(self, line: Line) -> bool:
        """Return whether nobody who could ever start waits here before the head of ``line``: it passes nobody."""
        if self.backfills:
            return self.head() in (None, line)
        ahead = (each for each in self.lines.values() if each.aside is None and not each.hopeless)
        return self.strict or all(each is line or each.order_key > line.order_key for each in ahead)

    def keeps_quota(self, line: Line) -> bool:
        """Return whether the head of ``line``, while it is blocked, may keep what its queue owns and does not use: that
        of a StrictFIFO or Backfill queue may, unless it can take all of that back anyway.
        """
        takes_back = self.queue is not None and self.queue.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
        return not takes_back and self.heads(line)

    def heads(self, line: Line) -> bool:
        """Return whether ``line`` is the head of a StrictFIFO or Backfill queue, if its turn is now."""
        return self.strict or (self.backfills and self.head() is line)

    def has_to_lead(self, line: Line) -> bool:
        """Return whether a line has to be the head to start: in a Backfill queue nobody passes without a limit."""
        return self.backfills and line.sample.max_run_seconds is None and not self.leads(line)

    def offer(self, line: Line) -> None:
        """Put a line (back) into the order, after its head changed or it woke up."""
        self._offered += 1
        line.stamp = self._offered
        line.rank = self._rank_of(line.sample)
        heappush(self._heap, (line.order_key, line.stamp, line))
        if self.backfills:
            self._stand(line)

    def _stand(self, line: Line) -> None:
        """Note the place of a line, if that is new: all that could make it the head goes through ``offer``."""
        if line.standing == 0 or line.stood_at != line.order_key:
            line.standing, line.stood_at = self._offered, line.order_key
            heappush(self._standing, (line.order_key, line.standing, line))

    def rerank(self, local: tuple[str, str], rank: float) -> None:
        """Give the gangs of one local queue another place in the order."""
        if self.ranks.get(local, 0.0) == rank:
            return
        self.ranks[local] = rank
        for line in self.lines.values():
            if (line.sample.namespace, line.sample.queue or "") == local:
                self.offer(line)

    def first(self) -> Line | None:
        """Return the line to decide about next, or None when all that may go is parked."""
        if self.closed is not None or (self.claiming and self.strict):
            return None
        return self.top()

    def top(self) -> Line | None:
        """Return the first line that is awake, whoever claims room and whether or not the queue is closed."""
        while self._heap:
            _, stamp, line = self._heap[0]
            if line.stamp != stamp or not line.order or line.aside is not None:
                heappop(self._heap)
            elif not line.unschedulable:
                return line
            elif self.strict:
                return None
            else:
                heappop(self._heap)
        return None

    def strict_head(self) -> Line | None:
        """Return the parked line that everybody else in a StrictFIFO queue stands behind."""
        if self.strict and self.closed is None and self.first() is None and self._heap and not self.claiming:
            return self._heap[0][2]
        return None

    def copy(self, lines: dict[Line, Line]) -> "Lane":
        """Return an independent lane; ``lines`` collects which line became which."""
        twin = replace(
            self,
            lines={},
            backoff=dict(self.backoff),
            claiming=dict(self.claiming),
            ranks=dict(self.ranks),
            _heap=[],
            _standing=[],
        )
        for key, line in self.lines.items():
            copied = replace(line, lane=twin, gangs=dict(line.gangs), order=list(line.order))
            twin.lines[key] = lines[line] = copied
        twin._heap = [(key, stamp, lines[line]) for key, stamp, line in self._heap if line in lines]
        heapify(twin._heap)
        twin._standing = [(key, number, lines[line]) for key, number, line in self._standing if line in lines]
        heapify(twin._standing)
        return twin

    def ahead_of(self, gang: Gang) -> int:
        """Return how many gangs wait here before ``gang``, which waits here too."""
        group, place = (self._rank_of(gang), -gang.priority), (gang.created_seconds, gang.uid)
        count = 0
        for line in self.lines.values():
            theirs = (line.rank, -line.sample.priority)
            if theirs <= group:
                count += len(line.order) if theirs < group else bisect_left(line.order, place)
        apart = (*self.backoff.values(), *self.claiming.values())
        return count + sum(self._place_of(other) < (*group, *place) for other in apart)

    def waiting(self) -> Iterator[tuple[OrderKey, Gang]]:
        """Yield every gang that waits here with its place, in no order."""
        for line in self.lines.values():
            for created, uid in line.order:
                yield (line.rank, -line.sample.priority, created, uid), line.gangs[uid]
        for gang in (*self.backoff.values(), *self.claiming.values()):
            yield self._place_of(gang), gang

    def _rank_of(self, gang: Gang) -> float:
        return self.ranks.get((gang.namespace, gang.queue or ""), 0.0)

    def _place_of(self, gang: Gang) -> OrderKey:
        return self._rank_of(gang), -gang.priority, gang.created_seconds, gang.uid


@dataclass(frozen=True, slots=True)
class GangRecord:
    """All that is known of one gang that waits."""

    gang: Gang
    lane: Lane | None
    """None while its queue is unknown."""
    line: Line | None
    """None while it is in back-off or claims, or its queue is unknown."""
    apart: GangState | None
    """Its state where it is in no equivalence class."""

    @property
    def state(self) -> GangState:
        """Its state, or that of its class."""
        state = self.apart if self.line is None else self.line.state
        assert state is not None
        return state
