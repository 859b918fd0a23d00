"""In which order a cycle looks at queues: each offers one line, the best offer goes next.

``ClassicalAgenda``: lowest borrow level, then priority, time, uid. Levels only rise while a cycle admits, so an offer
is entered with a lower bound and entered again when its level turns out higher. ``FairAgenda``: Kueue's tournament. At
each cohort the children's best offers meet: one whose side would not borrow wins, then the one whose side would have
the lower share with its gang, then priority, time, uid.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.fair_sharing import Share, share
from webhook.core.assignment.preemption import within_own
from webhook.core.pending.queueing import Lane, Line
from webhook.core.quota.tree import Node, Usage


class Agenda(Protocol):
    """Offers of a cycle in progress."""

    def enter(self, lane: Lane, level: int = 0) -> None:
        """Take up the offer of a lane, if it has one; an earlier offer of it is void."""

    def pop(self) -> tuple[int, Lane] | None:
        """Return the next lane to look at and the level it was entered with."""

    def lanes(self) -> Iterator[Lane]:
        """Yield the lanes whose offers are open."""


class ClassicalAgenda:
    """By borrow level, priority, time, uid."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, float, str, int, Lane]] = []

    def enter(self, lane: Lane, level: int = 0) -> None:
        """Take up the offer of a lane, if it has one; an earlier offer of it is void."""
        line = lane.first()
        lane.stamp += 1
        if line is not None:
            created, uid = line.order[0]
            heappush(self._heap, (max(level, line.level), -line.sample.priority, created, uid, lane.stamp, lane))

    def pop(self) -> tuple[int, Lane] | None:
        """Return the next lane to look at and the level it was entered with."""
        while self._heap:
            level, _, _, _, stamp, lane = heappop(self._heap)
            if stamp == lane.stamp:
                return level, lane
        return None

    def lanes(self) -> Iterator[Lane]:
        """Yield the lanes whose offers are open."""
        return (lane for *_, stamp, lane in self._heap if stamp == lane.stamp)


Offer = tuple[Line, Decision]


class FairAgenda:
    """By tournament in each tree, one tree after the other."""

    def __init__(self, decide: Callable[[Lane], Decision], usage: Callable[[], Usage]) -> None:
        self._decide, self._usage = decide, usage
        self._lanes: dict[Lane, None] = {}

    def enter(self, lane: Lane, level: int = 0) -> None:
        """Take up the offer of a lane, if it has one."""
        del level
        if lane.first() is not None:
            self._lanes[lane] = None
        else:
            self._lanes.pop(lane, None)

    def pop(self) -> tuple[int, Lane] | None:
        """Return the next lane to look at, with a level that no offer exceeds."""
        for lane in [lane for lane in self._lanes if lane.first() is None]:
            del self._lanes[lane]
        if not self._lanes:
            return None
        first = min(tree_of(lane) for lane in self._lanes)
        offers: list[Offer] = []
        for lane in [lane for lane in self._lanes if tree_of(lane) == first]:
            line, decision = _first(lane), self._decide(lane)
            if not (decision.fits or decision.preempts):
                # What is blocked has no part in the tournament: it steps aside and lets the next of its queue in. In
                # which order does not matter: what it holds back is its own queue's, and whom it lets go is woken.
                del self._lanes[lane]
                return _ANY_LEVEL, lane
            offers.append((line, decision))
        winner = tournament(offers, self._usage())
        del self._lanes[winner.lane]
        return _ANY_LEVEL, winner.lane

    def lanes(self) -> Iterator[Lane]:
        """Yield the lanes whose offers are open."""
        return iter(self._lanes)


_ANY_LEVEL = 1_000_000


def _first(lane: Lane) -> Line:
    line = lane.first()
    assert line is not None
    return line


def tree_of(lane: Lane) -> int:
    """Return which tree a lane belongs to; gangs without queue have one to themselves."""
    return -1 if lane.node is None else lane.node.root.index


def tournament(offers: Iterable[Offer], usage: Usage) -> Line:
    """Return which of the lines that the queues of one tree offer goes next."""
    contenders = [_Contender(line, decision, usage) for line, decision in offers]
    if len(contenders) == 1:
        return contenders[0].line
    root = next((c.node.root for c in contenders if c.node is not None), None)
    best = None if root is None else _best(root, {c.node: c for c in contenders})
    return (best or min(contenders, key=lambda c: c.order)).line


class _Contender:
    """An offer with the shares that each node above it would have if its gang were admitted."""

    def __init__(self, line: Line, decision: Decision, usage: Usage) -> None:
        self.line, self.node = line, line.lane.node
        self.order = line.order_key[1:]
        self.sides: dict[Node, tuple[bool, Share]] = {}
        amounts = decision.assignment.usage
        if self.node is None:
            return
        asked = [key for key, amount in amounts.items() if amount]
        usage.add(self.node, amounts)
        for node in self.node.path():
            self.sides[node] = (not within_own(usage, node, asked), share(usage, node))
        usage.remove(self.node, amounts)


def _best(node: Node, contenders: dict[Node | None, _Contender]) -> _Contender | None:
    if node.is_queue:
        return contenders.get(node)
    found: list[tuple[Node, _Contender]] = []
    for child in node.children:
        winner = _best(child, contenders)
        if winner is not None:
            found.append((child, winner))
    if not found:
        return None
    return min(found, key=lambda pair: (pair[1].sides[pair[0]], pair[1].order))[1]
