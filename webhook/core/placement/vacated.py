"""Whether a gang finds nodes once others are gone: asked while one after the other is taken out, and put back.

What differs is counted node by node, so a question costs what the last of them held, and not all that are out. Of
several sets those are counted that are in the way: mostly the widest, and the others once it has room.

Where counts do not decide, for several sets or slices, all pods are placed to know. That and all that is counted before
is done for so many nodes only, as whoever writes a job says how many sets it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.claimed import Gone
from webhook.core.nodes.ranking import Ranking
from webhook.core.nodes.turns import REQUESTS_ALIKE, work
from webhook.core.notation.amounts import Amounts
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked, as_one, groups
from webhook.core.placement.prefilter import Prefilter

MOST_LOOKED: Final = 100_000
"""At so many nodes, once for each pod set, one search looks where counts do not decide: about two tenths of a second.
One that would need more ends without a result."""


Gangs = tuple[str, ...]


class _Count:
    """How many pods of one set fit, were it alone."""

    def __init__(self, capacity: Capacity, ranking: Ranking, prefilter: Prefilter) -> None:
        shape, self.prefilter = ranking.shape, prefilter
        self.seen = 0
        """How many changes are in it."""
        self._capacity, self._verdict = capacity, capacity.verdict(shape)
        asks = sorted(capacity.asked(shape), key=lambda each: each[0] != ranking.scarce)
        self._asks = [(name, amount, column.copy()) for name, amount, column in asks]
        """What is asked, that first of which a pod asks the largest share of a node."""
        self._pods = [0] * len(capacity.names)
        """What each node holds, by row."""
        for node, (count, _) in ranking.rooms.items():
            self._pods[capacity.rows[node]] = count
        self._held: dict[Gangs, tuple[list[int], list[list[int]]]] = {}
        """Of gangs that no claim awaits, the rows of nodes that the pods may use, and what they hold there of all that
        is asked.
        """
        self._gone = Gone()

    def change(self, gangs: Gangs, sign: int) -> int:
        """Let gangs be gone, or back where ``sign`` is negative; return on how many nodes pods were counted."""
        known = self._held.get(gangs)
        if known is None:
            known = self._read(self._capacity.held_by(gangs, self._gone, sign))
            if not self._capacity.awaits(gangs):
                self._held[gangs] = known
        (rows, amounts), pods = known, self._pods
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
        self.alike = list(map(as_one, groups(self.asked)))
        """The same, in as few sets as can be."""
        self._more: dict[str, dict[str, int]] = {}
        """Node to amounts that are free besides, where counts do not decide."""
        self._gone = Gone()
        self._changes: list[tuple[Gangs, int]] = []
        """Who was taken out, or put back where that is negative."""
        self._only_taken = 0
        """Since this change nobody was put back."""
        self._uncounted, self._counts = _counted(self.alike), list[_Count]()
        """The sets that were not asked about yet; and of the others those that do not fit while nobody is out, the
        first one that was in the way last.
        """
        self._counts_decide = not self.alike or (len(self.alike) == 1 and not self.alike[0].slices)
        self._looked = 0
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
        closed = next((each for each in self._counts if not self._opens(each)), None) or self._next_closed()
        if closed is not None:
            self._counts = [closed, *(each for each in self._counts if each is not closed)]
            return False
        if self._counts_decide:
            return True
        if self._gives_up(len(self._more) * len(self.alike)):
            return False
        before = self.capacity.looked
        places = place(self.capacity, self.alike, self._more, thorough=False)
        self._looked += self.capacity.looked - before
        return not isinstance(places, Misplaced)

    def _next_closed(self) -> _Count | None:
        """Return the next set that was not asked about yet and does not fit now."""
        while self._uncounted:
            asked = self._uncounted.pop(0)
            ranking = self.capacity.ranking(asked.shape)
            prefilter = Prefilter(self.capacity, asked, ranking)
            # Who fits beside all fits whoever is gone.
            if prefilter.open:
                continue
            count = _Count(self.capacity, ranking, prefilter)
            self._look(work(asked.shape, len(self.capacity.names)) // REQUESTS_ALIKE)
            if not self._opens(count):
                return count
            self._counts.append(count)
        return None

    def _opens(self, count: _Count) -> bool:
        """Return whether one set may fit now. It does when it did before, while more and more are gone."""
        while count.seen < len(self._changes) and not (count.prefilter.open and count.seen >= self._only_taken):
            if self._gives_up(0):
                return False
            self._look(count.change(*self._changes[count.seen]))
            count.seen += 1
        return count.prefilter.open

    def _look(self, nodes: int) -> None:
        self._looked += nodes
        self.capacity.looked += nodes

    def _gives_up(self, more: int) -> bool:
        """Return whether it would take too long to look at so many more nodes."""
        self.given_up = self.given_up or (not self._counts_decide and self._looked + more > MOST_LOOKED)
        return self.given_up

    def _change(self, gangs: Gangs, sign: int) -> None:
        if self.given_up:
            return
        self._changes.append((gangs, sign))
        if sign < 0:
            self._only_taken = len(self._changes)
        for node, amounts in () if self._counts_decide else self.capacity.held_by(gangs, self._gone, sign).items():
            more = self._more.setdefault(node, {})
            for name, amount in amounts.items():
                more[name] = more.get(name, 0) + sign * amount


def _counted(sets: Sequence[Asked]) -> list[Asked]:
    """Return what is counted: the sets, and then the pods of all that may go to the same nodes together, as if each
    asked no more of anything than any of them does.
    """
    alike: dict[object, list[Asked]] = {}
    for each in sets:
        alike.setdefault((each.shape.kind, each.shape.ports), []).append(each)
    together = []
    for first, *others in alike.values():
        if others:
            least = {
                name: min(amount, *(each.shape.amount(name) for each in others))
                for name, amount in first.shape.requests
            }
            shape = replace(first.shape, requests=tuple((name, amount) for name, amount in least.items() if amount))
            together.append(Asked(first.name, shape, sum(each.count for each in (first, *others))))
    return [*sets, *together]
