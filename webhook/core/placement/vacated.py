"""Whether a gang finds nodes once others are gone: asked while one after the other is taken out, and put back.

What differs is counted node by node, so a question costs what the last of them held, and not all that are out. Where
counts do not decide, for several sets or slices, all pods are placed to know: that is done for so many nodes only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.core.nodes.capacity import Capacity
from webhook.core.notation.amounts import Amounts
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.placement.prefilter import Prefilter

MOST_PLACED: Final = 50_000
"""So many nodes that others leave are looked at to place pods where counts do not decide, in one search: about a
tenth of a second. One that would need more ends without a result."""


Gangs = tuple[str, ...]


class _Count:
    """How many pods of one set fit, were it alone."""

    def __init__(self, capacity: Capacity, asked: Asked) -> None:
        shape = asked.shape
        ranking = capacity.ranking(shape)
        self.prefilter = Prefilter(capacity, asked, ranking)
        self._capacity, self._verdict = capacity, capacity.verdict(shape)
        asks = sorted(capacity.asked(shape), key=lambda each: each[0] != ranking.scarce)
        self._asks = [(name, amount, column.copy()) for name, amount, column in asks]
        """What is asked, that first of which a pod asks the largest share of a node."""
        self._pods = [0] * len(capacity.names)
        """What each node holds, by row."""
        for node, (count, _) in ranking.rooms.items():
            self._pods[capacity.rows[node]] = count
        self._held: dict[Gangs, tuple[list[int], list[list[int]]]] = {}
        """Of gangs the rows of nodes that the pods may use, and what the gangs hold there of all that is asked."""

    def change(self, gangs: Gangs, sign: int) -> int:
        """Let gangs be gone, or back where ``sign`` is negative; return on how many nodes pods were counted."""
        if gangs not in self._held:
            self._held[gangs] = self._read(self._capacity.held_by(gangs))
        (rows, amounts), pods = self._held[gangs], self._pods
        for (_, _, free), held in zip(self._asks, amounts, strict=True):
            for row, amount in zip(rows, held, strict=True):
                free[row] += sign * amount
        # Who is back takes nothing where no pod fits; who is gone does not help where too little is free.
        _, least, scarce = self._asks[0]
        counted = [row for row in rows if (pods[row] if sign < 0 else scarce[row] >= least)]
        for row in counted:
            now, before = max(0, min([free[row] // amount for _, amount, free in self._asks])), pods[row]
            if now != before:
                pods[row] = now
                self.prefilter.add(self._capacity.names[row], now - before)
        return len(counted)

    def _read(self, by: Mapping[str, Amounts]) -> tuple[list[int], list[list[int]]]:
        rows = self._capacity.rows
        found = [(rows[node], amounts) for node, amounts in by.items() if node in rows]
        found = [(row, amounts) for row, amounts in found if self._verdict[row] is None]
        return [row for row, _ in found], [[amounts.get(name, 0) for _, amounts in found] for name, _, _ in self._asks]


class Vacated:
    """The nodes as they would be; the capacity itself is not changed, and must not change meanwhile."""

    def __init__(self, capacity: Capacity, asked: Sequence[Asked]) -> None:
        self.capacity = capacity
        self.asked = [each for each in asked if each.count]
        """The sets that have to find nodes."""
        self._more: dict[str, dict[str, int]] = {}
        """Node to amounts that are free besides, where counts do not decide."""
        self._counts = [_Count(capacity, each) for each in self.asked]
        alone = self.asked[0] if len(self.asked) == 1 else None
        self._counts_decide = not self.asked or (alone is not None and not alone.slices)
        self._placed = 0
        self.given_up = False
        """It took too many nodes to know: what was found is not to be relied on."""

    @property
    def hopeless(self) -> bool:
        """A pod asks more than any node has: whoever is gone, it finds none."""
        return not all(self.capacity.largest.might_take(each.shape) for each in self.asked)

    def take(self, gangs: Iterable[str]) -> None:
        """Let gangs be gone."""
        self._change(tuple(gangs), 1)

    def give_back(self, gangs: Iterable[str]) -> None:
        """Let gangs be there again."""
        self._change(tuple(gangs), -1)

    def found(self) -> bool:
        """Return whether all pods find nodes now."""
        if any(not each.prefilter.open for each in self._counts):
            return False
        if self._counts_decide:
            return True
        self._placed += len(self._more)
        if self._placed > MOST_PLACED:
            self.given_up = True
            return False
        return not isinstance(place(self.capacity, self.asked, self._more, thorough=False), Misplaced)

    def _change(self, gangs: Gangs, sign: int) -> None:
        for each in self._counts:
            self.capacity.looked += each.change(gangs, sign)
        for node, amounts in () if self._counts_decide else self.capacity.held_by(gangs).items():
            more = self._more.setdefault(node, {})
            for name, amount in amounts.items():
                more[name] = more.get(name, 0) + sign * amount
