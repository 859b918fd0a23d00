"""In which order a cycle looks at queues: each nominates one class, and the best nominee goes next.

``ClassicalQueueOrder``: lowest borrow level, then priority, time, uid. Levels only rise while a cycle admits, so a
nominee is entered with a lower bound and entered again when its level turns out higher. ``FairQueueOrder``: Kueue's
tournament. At each cohort the children's best nominees meet: one whose side would not borrow wins, then the one whose
side would have the lower share with its gang, then priority, time, uid.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.fair_sharing import Share, share
from webhook.core.assignment.preemption import within_nominal
from webhook.core.pending.keyed_heap import KeyedHeap
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.quota.tree import Usage, Vertex


class QueueOrder(Protocol):
    """Nominees of a cycle in progress."""

    def enter(self, queue: PendingQueue, eclass: EquivalenceClass | None, level: int = 0) -> None:
        """Take up what a queue nominates, if anything, in place of an earlier nominee."""

    def pop(self) -> tuple[int, PendingQueue] | None:
        """Return the next queue to look at and the level it was entered with."""

    def queues(self) -> Iterator[PendingQueue]:
        """Yield the queues whose nominees are open."""


class ClassicalQueueOrder:
    """By borrow level, priority, time, uid."""

    def __init__(self) -> None:
        self._nominees: KeyedHeap[PendingQueue] = KeyedHeap()

    def enter(self, queue: PendingQueue, eclass: EquivalenceClass | None, level: int = 0) -> None:
        """Take up what a queue nominates, if anything, in place of an earlier nominee."""
        if eclass is None:
            self._nominees.discard(queue)
        else:
            self._nominees.push((max(level, eclass.level), -eclass.sample.priority, *eclass.order[0]), queue)

    def pop(self) -> tuple[int, PendingQueue] | None:
        """Return the next queue to look at and the level it was entered with."""
        first = self._nominees.pop()
        return None if first is None else (first[0][0], first[1])

    def queues(self) -> Iterator[PendingQueue]:
        """Yield the queues whose nominees are open."""
        return iter(self._nominees)


Nominee = tuple[EquivalenceClass, Decision]


class FairQueueOrder:
    """By tournament in each tree, one tree after the other."""

    def __init__(self, decide: Callable[[PendingQueue], Decision], usage: Callable[[], Usage]) -> None:
        self._decide, self._usage = decide, usage
        self._queues: dict[PendingQueue, None] = {}

    def enter(self, queue: PendingQueue, eclass: EquivalenceClass | None, level: int = 0) -> None:
        """Take up what a queue nominates, if anything."""
        del level
        if eclass is not None:
            self._queues[queue] = None
        else:
            self._queues.pop(queue, None)

    def pop(self) -> tuple[int, PendingQueue] | None:
        """Return the next queue to look at, with a level that no nominee exceeds."""
        for queue in [queue for queue in self._queues if queue.first() is None]:
            del self._queues[queue]
        if not self._queues:
            return None
        first = min(tree_of(queue) for queue in self._queues)
        nominees: list[Nominee] = []
        for queue in [queue for queue in self._queues if tree_of(queue) == first]:
            eclass, decision = _first(queue), self._decide(queue)
            if not (decision.fits or decision.preempts):
                # What is blocked has no part in the tournament: it steps aside and lets the next of its queue in. In
                # which order does not matter: what it holds back is its own queue's, and what it lets go is woken.
                del self._queues[queue]
                return _ANY_LEVEL, queue
            nominees.append((eclass, decision))
        winner = tournament(nominees, self._usage())
        del self._queues[winner.queue]
        return _ANY_LEVEL, winner.queue

    def queues(self) -> Iterator[PendingQueue]:
        """Yield the queues whose nominees are open."""
        return iter(self._queues)


_ANY_LEVEL = 1_000_000


def _first(queue: PendingQueue) -> EquivalenceClass:
    eclass = queue.first()
    assert eclass is not None
    return eclass


def tree_of(queue: PendingQueue) -> int:
    """Return which tree a queue belongs to; gangs without queue have one to themselves."""
    return -1 if queue.vertex is None else queue.vertex.root.index


def tournament(nominees: Iterable[Nominee], usage: Usage) -> EquivalenceClass:
    """Return which of the classes that the queues of one tree nominate goes next."""
    contenders = [_Contender(eclass, decision, usage) for eclass, decision in nominees]
    if len(contenders) == 1:
        return contenders[0].eclass
    root = next((c.vertex.root for c in contenders if c.vertex is not None), None)
    best = None if root is None else _best(root, {c.vertex: c for c in contenders})
    return (best or min(contenders, key=lambda c: c.order)).eclass


class _Contender:
    """A nominee with the shares that each vertex above it would have if its gang were admitted."""

    def __init__(self, eclass: EquivalenceClass, decision: Decision, usage: Usage) -> None:
        self.eclass, self.vertex = eclass, eclass.queue.vertex
        self.order = eclass.order_key[1:]
        self.sides: dict[Vertex, tuple[bool, Share]] = {}
        amounts = decision.assignment.usage
        if self.vertex is None:
            return
        asked = [key for key, amount in amounts.items() if amount]
        usage.add(self.vertex, amounts)
        for vertex in self.vertex.path():
            self.sides[vertex] = (not within_nominal(usage, vertex, asked), share(usage, vertex))
        usage.remove(self.vertex, amounts)


def _best(vertex: Vertex, contenders: dict[Vertex | None, _Contender]) -> _Contender | None:
    if vertex.is_queue:
        return contenders.get(vertex)
    found: list[tuple[Vertex, _Contender]] = []
    for child in vertex.children:
        winner = _best(child, contenders)
        if winner is not None:
            found.append((child, winner))
    if not found:
        return None
    return min(found, key=lambda pair: (pair[1].sides[pair[0]], pair[1].order))[1]
