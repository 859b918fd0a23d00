"""The nodes that pods of one shape may use, by how many of them they hold."""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from webhook.core.nodes.domains import Domain, Domains, Path, Sums, keep_last
from webhook.core.nodes.node import NodeRecord
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
    """How much of the log of changes is in it."""
    rooms: dict[str, Room] = field(default_factory=dict)
    """By node, for nodes that hold at least one pod."""
    by_room: dict[Room, list[str]] = field(default_factory=dict)
    """The names of nodes with the same room, in order."""
    total: int = 0
    """Pods that all nodes together hold."""
    _each: int = field(init=False)
    """What one pod asks of the scarce resource."""
    _sums: dict[Path, Sums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._each = self.shape.amount(self.scarce)

    def sums(self, domains: Domains) -> Mapping[Domain, int]:
        """Return how many pods each domain holds, of those that hold any."""
        sums = self._sums.pop(domains.path, None)
        if sums is None or sums.domains is not domains:
            sums = Sums(domains)
            for node, (count, _) in self.rooms.items():
                sums.add(node, count)
        keep_last(self._sums, domains.path, sums)
        return sums.pods

    def room(self, free: Mapping[str, int]) -> Room:
        """Return the room for pods in ``free`` amounts."""
        count = self.shape.fits(free)
        return count, free.get(self.scarce, 0) - count * self._each

    def read(
        self,
        nodes: Mapping[str, NodeRecord],
        free: Mapping[str, Mapping[str, int]],
        columns: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Take note of all nodes at once, as the index is new; ``columns`` is what is free of each resource that is
        asked, by node. Written out, as it looks at ten thousand in a row.
        """
        rooms, one, admits = dict[str, Room](), dict[Room, Room](), self.shape.admits
        each = self._each
        others = [(columns[name].get, amount) for name, amount in self.shape.requests if name != self.scarce]
        needs = dict[int, list[tuple[Callable[[str, int], int], int]]]()
        for name, left in columns[self.scarce].items():
            if left < each or name not in nodes:
                continue
            count = left // each
            # Mostly there is enough of all others for as many, and to compare takes less than to divide.
            need = needs.get(count)
            if need is None:
                need = needs[count] = [(of, amount * count) for of, amount in others]
            for of, least in need:
                if of(name, 0) < least:
                    count = min(other(name, 0) // amount for other, amount in others)
                    break
            if self.shape.ports:
                count = self.shape.with_ports(count, free[name])
            if count > 0 and admits(nodes[name]):
                room = (count, left - count * each)
                rooms[name] = one.setdefault(room, room)
        self.fill(rooms)

    def fill(self, rooms: dict[str, Room]) -> None:
        """Take note of the nodes that hold any pod, with their room."""
        self.rooms = rooms
        for node, room in rooms.items():
            self.by_room.setdefault(room, []).append(node)
            self.total += room[0]
        for names in self.by_room.values():
            names.sort()

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
