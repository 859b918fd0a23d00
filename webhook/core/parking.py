"""What parked lines wait for: an index from what could change to the lines that the change could help.

Three ways to be registered:

- at *points*: woken by any change there. A point is a key at a node of the tree (its usage fell), a namespace (its
  fences gave) or something owed to a hungry gang (it is not any more).
- at one *gate*: a key at the node that refused the line. Of all lines at a gate that ask no more than it has room for,
  only the first in order is woken; the next one follows when that one has been decided about. So what is freed is
  offered to as many lines as can use it, not to all that wait.
- at *marks*: a key at a cohort that would have to exceed its own quota; the line is woken when it no longer would,
  because the line's place among others may then be a better one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from webhook.core.policy import FlavorResource
from webhook.core.queueing import Line, LineKey
from webhook.core.quota_tree import Node

Spot = tuple[int, FlavorResource]
"""(index of a node, key)."""


class Owed(NamedTuple):
    """What a hungry gang lacks, as plain data: a copy of the engine knows it by the same name."""

    queue: str
    line: LineKey
    cohort: int
    """Index of the cohort below which its side of the tree is compared with another."""
    key: FlavorResource


Point = Spot | str | Owed
"""A key at a node whose usage would have to fall, a namespace whose fences would have to give, or a hunger that would
have to end."""
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
    heaps: dict[int, list[tuple[GateOrder, int, Line]]] = field(default_factory=dict)
    """Need to lines in order; entries whose ticket is not current are stale."""
    woken: Line | None = None
    """The line that was woken last and is not decided about yet."""


@dataclass(slots=True)
class _Stay:
    ticket: int
    points: tuple[Point, ...]
    gate: tuple[Need, GateOrder] | None
    marks: tuple[Need, ...]


class Parking:
    """Index of parked lines by what could help them."""

    def __init__(self) -> None:
        self._at: dict[Point, dict[Line, None]] = {}
        self._stays: dict[Line, _Stay] = {}
        self._tickets = 0
        self.gates: dict[Spot, Gate] = {}
        self._marks: dict[Spot, list[tuple[int, int, Line]]] = {}

    def park(
        self,
        line: Line,
        points: Iterable[Point],
        gate: tuple[Need, GateOrder] | None = None,
        marks: Iterable[Need] = (),
    ) -> None:
        """Register a line at everything that could help it."""
        self.forget(line)
        self._tickets += 1
        ticket = self._tickets
        stay = self._stays[line] = _Stay(ticket, tuple(dict.fromkeys(points)), gate, tuple(marks))
        for point in stay.points:
            self._at.setdefault(point, {})[line] = None
        for mark in stay.marks:
            heappush(self._marks.setdefault((mark.node.index, mark.key), []), (mark.amount, ticket, line))
        if gate is not None:
            need, order = gate
            spot = (need.node.index, need.key)
            found = self.gates.get(spot)
            if found is None or found.node is not need.node:
                found = self.gates[spot] = Gate(need.node, need.key)
            heap = found.heaps.get(need.amount)
            if heap is None:
                heap = found.heaps[need.amount] = []
                insort(found.needs, need.amount)
            heappush(heap, (order, ticket, line))

    def add_point(self, line: Line, point: Point) -> None:
        """Register a parked line at one more point."""
        stay = self._stays[line]
        if point not in stay.points:
            stay.points += (point,)
            self._at.setdefault(point, {})[line] = None

    def forget(self, line: Line) -> None:
        """Take a line out of the index."""
        stay = self._stays.pop(line, None)
        if stay is None:
            return
        for point in stay.points:
            lines = self._at[point]
            lines.pop(line, None)
            if not lines:
                del self._at[point]

    def need_of(self, line: Line) -> Need | None:
        """Return what a line waits for at its gate, if it waits at one."""
        stay = self._stays.get(line)
        return None if stay is None or stay.gate is None else stay.gate[0]

    def helped_by(self, point: Point) -> list[Line]:
        """Return the lines registered at ``point``."""
        return list(self._at.get(point, ()))

    def passed(self, spot: Spot, room: int) -> list[Line]:
        """Return the lines with a mark at ``spot`` of at most ``room``."""
        heap, found = self._marks.get(spot), []
        while heap and (heap[0][0] <= room or self._stale(heap[0])):
            entry = heappop(heap)
            if not self._stale(entry):
                found.append(entry[2])
        if heap is not None and not heap:
            del self._marks[spot]
        return found

    def first(self, gate: Gate, room: int) -> Line | None:
        """Return the first line at ``gate`` that needs no more than ``room``; it stays registered."""
        best: tuple[GateOrder, int, Line] | None = None
        for need in gate.needs[: bisect_right(gate.needs, room)]:
            heap = gate.heaps[need]
            while heap and self._stale(heap[0]):
                heappop(heap)
            if not heap:
                del gate.heaps[need]
                del gate.needs[bisect_left(gate.needs, need)]
            elif best is None or heap[0] < best:
                best = heap[0]
        spot = (gate.node.index, gate.key)
        if not gate.needs and self.gates.get(spot) is gate:
            del self.gates[spot]
        return None if best is None else best[2]

    def copy(self, lines: Mapping[Line, Line]) -> "Parking":
        """Return an independent index of the copied ``lines``, in which no gate has woken anybody."""
        twin = Parking()
        for line, stay in self._stays.items():
            twin.park(lines[line], stay.points, stay.gate, stay.marks)
        return twin

    def _stale(self, entry: tuple[object, int, Line]) -> bool:
        stay = self._stays.get(entry[2])
        return stay is None or stay.ticket != entry[1]
