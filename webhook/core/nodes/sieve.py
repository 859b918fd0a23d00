"""What keeps the pods of a shape away from all nodes at once: the same as each node says by itself (``Shape.why_not``).

It costs little more than one look at each node, whatever a pod template names: terms, requirements and values are sets
of nodes (``bearers``), and tolerations are compared with the few different states of nodes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import or_

from webhook.core.model.gang import Requirement
from webhook.core.model.policy import whole_number
from webhook.core.nodes.bearers import Bearers, Rows, in_order
from webhook.core.nodes.shape import OUTSIDE_AFFINITY, Shape, unlabelled, why_not_in
from webhook.core.nodes.tolerated import Tolerated
from webhook.core.notation.names import NODE_NAME


def sifted(shape: Shape, there: Bearers) -> list[str | None]:
    """Return by row what keeps the pods away, in a few words; None where nothing does."""
    whys: list[str | None] = [None] * len(there.nodes)
    left = there.all
    for rows, why in _kept_out(shape, there):
        if left & rows:
            _write(whys, left & rows, why)
            left &= ~rows
        if not left:
            break
    return whys


def _kept_out(shape: Shape, there: Bearers) -> Iterator[tuple[Rows, str]]:
    """Yield who keeps the pods out, and why: of all that holds for a node the first is said."""
    tolerated, meant = Tolerated(shape.tolerations), _Meant(there)
    for state, rows in there.states.items():
        why = why_not_in(*state, tolerated.bear)
        if why is not None:
            yield rows, why
    for key, value in shape.selector:
        yield there.all & ~there.by_value(key).get(value, 0), unlabelled(f"{key}={value}")
    if shape.affinity:
        yield there.all & ~meant.by(shape.affinity), OUTSIDE_AFFINITY
    for level in shape.levels:
        yield there.all & ~meant.bearing(level), unlabelled(level)


def _write(whys: list[str | None], rows: Rows, why: str) -> None:
    for row, bit in enumerate(reversed(f"{rows:b}")):
        if bit == "1":
            whys[row] = why


@dataclass(slots=True)
class _Ordered:
    """Who bears a label whose value is a whole number."""

    numbers: list[int]
    """In order."""
    before: list[Rows]
    """Who has a number that stands before the first, the second, …, and all who have any."""


@dataclass(slots=True)
class _Meant:
    """Which nodes node affinity means; what many of its requirements ask is worked out once."""

    _there: Bearers
    _all: Rows = field(init=False)
    _names: Mapping[str, Rows] | None = None
    _bearing: dict[str, Rows] = field(default_factory=dict)
    _ordered: dict[str, _Ordered] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._all = self._there.all

    def by(self, terms: tuple[tuple[Requirement, ...], ...]) -> Rows:
        """Return which nodes any of ``terms`` means."""
        found = 0
        for term in terms:
            rows = self._all
            for requirement in term:
                rows &= self._meeting(requirement)
                if not rows:
                    break
            found |= rows
        return found

    def bearing(self, key: str) -> Rows:
        """Return who bears a label at all."""
        if key not in self._bearing:
            rows = 0
            for each in self._by_value(key).values():
                rows |= each
            self._bearing[key] = rows
        return self._bearing[key]

    def _meeting(self, requirement: Requirement) -> Rows:
        """Return which nodes meet one requirement, as ``requirement_holds`` says of each."""
        match requirement.operator:
            case "In":
                return self._listed(requirement)
            case "NotIn":
                return self._all & ~self._listed(requirement)
            case "Exists":
                return self.bearing(requirement.key)
            case "DoesNotExist":
                return self._all & ~self.bearing(requirement.key)
            case "Gt" | "Lt" if len(requirement.values) == 1:
                return self._beyond(requirement)
        return 0

    def _listed(self, requirement: Requirement) -> Rows:
        rows, by_value = 0, self._by_value(requirement.key)
        for value in requirement.values if by_value else ():
            rows |= by_value.get(value, 0)
        return rows

    def _beyond(self, requirement: Requirement) -> Rows:
        number, ordered = whole_number(requirement.values[0]), self._in_order(requirement.key)
        if number is None:
            return 0
        if requirement.operator == "Lt":
            return ordered.before[bisect_left(ordered.numbers, number)]
        return ordered.before[-1] & ~ordered.before[bisect_right(ordered.numbers, number)]

    def _in_order(self, key: str) -> _Ordered:
        if key not in self._ordered:
            found = in_order(self._by_value(key)) if key == NODE_NAME else self._there.by_number(key)
            sums = accumulate((rows for _, rows in found), or_, initial=0)
            self._ordered[key] = _Ordered([number for number, _ in found], list(sums))
        return self._ordered[key]

    def _by_value(self, key: str) -> Mapping[str, Rows]:
        if key != NODE_NAME:
            return self._there.by_value(key)
        if self._names is None:
            self._names = self._there.by_name()
        return self._names
