"""The nodes that pods of one shape may use, by how many of them they hold."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from webhook.core.nodes.columns import Asks
from webhook.core.nodes.domains import Domain, Domains, Path, Sums, keep_last
from webhook.core.nodes.shape import Shape

Room = tuple[int, int]
"""How many pods of a shape a node holds, and what is left then of the resource that the shape asks most of."""


@dataclass(slots=True)
class Index:
    """The nodes that a shape may use, by the room that they have for its pods now."""

    shape: Shape
    scarce: str
    """The resource of which one pod asks the largest share of a node."""
    seen: int = 0
    """How many changes of nodes are in it."""
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
        """Take note of all nodes at once, as the index is new: of their ``names``, what is free of what each pod takes,
        and what keeps the pods away. In whole columns, as there may be ten thousand.
        """
        each, scarce = self._each, next(column for name, _, column in asked if name == self.scarce)
        keep = [why is None and left >= each for why, left in zip(verdict, scarce, strict=True)]
        lefts, of = list(compress(scarce, keep)), list(compress(names, keep))
        counts = [left // each for left in lefts]
        most = max(counts, default=0)
        for name, amount, column in asked:
            free = list(compress(column, keep)) if name != self.scarce else []
            # Mostly there is enough of all others for as many.
            if free and min(free) < amount * most:
                counts = [
                    count if amount * count <= left else left // amount
                    for count, left in zip(counts, free, strict=True)
                ]
        nodes_of = defaultdict[Room, list[str]](list)
        spare = [left - count * each for left, count in zip(lefts, counts, strict=True)]
        for node, room in zip(of, zip(counts, spare, strict=True), strict=True):
            nodes_of[room].append(node)
        for room, nodes in nodes_of.items():
            if room[0] > 0:
                self.by_room[room] = sorted(nodes)
                self.rooms.update(dict.fromkeys(nodes, room))
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
