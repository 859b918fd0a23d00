"""The nodes that pods of one shape may use, by how many of them they hold."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from webhook.core.nodes.columns import Asks
from webhook.core.nodes.domains import Domain, Domains, Path, Sums, keep_last
from webhook.core.nodes.shape import Shape

Room = tuple[int, int]
"""How many pods of a shape a node holds, and what is left then of the resource that the shape asks most of."""


@dataclass(slots=True)
class Ranking:
    """The nodes that a shape may use, by the room that they have for its pods now."""

    shape: Shape
    scarce: str
    """The resource of which one pod asks the largest share of a node."""
    seen: int = 0
    """How many changes of nodes are in it."""
    counted: int = 0
    """How many were, but for those that a question looked at: what it takes to look at the others is counted."""
    rooms: dict[str, Room] = field(default_factory=dict)
    """By node, for nodes that hold at least one pod."""
    by_room: dict[Room, list[str]] = field(default_factory=dict)
    """The names of nodes with the same room, in order."""
    total: int = 0
    """Pods that all nodes together hold."""
    _each: int = field(init=False)
    """What one pod asks of the scarce resource."""
    _names: tuple[str, ...] = field(init=False)
    """The resources and ports that it asks."""
    _sums: dict[Path, Sums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._each = self.shape.amount(self.scarce)
        self._names = tuple(self.shape.uses)

    def sums(self, domains: Domains) -> Mapping[Domain, int]:
        """Return how many pods each domain holds, of those that hold any."""
        sums = self._sums.pop(domains.path, None)
        if sums is None or sums.domains is not domains:
            sums = Sums(domains)
            for node, (count, _) in self.rooms.items():
                sums.add(node, count)
        keep_last(self._sums, domains.path, sums)
        return sums.pods

    def room(self, free: Mapping[str, int], more: Mapping[str, int] | None = None) -> Room:
        """Return the room for pods in ``free`` amounts, and ``more``."""
        if more:
            free = {name: free.get(name, 0) + more.get(name, 0) for name in self._names}
        count = self.shape.fits(free)
        return count, free.get(self.scarce, 0) - count * self._each

    def read(self, names: Sequence[str], asked: Sequence[Asks], verdict: Sequence[str | None]) -> None:
        """Take note of all nodes at once, for a new ranking: of their ``names``, what is free of what each pod takes,
        and what keeps the pods away. In whole columns, as there may be ten thousand.
        """
        each, scarce = self._each, next(column for name, _, column in asked if name == self.scarce)
        most = max(scarce, default=0) // each
        # Mostly there is enough of all others for as many, and what is left of the scarce one says it all.
        others = [(amount, column) for name, amount, column in asked if name != self.scarce]
        short = [(amount, column) for amount, column in others if min(column, default=0) < amount * most]
        if not short:
            for left, nodes in _alike(names, scarce, verdict).items():
                self._read_some(divmod(left, each), nodes)
            return
        counts = [left // each for left in scarce]
        for amount, free in short:
            counts = [
                count if amount * count <= left else left // amount for count, left in zip(counts, free, strict=True)
            ]
        for (count, left), nodes in _alike(names, zip(counts, scarce, strict=True), verdict).items():
            self._read_some((count, left - count * each), nodes)

    def _read_some(self, room: Room, nodes: list[str]) -> None:
        """Take note of nodes that have the same room, and are new."""
        if room[0] > 0:
            rooms, self.by_room[room] = self.rooms, sorted(nodes)
            for node in nodes:
                rooms[node] = room
            self.total += room[0] * len(nodes)

    def set(self, node: str, room: Room) -> None:
        """Take note of the room that ``node`` has now."""
        before = self.rooms.get(node)
        if before == room or (before is None and not room[0]):
            return
        for sums in self._sums.values():
            sums.add(node, room[0] - (0 if before is None else before[0]))
        if before is not None:
            self.total -= before[0]
            names = self.by_room[before]
            del names[bisect_left(names, node)]
            if not names:
                del self.by_room[before]
            del self.rooms[node]
        if room[0]:
            self.total += room[0]
            self.rooms[node] = room
            insort(self.by_room.setdefault(room, []), node)


_Key = TypeVar("_Key")


def _alike(nodes: Iterable[str], keys: Iterable[_Key], verdict: Iterable[str | None]) -> Mapping[_Key, list[str]]:
    """Return the nodes that the pods may use by their ``keys``."""
    found = defaultdict[_Key, list[str]](list)
    for node, key, why in zip(nodes, keys, verdict, strict=True):
        if why is None:
            found[key].append(node)
    return found
