"""Where a gang goes: all its pods at once, or nothing.

One shape: counting is exact. A gang fits if and only if the nodes together hold its pods. Several shapes: by decreasing
dominant share, each placed beside those before it; a "yes" carries its witness, a "no" may be wrong where the shapes
compete for the same nodes.

Best fit, by Kueue's rule for domains: where one node holds all that is left, the one that holds fewest such pods; else
the one that holds most. So holes are filled first and wide gangs stand close together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge

from webhook.core.model.amounts import Amounts
from webhook.core.placement.capacity import Allotment, Capacity, Index, Room
from webhook.core.placement.shape import Shape


@dataclass(frozen=True, slots=True)
class Asked:
    """One pod set that has to be placed."""

    name: str
    shape: Shape
    count: int


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Why a gang fits no nodes now: the first pod set that did not, and the numbers."""

    asked: Asked
    found: int
    """Pods of it that fit."""
    certain: bool
    """It is impossible, not only unfound: every other pod set left out, it would not fit either."""
    postponed: bool = False
    """It is not known yet: too many shapes are new in this round."""


@dataclass(slots=True)
class _Overlay:
    """What differs from the capacity while one gang is placed."""

    capacity: Capacity
    more: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to amounts that are free besides; less where negative."""

    def adjusted(self, index: Index) -> dict[str, Room]:
        """Return the room for the index's pods on the nodes that differ."""
        return {node: self.capacity.room(index, node, more) for node, more in self.more.items()}

    def take(self, shape: Shape, places: Mapping[str, int]) -> None:
        for node, count in places.items():
            more = self.more.setdefault(node, {})
            for name, amount in shape.requests:
                more[name] = more.get(name, 0) - amount * count


def place(
    capacity: Capacity, asked: Sequence[Asked], more: Mapping[str, Amounts] | None = None
) -> Allotment | Misplaced:
    """Return places for all pods of all sets, or why there are none; ``more`` is free besides, by node.

    Nothing is changed: the caller allots what was found.
    """
    overlay = _Overlay(capacity, {node: dict(amounts) for node, amounts in (more or {}).items()})
    places: dict[str, dict[str, int]] = {}
    for each in sorted(asked, key=lambda a: (-_dominant_share(capacity, a.shape), a.name)):
        if not each.count:
            continue
        index = capacity.index(each.shape)
        found, left = _pick(index, overlay.adjusted(index), each.count)
        if left:
            alone = each.count - left if not places else _alone(capacity, each, more)
            return Misplaced(each, each.count - left, certain=alone < each.count)
        overlay.take(each.shape, found)
        places[each.name] = found
    return Allotment({each.name: each.shape for each in asked if each.count}, places)


def place_most(capacity: Capacity, asked: Asked) -> Mapping[str, int]:
    """Return places for as many pods of one set as fit now."""
    return _pick(capacity.index(asked.shape), {}, asked.count)[0]


def _alone(capacity: Capacity, asked: Asked, more: Mapping[str, Amounts] | None) -> int:
    """Return how many pods of one set fit when it is placed by itself."""
    index = capacity.index(asked.shape)
    rooms = {node: capacity.room(index, node, amounts) for node, amounts in (more or {}).items()}
    return index.total + sum(room[0] - index.rooms.get(node, (0, 0))[0] for node, room in rooms.items())


def _pick(index: Index, adjusted: Mapping[str, Room], wanted: int) -> tuple[dict[str, int], int]:
    """Return places for ``wanted`` pods, and how many of them found none."""
    found: dict[str, int] = {}
    rooms = sorted({*index.by_room, *(room for room in adjusted.values() if room[0])}, key=lambda r: (-r[0], r[1]))
    for room in rooms:
        count = room[0]
        for node in _having(index, adjusted, room):
            if wanted <= count:
                found[_tightest(index, adjusted, rooms, wanted, found)] = wanted
                return found, 0
            found[node] = count
            wanted -= count
    return found, wanted


def _tightest(
    index: Index, adjusted: Mapping[str, Room], rooms: Sequence[Room], wanted: int, taken: Mapping[str, int]
) -> str:
    """Return the node that has least room among those that hold ``wanted`` pods."""
    enough = sorted(room for room in rooms if room[0] >= wanted)
    return next(node for room in enough for node in _having(index, adjusted, room) if node not in taken)


def _having(index: Index, adjusted: Mapping[str, Room], room: Room) -> Iterator[str]:
    """Yield the nodes that have just this ``room``, in order of their names."""
    usual = index.by_room.get(room, ())
    if not adjusted:
        yield from usual
        return
    changed = (node for node, found in adjusted.items() if found == room)
    yield from merge((node for node in usual if node not in adjusted), sorted(changed))


def _dominant_share(capacity: Capacity, shape: Shape) -> float:
    return max(capacity.share(name, amount) for name, amount in shape.requests)
