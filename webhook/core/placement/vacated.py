"""Whether a gang finds nodes once others are gone: asked while one after the other is taken out, and put back.

What differs is counted node by node, so a question costs what the last of them held, and not all that are out. Where
counts do not decide, for several sets or slices, all pods are placed to know: that is done for so many nodes only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.amounts import Amounts
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.index import Index
from webhook.core.placement.fit import place
from webhook.core.placement.gate import Gate
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked

MOST_PLACED: Final = 50_000
"""So many nodes that others leave are looked at to place pods where counts do not decide, in one search: about a
tenth of a second. One that would need more ends without a result."""


@dataclass(slots=True)
class _Count:
    """How many pods of one set fit, were it alone."""

    index: Index
    gate: Gate
    changed: dict[str, int] = field(default_factory=dict)
    """Node to the pods that it holds now, where it differs."""

    def update(self, node: str, pods: int) -> None:
        before = self.changed.get(node)
        if before is None:
            before = self.index.rooms.get(node, (0, 0))[0]
        self.changed[node] = pods
        self.gate.add(node, pods - before)


class Vacated:
    """The nodes as they would be; the capacity itself is not changed, and must not change meanwhile."""

    def __init__(self, capacity: Capacity, asked: Sequence[Asked]) -> None:
        self.capacity = capacity
        self.asked = [each for each in asked if each.count]
        """The sets that have to find nodes."""
        self._more: dict[str, dict[str, int]] = {}
        """Node to amounts that are free besides."""
        indexes = {each.shape: capacity.index(each.shape) for each in self.asked}
        self._counts = [_Count(indexes[each.shape], Gate(capacity, each, indexes[each.shape])) for each in self.asked]
        alone = self.asked[0] if len(self.asked) == 1 else None
        self._counts_decide = not self.asked or (alone is not None and not alone.slices)
        self._placed = 0
        self.given_up = False
        """It took too many nodes to know: what was found is not to be relied on."""

    def take(self, gangs: Iterable[str]) -> None:
        """Let gangs be gone."""
        self._change(self.capacity.held_by(gangs), 1)

    def give_back(self, gangs: Iterable[str]) -> None:
        """Let gangs be there again."""
        self._change(self.capacity.held_by(gangs), -1)

    def found(self) -> bool:
        """Return whether all pods find nodes now."""
        if any(not each.gate.open for each in self._counts):
            return False
        if self._counts_decide:
            return True
        self._placed += len(self._more)
        if self._placed > MOST_PLACED:
            self.given_up = True
            return False
        return not isinstance(place(self.capacity, self.asked, self._more, thorough=False), Misplaced)

    def _change(self, by: Mapping[str, Amounts], sign: int) -> None:
        for node, amounts in by.items():
            more = self._more.setdefault(node, {})
            for name, amount in amounts.items():
                more[name] = more.get(name, 0) + sign * amount
            for each in self._counts:
                each.update(node, self.capacity.room(each.index, node, more)[0])
