"""Which nodes bear which label: a question about one is answered for thousands of nodes at once.

A set of nodes is a whole number here: its bits are rows (``columns``). What two sets have in common, or have together,
takes as long as reading a few hundred bytes, so it matters little how many labels a pod template names.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from webhook.core.model.policy import Taint, whole_number
from webhook.core.nodes.node import NodeRecord

Rows = int
"""A set of nodes."""

State = tuple[bool, bool, tuple[Taint, ...]]
"""What a node is, whatever its labels say: ready, cordoned, and its taints."""


@dataclass(slots=True)
class Bearers:
    """All nodes that are known, by what they bear."""

    nodes: list[NodeRecord] = field(default_factory=list)
    """By row."""
    states: dict[State, Rows] = field(default_factory=dict)
    """Clusters have few of them."""
    _borne: Counter[str] = field(default_factory=Counter)
    """How many nodes bear a label."""
    _of: dict[str, dict[str, Rows]] = field(default_factory=dict)
    """Labels that were asked about to their values, and the nodes with these. Only such as some node bears: those that
    pod templates make up would fill it."""
    _numbers: dict[str, list[tuple[int, Rows]]] = field(default_factory=dict)
    """Those that were asked about to the whole numbers among their values, in order."""

    @property
    def all(self) -> Rows:
        """Every node."""
        return (1 << len(self.nodes)) - 1

    def put(self, row: int, node: NodeRecord) -> bool:
        """Take note of a node that is new, or of another record of it; return whether it is another to any shape."""
        if row == len(self.nodes):
            self.nodes.append(node)
            self._add(row)
            return True
        before = self.nodes[row]
        if before.labels == node.labels and _state(before) == _state(node):
            self.nodes[row] = node
            return False
        self._remove(row)
        self.nodes[row] = node
        self._add(row)
        return True

    def drop(self, row: int) -> None:
        """Forget a node: the last row takes its place."""
        last = len(self.nodes) - 1
        self._remove(last)
        moved = self.nodes.pop()
        if row < last:
            # The last one is not noted any more, so what stands in the row is.
            self._remove(row)
            self.nodes[row] = moved
            self._add(row)

    def by_value(self, key: str) -> Mapping[str, Rows]:
        """Return who bears a label, by its values."""
        if key not in self._borne:
            return {}
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = {}
            for row, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    found[value] = found.get(value, 0) | 1 << row
        return found

    def by_number(self, key: str) -> list[tuple[int, Rows]]:
        """Return who bears a label, by those of its values that are whole numbers, in order."""
        found = self._numbers.get(key)
        if found is None:
            found = in_order(self.by_value(key))
            if key in self._borne:
                self._numbers[key] = found
        return found

    def by_name(self) -> Mapping[str, Rows]:
        """Return the nodes by their names."""
        return {node.name: 1 << row for row, node in enumerate(self.nodes)}

    def copy(self) -> "Bearers":
        """Return an independent copy; who bears a label is read again when it is asked for."""
        return Bearers(list(self.nodes), dict(self.states), self._borne.copy())

    def _add(self, row: int) -> None:
        node, bit = self.nodes[row], 1 << row
        state = _state(node)
        self.states[state] = self.states.get(state, 0) | bit
        self._borne.update(node.labels.keys())
        for key, of in self._of.items():
            value = node.labels.get(key)
            if value is not None:
                of[value] = of.get(value, 0) | bit
                self._numbers.pop(key, None)

    def _remove(self, row: int) -> None:
        node, bit = self.nodes[row], 1 << row
        _take(self.states, _state(node), bit)
        for key, value in node.labels.items():
            self._borne[key] -= 1
            if key in self._of:
                _take(self._of[key], value, bit)
                self._numbers.pop(key, None)
            if not self._borne[key]:
                del self._borne[key]
                self._of.pop(key, None)


def in_order(by_value: Mapping[str, Rows]) -> list[tuple[int, Rows]]:
    """Return those values that are whole numbers, in order."""
    read = ((whole_number(value), rows) for value, rows in by_value.items())
    return sorted((number, rows) for number, rows in read if number is not None)


def _state(node: NodeRecord) -> State:
    return node.ready, node.cordoned, node.taints


_Key = TypeVar("_Key")


def _take(of: dict[_Key, Rows], key: _Key, bit: Rows) -> None:
    of[key] ^= bit
    if not of[key]:
        del of[key]
