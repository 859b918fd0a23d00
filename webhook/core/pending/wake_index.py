"""What parked lines wait for: an index from what could change to the lines that the change could help.

Three ways to be registered:

- under *wake keys* (``model.wake_keys``): woken by each such change.
- at one *gate*: a key at the node that refused the line. Of all lines at a gate that ask no more than it has room for,
  only the first in order is woken; the next one follows when that one has been decided about. So what is freed is
  offered to as many lines as can use it, not to all that wait. Those of a queue which has another line to be decided
  about first stand back until that is done.
- at *marks*: a key at a cohort that would have to exceed its own quota; the line is woken when it no longer would,
  because the line's place among others may then be a better one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from webhook.core.model.policy import FlavorResource
from webhook.core.model.wake_keys import Freed, WakeKey
from webhook.core.pending.queueing import Lane, Line
from webhook.core.quota.tree import Node

GateOrder = tuple[int, int, float, str]
"""Borrow level, negated priority, time, uid: as a cycle's agenda orders."""


class Need(NamedTuple):
    """An amount of one key that a node would have to have room for."""

    node: Node
    key: FlavorResource
    amount: int


@dataclass(slots=True, eq=False)
class Gate:
    """Lines that one node refused one key, by how much they need of it."""

    node: Node
    key: FlavorResource
    needs: list[int] = field(default_factory=list)
    """Sorted."""
    heaps: dict[int, list[tuple[GateOrder, int, "_Row"]]] = field(default_factory=dict)
    """Need to the first lines of rows in order; entries whose ticket is not the row's ``offered`` are stale."""
    woken: Line | None = None
    """The line that was woken last and is not decided about yet."""


@dataclass(slots=True, eq=False)
class _Row:
    """Lines of one queue at one gate that need the same, and among which usage decay makes no difference."""

    gate: Gate
    amount: int
    heap: list[tuple[tuple[int, float, str], int, Line]] = field(default_factory=list)
    """By negated priority, time, uid: in the order of the queue; entries whose ticket is not current are stale."""
    offered: int = 0
    """Ticket of the line that stands at the gate for the row; 0 while the row stands back."""


@dataclass(slots=True)
class _Stay:
    ticket: int
    wake_on: tuple[WakeKey, ...]
    gate: tuple[Need, GateOrder] | None
    marks: tuple[Need, ...]


class Parking:
    """Index of parked lines by what could help them."""

    def __init__(self) -> None:
        self._at: dict[WakeKey, dict[Line, None]] = {}
        self._stays: dict[Line, _Stay] = {}
        self._tickets = 0
        self.gates: dict[Freed, Gate] = {}
        self._rows: dict[Lane, dict[tuple[object, ...], _Row]] = {}
        """By queue, then gate, need and whatever usage decay goes by."""
        self._back: dict[Lane, dict[_Row, None]] = {}
        """Rows that stand back behind another line of their queue."""
        self._marks: dict[Freed, list[tuple[int, int, Line]]] = {}

    def park(
        self,
        line: Line,
        wake_on: Iterable[WakeKey],
        gate: tuple[Need, GateOrder] | None = None,
        marks: Iterable[Need] = (),
    ) -> None:
        """Register a line at everything that could help it."""
        self.forget(line)
        self._tickets += 1
        ticket = self._tickets
        stay = self._stays[line] = _Stay(ticket, tuple(dict.fromkeys(wake_on)), gate, tuple(marks))
        for key in stay.wake_on:
            self._at.setdefault(key, {})[line] = None
        for mark in stay.marks:
            heappush(self._marks.setdefault(Freed(mark.node.index, mark.key), []), (mark.amount, ticket, line))
        if gate is not None:
            self._stand_at(line, *gate)

    def _stand_at(self, line: Line, need: Need, order: GateOrder) -> None:
        spot = Freed(need.node.index, need.key)
        gate = self.gates.get(spot)
        if gate is None or gate.node is not need.node:
            gate = self.gates[spot] = Gate(need.node, need.key)
        queue, gang = line.lane.queue, line.sample
        local = (gang.namespace, gang.queue) if queue is not None and queue.usage_based_ordering else None
        rows = self._rows.setdefault(line.lane, {})
        row = rows.get((spot, need.amount, local))
        if row is None or row.gate is not gate:
            row = rows[spot, need.amount, local] = _Row(gate, need.amount)
        heappush(row.heap, (order[1:], self._tickets, line))
        if row.heap[0][1] == self._tickets:
            self._offer(row)

    def _first_of(self, row: _Row) -> Line | None:
        while row.heap and self._stale(row.heap[0]):
            heappop(row.heap)
        return row.heap[0][2] if row.heap else None

    def _offer(self, row: _Row) -> None:
        """Let the first line of a row stand at the gate for it."""
        line, gate = self._first_of(row), row.gate
        if line is None:
            row.offered = 0
            return
        stay = self._stays[line]
        if row.offered == stay.ticket:
            return
        assert stay.gate is not None
        row.offered = stay.ticket
        if row.amount not in gate.heaps:
            gate.heaps[row.amount] = []
            insort(gate.needs, row.amount)
        heappush(gate.heaps[row.amount], (stay.gate[1], stay.ticket, row))

    def also_on(self, line: Line, key: WakeKey) -> None:
        """Register a parked line under one more key."""
        stay = self._stays[line]
        if key not in stay.wake_on:
            stay.wake_on += (key,)
            self._at.setdefault(key, {})[line] = None

    def forget(self, line: Line) -> None:
        """Take a line out of the index."""
        stay = self._stays.pop(line, None)
        if stay is None:
            return
        for key in stay.wake_on:
            lines = self._at[key]
            lines.pop(line, None)
            if not lines:
                del self._at[key]

    def helped_by(self, key: WakeKey) -> list[Line]:
        """Return the lines registered under ``key``."""
        return list(self._at.get(key, ()))

    def passed(self, spot: Freed, room: int) -> list[Line]:
        """Return the lines with a mark at ``spot`` of at most ``room``."""
        heap, found = self._marks.get(spot), []
        while heap and (heap[0][0] <= room or self._stale(heap[0])):
            entry = heappop(heap)
            if not self._stale(entry):
                found.append(entry[2])
        if heap is not None and not heap:
            del self._marks[spot]
        return found

    def first(self, gate: Gate, room: int, stands_back: Callable[[Line], bool]) -> Line | None:
        """Return the first line at ``gate`` that needs no more than ``room``; it stays registered.

        Lines of a queue of which one ``stands_back`` do so until ``resume``.
        """
        best: tuple[GateOrder, int, Line] | None = None
        for need in gate.needs[: bisect_right(gate.needs, room)]:
            found = self._first_at(gate.heaps[need], stands_back)
            if not gate.heaps[need]:
                del gate.heaps[need]
                del gate.needs[bisect_left(gate.needs, need)]
            if found is not None and (best is None or found < best):
                best = found
        return None if best is None else best[2]

    def _first_at(
        self, heap: list[tuple[GateOrder, int, _Row]], stands_back: Callable[[Line], bool]
    ) -> tuple[GateOrder, int, Line] | None:
        while heap:
            order, ticket, row = heap[0]
            line = self._first_of(row) if row.offered == ticket else None
            if line is not None and self._stays[line].ticket == ticket:
                if not stands_back(line):
                    return order, ticket, line
                row.offered = 0
                self._back.setdefault(line.lane, {})[row] = None
            heappop(heap)
            if line is not None and row.offered == ticket:
                self._offer(row)
        return None

    def resume(self, lane: Lane) -> Iterator[Gate]:
        """Have no lines of a queue stand back any more, and yield the gates where some did."""
        for row in self._back.pop(lane, ()):
            self._offer(row)
            yield row.gate

    def standing_back(self) -> Iterator[Gate]:
        """Yield the gates where lines stand back."""
        return (row.gate for rows in self._back.values() for row in rows)

    def ahead_of(self, first: Line, room_at: Callable[[Node, FlavorResource], int]) -> Line | None:
        """Return the first line of a queue that goes before ``first`` and has room at its gate."""
        best, place, rows = None, first.order_key, self._rows.get(first.lane, {})
        for name, row in list(rows.items()):
            line = self._first_of(row)
            if line is None:
                del rows[name]
            elif line.order_key < place and row.amount <= room_at(row.gate.node, row.gate.key):
                best, place = line, line.order_key
        return best

    def close(self, lane: Lane) -> None:
        """Forget a queue, of which no line is parked any more."""
        self._rows.pop(lane, None)
        self._back.pop(lane, None)

    def copy(self, lines: Mapping[Line, Line]) -> "Parking":
        """Return an independent index of the copied ``lines``, in which no gate has woken anybody."""
        twin = Parking()
        for line, stay in self._stays.items():
            twin.park(lines[line], stay.wake_on, stay.gate, stay.marks)
        return twin

    def _stale(self, entry: tuple[object, int, Line]) -> bool:
        stay = self._stays.get(entry[2])
        return stay is None or stay.ticket != entry[1]
