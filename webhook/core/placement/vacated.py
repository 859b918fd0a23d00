"""Whether a gang finds nodes once others are gone: asked while one after the other is taken out, and put back.

What differs is counted node by node, so a question costs what the last of them held, and not all that are out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.core.model.amounts import Amounts
from webhook.core.placement.capacity import Capacity
from webhook.core.placement.fit import place
from webhook.core.placement.index import Index
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked


@dataclass(slots=True)
class _Count:
    """How many pods of one set fit, were it alone."""

    asked: Asked
    index: Index
    total: int
    changed: dict[str, int] = field(default_factory=dict)
    """Node to the pods that it holds now, where it differs."""

    def update(self, node: str, pods: int) -> None:
        self.total += pods - self.changed.get(node, self.index.rooms.get(node, (0, 0))[0])
        self.changed[node] = pods


class Vacated:
    """The nodes as they would be; the capacity itself is not changed, and must not change meanwhile."""

    def __init__(self, capacity: Capacity, asked: Sequence[Asked]) -> None:
        self._capacity = capacity
        self._asked = [each for each in asked if each.count]
        self._more: dict[str, dict[str, int]] = {}
        """Node to amounts that are free besides."""
        indexes = {each.shape: capacity.index(each.shape) for each in self._asked}
        self._counts = [_Count(each, indexes[each.shape], indexes[each.shape].total) for each in self._asked]

    def take(self, gangs: Iterable[str]) -> None:
        """Let gangs be gone."""
        self._change(self._capacity.held_by(gangs), 1)

    def give_back(self, gangs: Iterable[str]) -> None:
        """Let gangs be there again."""
        self._change(self._capacity.held_by(gangs), -1)

    def found(self) -> bool:
        """Return whether all pods find nodes now."""
        if any(each.total < each.asked.count for each in self._counts):
            return False
        # Of one set that may lie anywhere the count alone is exact.
        alone = len(self._asked) == 1 and (self._asked[0].near is None or self._asked[0].near.anywhere)
        if alone or not self._asked:
            return True
        return not isinstance(place(self._capacity, self._asked, self._more, thorough=False), Misplaced)

    def _change(self, by: Mapping[str, Amounts], sign: int) -> None:
        for node, amounts in by.items():
            more = self._more.setdefault(node, {})
            for name, amount in amounts.items():
                more[name] = more.get(name, 0) + sign * amount
            for each in self._counts:
                each.update(node, self._capacity.room(each.index, node, more)[0])
