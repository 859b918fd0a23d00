"""Where a gang goes: all its pods at once, or nothing.

One shape: counting is exact. A gang fits if and only if the nodes together hold its pods. Several shapes: by decreasing
dominant share, each placed after those before it, and if that fails by a short search (``backtracking``). A "yes" comes
with the places; a "no" may be wrong where the shapes compete for many nodes.

Best fit, by Kueue's rule for domains (``near`` has those): where one node holds all that is left, the one that holds
fewest such pods; else the one that holds most. So holes are filled first and wide gangs stand close together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge, nsmallest
from itertools import islice
from typing import Final

from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.notation.amounts import Amounts
from webhook.core.placement.backtracking import search
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.near import in_order, levels_of, place_near, units
from webhook.core.placement.overlay import Asked, Overlay, as_one, groups

MOST_APART: Final = 2_000_000
"""So many sets, times the nodes that their pods may change, are placed one after the other: up to half a second. Of
more those of one shape are placed as one, and the pods of one may lie on more nodes than they need.
"""


def place(
    capacity: Capacity,
    asked: Sequence[Asked],
    more: Mapping[str, Amounts] | None = None,
    *,
    thorough: bool = True,
) -> Allotment | Misplaced:
    """Return places for all pods of all sets, or why there are none; ``more`` is free besides, by node.

    A caller that asks for many sets of ``more`` in turn is not ``thorough``: then no second way is searched where the
    first one fails. Nothing is changed: the caller allots what was found.
    """
    if len(asked) * (len(more or ()) + sum([each.count for each in asked])) <= MOST_APART:
        return _place(capacity, asked, more, thorough=thorough)
    alike = groups(each for each in asked if each.count)
    found = _place(capacity, list(map(as_one, alike)), more, thorough=thorough)
    return found if isinstance(found, Misplaced) else _divided(found, alike)


def _divided(found: Allotment, alike: Iterable[Sequence[Asked]]) -> Allotment:
    """Return places of groups of sets as those of their sets."""
    places = dict[str, dict[str, int]]()
    for group in alike:
        nodes = (node for node, pods in found.places[group[0].name].items() for _ in range(pods))
        places |= {each.name: dict(Counter(islice(nodes, each.count))) for each in group}
    return Allotment({each.name: each.shape for group in alike for each in group}, places, found.domains)


def _place(
    capacity: Capacity, asked: Sequence[Asked], more: Mapping[str, Amounts] | None, *, thorough: bool
) -> Allotment | Misplaced:
    overlay = Overlay(capacity, dict(more or {}))
    places: dict[str, dict[str, int]] = {}
    domains: dict[str, Mapping[str, str]] = {}
    rest = sorted((a for a in asked if a.count), key=lambda a: (-_dominant_share(capacity, a.shape), a.name))
    for unit in units(rest):
        misplaced = place_near(overlay, unit, places, domains)
        if misplaced is not None:
            return replace(misplaced, gang=rest)
    loose = [each for each in rest if each.name not in places]
    for each in loose:
        ranking = capacity.ranking(each.shape)
        if ranking.total < each.count and not overlay.more:
            # Counting says so; to pick all nodes takes long.
            return Misplaced(each, ranking.total, certain=True, gang=rest)
        pick = _pick if each.near is None else _Smallest(capacity, each)
        found, left = pick(ranking, overlay.adjusted(ranking), each.count)
        if left:
            alone = _alone(capacity, each, more) if places else each.count - left
            for placed in loose:
                overlay.take(placed.shape, places.pop(placed.name, {}), give_back=True)
            others = search(overlay, loose) if thorough and alone >= each.count and len(loose) > 1 else None
            if others is None:
                return Misplaced(each, each.count - left, certain=alone < each.count, gang=rest)
            places |= others
            break
        overlay.take(each.shape, found)
        places[each.name] = found
    places |= {each.name: in_order(capacity, each, places[each.name]) for each in rest if each.near is not None}
    return Allotment({each.name: each.shape for each in asked if each.count}, places, domains)


def place_most(capacity: Capacity, asked: Asked) -> Mapping[str, int]:
    """Return places for as many pods of one set of a gang that has started as fit now. What is kept for claims it takes
    where nothing else is left: who claims waits, and its pods are on the way.
    """
    ranking = capacity.ranking(asked.shape)
    found, left = _pick(ranking, {}, asked.count)
    if left and capacity.kept:
        found, _ = _pick(ranking, Overlay(capacity, {**capacity.kept}).adjusted(ranking), asked.count)
    return found


def _alone(capacity: Capacity, asked: Asked, more: Mapping[str, Amounts] | None) -> int:
    """Return how many pods of one set fit when it is placed by itself."""
    ranking = capacity.ranking(asked.shape)
    rooms = {node: capacity.room(ranking, node, amounts) for node, amounts in (more or {}).items()}
    return ranking.total + sum(room[0] - ranking.rooms.get(node, (0, 0))[0] for node, room in rooms.items())


def _pick(ranking: Ranking, adjusted: Mapping[str, Room], wanted: int) -> tuple[dict[str, int], int]:
    """Return places for ``wanted`` pods, and how many of them found none."""
    found: dict[str, int] = {}
    rooms = sorted({*ranking.by_room, *(room for room in adjusted.values() if room[0])}, key=lambda r: (-r[0], r[1]))
    for room in rooms:
        count = room[0]
        for node in _having(ranking, adjusted, room):
            if wanted <= count:
                found[_tightest(ranking, adjusted, rooms, wanted, found)] = wanted
                return found, 0
            found[node] = count
            wanted -= count
    return found, wanted


@dataclass(frozen=True, slots=True)
class _Smallest:
    """Picks the smallest holes first, as Kueue does for pods that may lie anywhere, unless one node holds all of them;
    of equal ones the first by the values of their topology's labels.
    """

    capacity: Capacity
    asked: Asked

    def __call__(self, ranking: Ranking, adjusted: Mapping[str, Room], wanted: int) -> tuple[dict[str, int], int]:
        """Return places for ``wanted`` pods, and how many of them found none."""
        found: dict[str, int] = {}
        rooms: dict[int, set[Room]] = {}
        had = Counter(ranking.rooms[node] for node in adjusted if node in ranking.rooms)
        as_before = (room for room, nodes in ranking.by_room.items() if len(nodes) > had[room])
        for room in (*as_before, *adjusted.values()):
            rooms.setdefault(room[0], set()).add(room)
        rooms.pop(0, None)
        domain_of = self.capacity.domains(levels_of(self.asked)).of
        enough = [count for count in rooms if count >= wanted]
        for count in [min(enough)] if enough else sorted(rooms):
            nodes = (node for room in rooms[count] for node in _having(ranking, adjusted, room))
            for node in nsmallest(-(-wanted // count), nodes, key=lambda each: (domain_of.get(each, ()), each)):
                found[node] = min(count, wanted)
                wanted -= found[node]
        return found, wanted


def _tightest(
    ranking: Ranking, adjusted: Mapping[str, Room], rooms: Sequence[Room], wanted: int, taken: Mapping[str, int]
) -> str:
    """Return the node that has least room among those that hold ``wanted`` pods."""
    enough = sorted(room for room in rooms if room[0] >= wanted)
    return next(node for room in enough for node in _having(ranking, adjusted, room) if node not in taken)


def _having(ranking: Ranking, adjusted: Mapping[str, Room], room: Room) -> Iterator[str]:
    """Yield the nodes that have just this ``room``, in order of their names."""
    usual = ranking.by_room.get(room, ())
    if not adjusted:
        yield from usual
        return
    changed = (node for node, found in adjusted.items() if found == room)
    yield from merge((node for node in usual if node not in adjusted), sorted(changed))


def _dominant_share(capacity: Capacity, shape: Shape) -> float:
    return max(capacity.largest.share(name, amount) for name, amount in shape.requests)
