"""A second way to place sets of different shapes, where one set after the other found no room.

The first way may put pods on the very nodes that the next shape needs. Here other ways are tried, the nodes with least
room first, until one is found or so many steps are made that the engine had better go on. Where a set has room on more
than a few nodes nothing is tried: a step would cost too much there, and little room is what makes shapes compete.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.placement.overlay import Asked, Overlay

MOST_STEPS: Final = 100
MOST_NODES: Final = 16


def search(overlay: Overlay, asked: Sequence[Asked]) -> dict[str, dict[str, int]] | None:
    """Return places for all sets in addition to what the overlay has taken, or None where none were found."""
    if not _sums_fit(overlay, asked):
        return None
    for order in (asked, asked[::-1]):
        found = _Search(overlay, order).run(0)
        if found is not None:
            return found
    return None


@dataclass(slots=True)
class _Search:
    """The sets one after the other, and of each as many pods on a node as go there, then fewer."""

    overlay: Overlay
    asked: Sequence[Asked]
    steps: int = 0
    places: dict[str, dict[str, int]] = field(default_factory=dict)

    def run(self, place: int) -> dict[str, dict[str, int]] | None:
        """Place the sets from number ``place`` on."""
        if place == len(self.asked):
            return {
                name: {node: count for node, count in found.items() if count} for name, found in self.places.items()
            }
        rooms = [_rooms(self.overlay, each) for each in self.asked[place:]]
        for each, room in zip(self.asked[place:], rooms, strict=True):
            if len(room) > MOST_NODES or sum(count for count, _ in room) < each.count:
                return None
        self.places[self.asked[place].name] = {}
        return self._spread(place, sorted(rooms[0]), self.asked[place].count)

    def _spread(self, place: int, rooms: Sequence[tuple[int, str]], wanted: int) -> dict[str, dict[str, int]] | None:
        """Place ``wanted`` pods of a set on some of the nodes that are left, and all sets after it."""
        if not wanted:
            return self.run(place + 1)
        if sum(count for count, _ in rooms) < wanted:
            return None
        asked, (room, node) = self.asked[place], rooms[0]
        for count in range(min(room, wanted), -1, -1):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return None
            self.overlay.take(asked.shape, {node: count})
            self.places[asked.name][node] = count
            found = self._spread(place, rooms[1:], wanted - count)
            if found is not None:
                return found
            self.places[asked.name].pop(node)
            self.overlay.take(asked.shape, {node: count}, give_back=True)
        return None


def _sums_fit(overlay: Overlay, asked: Sequence[Asked]) -> bool:
    """Return whether few enough nodes have room for the sets, and together as much as all of them ask."""
    wanted: dict[str, int] = {}
    nodes: dict[str, None] = {}
    for each in asked:
        rooms = _rooms(overlay, each)
        if len(rooms) > MOST_NODES:
            return False
        nodes |= dict.fromkeys(node for _, node in rooms)
        for name, amount in each.shape.requests:
            wanted[name] = wanted.get(name, 0) + amount * each.count
    free, more = overlay.capacity.free, overlay.more
    return all(
        amount <= sum(max(0, free[node].get(name, 0) + more.get(node, {}).get(name, 0)) for node in nodes)
        for name, amount in wanted.items()
    )


def _rooms(overlay: Overlay, asked: Asked) -> list[tuple[int, str]]:
    """Return how many pods of a set which node holds, of about one node more than is searched."""
    ranking = overlay.capacity.ranking(asked.shape)
    adjusted = overlay.adjusted(ranking)
    found = [(room[0], node) for node, room in adjusted.items() if room[0]]
    for room, nodes in ranking.by_room.items():
        for node in nodes:
            if len(found) > MOST_NODES:
                return found
            if node not in adjusted:
                found.append((room[0], node))
    return found
