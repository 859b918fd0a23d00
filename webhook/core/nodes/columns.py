"""What is free, resource by resource: ten thousand nodes are read in a row, many times faster than one by one.

A row is a node, in any order. Beside the amounts stands what keeps the pods of which shapes away from each row's node,
found for all nodes at once (``sieve``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from webhook.core.nodes.bearers import Bearers
from webhook.core.nodes.changes import Changes
from webhook.core.nodes.domains import keep_last
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.sieve import sifted
from webhook.core.notation.quantity import MILLI

VERDICTS_MAX: Final = 256
"""Shapes, but for what they request, of which is known which nodes they may use; the one asked for longest ago goes."""

Asks = tuple[str, int, list[int]]
"""A resource or port, what one pod asks of it, and what is free of it by row."""


@dataclass(slots=True)
class _Verdict:
    """What keeps the pods of one kind of shapes away for good."""

    whys: list[str | None]
    """By row; None where they may go."""
    seen: int
    """How many changes of nodes are in it."""


@dataclass(slots=True)
class Columns:
    """All nodes that are known."""

    names: list[str] = field(default_factory=list)
    """By row."""
    row: dict[str, int] = field(default_factory=dict)
    """Node to its row."""
    _free: dict[str, list[int]] = field(default_factory=dict)
    """Resource to what is free, by row."""
    _bearers: Bearers = field(default_factory=Bearers)
    """Their records."""
    _changes: Changes = field(default_factory=Changes)
    """Of what nodes say to shapes."""
    _verdicts: dict[Shape, _Verdict] = field(default_factory=dict)
    """By shape, but for what it requests."""

    def put(self, node: NodeRecord, free: Mapping[str, Mapping[str, int]]) -> None:
        """Take note of a node that is new, or of another record of it; ``free`` is what every node has."""
        row = self.row.setdefault(node.name, len(self.names))
        self.names[row : row + 1] = [node.name]
        if self._bearers.put(row, node):
            self._changes.note((node.name,), len(self.names))
        for name, column in self._free.items():
            column[row : row + 1] = [free.get(node.name, {}).get(name, 0)]
        for verdict in self._verdicts.values():
            if row == len(verdict.whys):
                # What it says is asked together with that of others that change, by who wants to know it.
                verdict.whys.append(None)
        for name in node.capacity:
            if name not in self._free:
                self._free[name] = [free.get(each, {}).get(name, 0) for each in self.names]

    def drop(self, node: str) -> None:
        """Forget a node: the last row takes its place."""
        row, last = self.row.pop(node), self.names[-1]
        if last != node:
            self.row[last] = row
        _move_last(self.names, row)
        self._bearers.drop(row)
        for column in self._free.values():
            _move_last(column, row)
        for verdict in self._verdicts.values():
            _move_last(verdict.whys, row)

    def set(self, node: str, name: str, amount: int) -> None:
        """Take note of what is free of a resource on a node, if that is known."""
        column, row = self._free.get(name), self.row.get(node)
        if column is not None and row is not None:
            column[row] = amount

    def any_bears(self, labels: Mapping[str, str]) -> bool:
        """Return whether any node bears all of ``labels``, whatever its state."""
        rows = self._bearers.all
        for key, value in labels.items():
            rows &= self._bearers.by_value(key).get(value, 0)
            if not rows:
                break
        return bool(rows)

    def asked(self, shape: Shape, free: Mapping[str, Mapping[str, int]]) -> list[Asks]:
        """Return what is free of all that a pod of ``shape`` takes: of each port, one pod's where nobody uses it."""
        nothing = [0] * len(self.names) if any(name not in self._free for name, _ in shape.requests) else []
        found = [(name, amount, self._free.get(name, nothing)) for name, amount in shape.requests]
        by_row = [free[node] for node in self.names] if shape.ports else []
        ports = [(port, MILLI, [MILLI + each.get(port, 0) for each in by_row]) for port in shape.ports]
        return found + ports

    def verdict(self, shape: Shape) -> Sequence[str | None]:
        """Return by row what keeps the pods of a shape away for good, in a few words; None where nothing does."""
        known = self._verdicts.pop(shape.kind, None)
        if known is None:
            known = _Verdict(sifted(shape, self._bearers), self._changes.count)
        elif known.seen != self._changes.count:
            self._catch_up(shape, known)
        keep_last(self._verdicts, shape.kind, known, VERDICTS_MAX)
        return known.whys

    def admits(self, shape: Shape, node: str) -> bool:
        """Return whether pods of a shape may go to a node that is known, whatever is free there."""
        row = self.row[node]
        return shape.admits(self._bearers.nodes[row]) if shape.is_plain else self.verdict(shape)[row] is None

    def _catch_up(self, shape: Shape, known: _Verdict) -> None:
        """Ask those nodes that have changed, or all at once where that is less work."""
        changed = self._changes.since(known.seen)
        names = None if changed is None else [name for name in changed if name in self.row]
        known.seen, parts = self._changes.count, shape.parts
        if names is None or len(names) * (1 + parts) > len(self.names) + parts:
            known.whys[:] = sifted(shape, self._bearers)
            return
        for row in map(self.row.__getitem__, names):
            known.whys[row] = shape.why_not(self._bearers.nodes[row])

    def copy(self) -> "Columns":
        """Return an independent copy; what nodes say to shapes is read again when it is asked for."""
        free = {name: list(column) for name, column in self._free.items()}
        return Columns(list(self.names), dict(self.row), free, self._bearers.copy())


_Cell = TypeVar("_Cell")


def _move_last(column: list[_Cell], row: int) -> None:
    last = column.pop()
    if row < len(column):
        column[row] = last
