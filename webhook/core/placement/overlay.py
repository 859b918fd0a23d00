"""What a gang asks of the nodes, and the nodes as they are while it is placed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook.core.model.gang import Nearness
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts


@dataclass(frozen=True, slots=True)
class Asked:
    """One pod set that has to be placed."""

    name: str
    shape: Shape
    count: int
    near: Nearness | None = None
    together: str = ""
    """Sets of one name here go to the same domain."""

    @property
    def slices(self) -> int:
        """Pods of a slice; 0 where the set has none."""
        return 0 if self.near is None else self.near.slice_size


@dataclass(slots=True)
class Overlay:
    """What differs from the capacity while one gang is placed."""

    capacity: Capacity
    more: dict[str, Amounts] = field(default_factory=dict)
    """Node to amounts that are free besides; less where negative."""
    _shape: Shape | None = None
    """What was asked about last: many sets of a gang may be of one shape, one after the other."""
    _rooms: dict[str, Room | None] = field(default_factory=dict)
    """The room for it by node; None where that has changed since."""

    def copy(self) -> "Overlay":
        """Return an independent copy."""
        return Overlay(self.capacity, dict(self.more))

    def adjusted(self, ranking: Ranking) -> dict[str, Room]:
        """Return the room for the ranking's pods on the nodes that differ."""
        if self._shape != ranking.shape:
            self._shape, self._rooms = ranking.shape, dict.fromkeys(self.more)
        rooms = {
            node: self.capacity.room(ranking, node, self.more[node]) if room is None else room
            for node, room in self._rooms.items()
        }
        self._rooms = {**rooms}
        return rooms

    def take(self, shape: Shape, places: Mapping[str, int], *, give_back: bool = False) -> None:
        """Take the room of such pods, or give it back."""
        uses, sign = shape.uses, 1 if give_back else -1
        for node, count in places.items():
            known, by = self.more.get(node), amounts.scale(uses, sign * count)
            self.more[node] = by if known is None else amounts.add(known, by)
            self._rooms[node] = None


def groups(asked: Iterable[Asked]) -> list[list[Asked]]:
    """Return the sets, those in one group whose pods have one shape and may lie anywhere: such as of many jobs that
    share a PodGroup.
    """
    found: dict[object, list[Asked]] = {}
    for each in asked:
        key = (each.shape, each.near) if each.near is None or each.near.anywhere else each.name
        found.setdefault(key, []).append(each)
    return list(found.values())


def as_one(group: Sequence[Asked]) -> Asked:
    """Return the sets of a group as one set."""
    return replace(group[0], count=sum(each.count for each in group))
