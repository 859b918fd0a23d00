"""What unschedulable classes wait for: an index from what could change to the classes that the change could help.

Three ways to be registered:

- under *wake keys* (``core.reasons.wake_keys``): woken by each such change.
- at one *bottleneck*: a key at the vertex that refused the class. Of all classes there that ask no more than it has
  room for, only the first in order is woken; the next one follows when that one has been decided about. So what is
  freed goes to as many classes as can use it, not to all that wait. Those of a queue which has another class to
  be decided about first stand back until that is done.
- at *marks*: a key at a cohort that would have to exceed its own quota; the class is woken when it no longer would,
  because the class's place among others may then be a better one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, TypeVar

from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.quota.tree import Vertex
from webhook.core.reasons.wake_keys import Freed, WakeKey

BottleneckOrder = tuple[int, int, float, str]
"""Borrow level, negated priority, time, uid: as a cycle's entry order orders."""


SPARE: Final = 16
"""Entries of a heap that may be stale, however few live ones there are."""
T = TypeVar("T", bound=tuple[Any, ...])


class Need(NamedTuple):
    """An amount of one key that a vertex would have to have room for."""

    vertex: Vertex
    key: FlavorResource
    amount: int


@dataclass(slots=True, eq=False)
class Bottleneck:
    """Classes that one vertex refused one key, by how much they need of it."""

    vertex: Vertex
    key: FlavorResource
    needs: list[int] = field(default_factory=list)
    """Sorted."""
    heaps: dict[int, list[tuple[BottleneckOrder, int, "_Row"]]] = field(default_factory=dict)
    """Need to the first classes of rows in order; entries whose ticket is not the row's ``standing`` are stale."""
    woken: EquivalenceClass | None = None
    """The class that was woken last and is not decided about yet."""


@dataclass(slots=True, eq=False)
class _Row:
    """Classes of one queue at one bottleneck that need the same, and among which usage decay makes no difference."""

    bottleneck: Bottleneck
    amount: int
    heap: list[tuple[tuple[int, float, str], int, EquivalenceClass]] = field(default_factory=list)
    """By negated priority, time, uid: in the order of the queue; entries whose ticket is not current are stale."""
    standing: int = 0
    """Ticket of the class that stands at the bottleneck for the row; 0 while the row stands back."""


@dataclass(slots=True)
class _Stay:
    ticket: int
    wake_on: tuple[WakeKey, ...]
    bottleneck: tuple[Need, BottleneckOrder] | None
    marks: tuple[Need, ...]


class WakeIndex:
    """Index of unschedulable classes by what could help them."""

    def __init__(self) -> None:
        self._at: dict[WakeKey, dict[EquivalenceClass, None]] = {}
        self._stays: dict[EquivalenceClass, _Stay] = {}
        self._tickets = 0
        self.bottlenecks: dict[Freed, Bottleneck] = {}
        self._rows: dict[PendingQueue, dict[tuple[object, ...], _Row]] = {}
        """By queue, then bottleneck, need and whatever usage decay goes by."""
        self._back: dict[PendingQueue, dict[_Row, None]] = {}
        """Rows that stand back behind another class of their queue."""
        self._marks: dict[Freed, list[tuple[int, int, EquivalenceClass]]] = {}

    def mark_unschedulable(
        self,
        eclass: EquivalenceClass,
        wake_on: Iterable[WakeKey],
        bottleneck: tuple[Need, BottleneckOrder] | None = None,
        marks: Iterable[Need] = (),
    ) -> None:
        """Register a class at everything that could help it."""
        self.forget(eclass)
        self._tickets += 1
        ticket = self._tickets
        stay = self._stays[eclass] = _Stay(ticket, tuple(dict.fromkeys(wake_on)), bottleneck, tuple(marks))
        for key in stay.wake_on:
            self._at.setdefault(key, {})[eclass] = None
        for mark in stay.marks:
            heap = self._marks.setdefault(Freed(mark.vertex.index, mark.key), [])
            self._push(heap, (mark.amount, ticket, eclass), self._stale)
        if bottleneck is not None:
            self._stand_at(eclass, *bottleneck)

    def _stand_at(self, eclass: EquivalenceClass, need: Need, order: BottleneckOrder) -> None:
        spot = Freed(need.vertex.index, need.key)
        bottleneck = self.bottlenecks.get(spot)
        if bottleneck is None or bottleneck.vertex is not need.vertex:
            bottleneck = self.bottlenecks[spot] = Bottleneck(need.vertex, need.key)
        queue, gang = eclass.queue.spec, eclass.sample
        local = (gang.namespace, gang.queue) if queue is not None and queue.usage_based_ordering else None
        rows = self._rows.setdefault(eclass.queue, {})
        row = rows.get((spot, need.amount, local))
        if row is None or row.bottleneck is not bottleneck:
            row = rows[spot, need.amount, local] = _Row(bottleneck, need.amount)
        self._push(row.heap, (order[1:], self._tickets, eclass), self._stale)
        if row.heap[0][1] == self._tickets:
            self._put_up(row)

    def _first_of(self, row: _Row) -> EquivalenceClass | None:
        while row.heap and self._stale(row.heap[0]):
            heappop(row.heap)
        return row.heap[0][2] if row.heap else None

    def _put_up(self, row: _Row) -> None:
        """Let the first class of a row stand at the bottleneck for it."""
        eclass, bottleneck = self._first_of(row), row.bottleneck
        if eclass is None:
            row.standing = 0
            return
        stay = self._stays[eclass]
        if row.standing == stay.ticket:
            return
        assert stay.bottleneck is not None
        row.standing = stay.ticket
        if row.amount not in bottleneck.heaps:
            bottleneck.heaps[row.amount] = []
            insort(bottleneck.needs, row.amount)
        standing = (stay.bottleneck[1], stay.ticket, row)
        self._push(bottleneck.heaps[row.amount], standing, lambda entry: entry[2].standing != entry[1])

    def also_on(self, eclass: EquivalenceClass, key: WakeKey) -> None:
        """Register an unschedulable class under one more key."""
        stay = self._stays[eclass]
        if key not in stay.wake_on:
            stay.wake_on += (key,)
            self._at.setdefault(key, {})[eclass] = None

    def forget(self, eclass: EquivalenceClass) -> None:
        """Take a class out of the index."""
        stay = self._stays.pop(eclass, None)
        if stay is None:
            return
        for key in stay.wake_on:
            eclasses = self._at[key]
            eclasses.pop(eclass, None)
            if not eclasses:
                del self._at[key]

    def helped_by(self, key: WakeKey) -> list[EquivalenceClass]:
        """Return the classes registered under ``key``."""
        return list(self._at.get(key, ()))

    def passed(self, spot: Freed, room: int) -> list[EquivalenceClass]:
        """Return the classes with a mark at ``spot`` of at most ``room``."""
        heap, found = self._marks.get(spot), []
        while heap and (heap[0][0] <= room or self._stale(heap[0])):
            entry = heappop(heap)
            if not self._stale(entry):
                found.append(entry[2])
        if heap is not None and not heap:
            del self._marks[spot]
        return found

    def first(
        self, bottleneck: Bottleneck, room: int, stands_back: Callable[[EquivalenceClass], bool]
    ) -> EquivalenceClass | None:
        """Return the first class at ``bottleneck`` that needs no more than ``room``; it stays registered.

        Classes of a queue of which one ``stands_back`` do so until ``resume``.
        """
        best: tuple[BottleneckOrder, int, EquivalenceClass] | None = None
        for need in bottleneck.needs[: bisect_right(bottleneck.needs, room)]:
            found = self._first_at(bottleneck.heaps[need], stands_back)
            if not bottleneck.heaps[need]:
                del bottleneck.heaps[need]
                del bottleneck.needs[bisect_left(bottleneck.needs, need)]
            if found is not None and (best is None or found < best):
                best = found
        return None if best is None else best[2]

    def _first_at(
        self, heap: list[tuple[BottleneckOrder, int, _Row]], stands_back: Callable[[EquivalenceClass], bool]
    ) -> tuple[BottleneckOrder, int, EquivalenceClass] | None:
        while heap:
            order, ticket, row = heap[0]
            eclass = self._first_of(row) if row.standing == ticket else None
            if eclass is not None and self._stays[eclass].ticket == ticket:
                if not stands_back(eclass):
                    return order, ticket, eclass
                row.standing = 0
                self._back.setdefault(eclass.queue, {})[row] = None
            heappop(heap)
            if eclass is not None and row.standing == ticket:
                self._put_up(row)
        return None

    def resume(self, queue: PendingQueue) -> Iterator[Bottleneck]:
        """Have no classes of a queue stand back any more, and yield the bottlenecks where some did."""
        for row in self._back.pop(queue, ()):
            self._put_up(row)
            yield row.bottleneck

    def standing_back(self) -> Iterator[Bottleneck]:
        """Yield the bottlenecks where classes stand back."""
        return (row.bottleneck for rows in self._back.values() for row in rows)

    def ahead_of(
        self, first: EquivalenceClass, room_at: Callable[[Vertex, FlavorResource], int]
    ) -> EquivalenceClass | None:
        """Return the first class of a queue that goes before ``first`` and has room at its bottleneck."""
        best, place, rows = None, first.order_key, self._rows.get(first.queue, {})
        for name, row in list(rows.items()):
            eclass = self._first_of(row)
            if eclass is None:
                del rows[name]
            elif eclass.order_key < place and row.amount <= room_at(row.bottleneck.vertex, row.bottleneck.key):
                best, place = eclass, eclass.order_key
        return best

    def close(self, queue: PendingQueue) -> None:
        """Forget a queue, of which no class is unschedulable any more."""
        self._rows.pop(queue, None)
        self._back.pop(queue, None)

    def copy(self, eclasses: Mapping[EquivalenceClass, EquivalenceClass]) -> "WakeIndex":
        """Return an independent index of the copied ``eclasses``, in which no bottleneck has woken anybody."""
        twin = WakeIndex()
        for eclass, stay in self._stays.items():
            twin.mark_unschedulable(eclasses[eclass], stay.wake_on, stay.bottleneck, stay.marks)
        return twin

    def _push(self, heap: list[T], entry: T, is_stale: Callable[[T], bool]) -> None:
        """Put an entry on a heap. Stale ones go from its top alone, so where most are stale all of these go now."""
        heappush(heap, entry)
        if len(heap) > 2 * len(self._stays) + SPARE:
            heap[:] = [each for each in heap if not is_stale(each)]
            heapify(heap)

    def _stale(self, entry: tuple[object, int, EquivalenceClass]) -> bool:
        stay = self._stays.get(entry[2])
        return stay is None or stay.ticket != entry[1]
