"""Where a gang goes: all its pods at once, or nothing.

One shape: counting is exact. A gang fits if and only if the nodes together hold its pods. Several shapes: by decreasing
dominant share, each placed beside those before it, and where that fails by a short search (``search``); a "yes" carries
its witness, a "no" may be wrong where the shapes compete for many nodes.

Best fit, by Kueue's rule for domains: where one node holds all that is left, the one that holds fewest such pods; else
the one that holds most. So holes are filled first and wide gangs stand close together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from webhook.core.model.amounts import Amounts
from webhook.core.placement.allotment import Allotment
from webhook.core.placement.capacity import Capacity, Index, Room
from webhook.core.placement.overlay import Asked, Overlay
from webhook.core.placement.search import search
from webhook.core.placement.shape import Shape


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
    unread: bool = False
    """It has to be in one domain, and nobody knows the nodes."""
    nearest: str | None = None
    """The domain that has most room, where it has to be in one: that of ``found`` pods. None where there is none."""


def place(
    capacity: Capacity,
    asked: Sequence[Asked],
    more: Mapping[str, Amounts] | None = None,
    *,
    thorough: bool = True,
) -> Allotment | Misplaced:
    """Return places for all pods of all sets, or why there are none; ``more`` is free besides, by node.

    Who asks for many sets of ``more`` in turn is not ``thorough``: then no second way is searched where the first one
    fails. Nothing is changed: the caller allots what was found.
    """
    overlay = Overlay(capacity, {node: dict(amounts) for node, amounts in (more or {}).items()})
    places: dict[str, dict[str, int]] = {}
    domains: dict[str, Mapping[str, str]] = {}
    rest = sorted((a for a in asked if a.count), key=lambda a: (-_dominant_share(capacity, a.shape), a.name))
    for unit in _units(rest):
        misplaced = _place_near(overlay, unit, places, domains)
        if misplaced is not None:
            return misplaced
    loose = [each for each in rest if each.name not in places]
    for each in loose:
        index = capacity.index(each.shape)
        found, left = _pick(index, overlay.adjusted(index), each.count)
        if left:
            alone = _alone(capacity, each, more) if places else each.count - left
            for placed in loose:
                overlay.take(placed.shape, places.pop(placed.name, {}), give_back=True)
            others = search(overlay, loose) if thorough and alone >= each.count and len(loose) > 1 else None
            if others is None:
                return Misplaced(each, each.count - left, certain=alone < each.count)
            places |= others
            break
        overlay.take(each.shape, found)
        places[each.name] = found
    places |= {each.name: _in_order(capacity, each, places[each.name]) for each in rest if each.near is not None}
    return Allotment({each.name: each.shape for each in asked if each.count}, places, domains)


def _units(asked: Iterable[Asked]) -> list[list[Asked]]:
    """Return the sets that are to be in one domain, those together that are to be in the same; required ones first."""
    units: dict[tuple[bool, str, str], list[Asked]] = {}
    for each in asked:
        if each.near is not None:
            key = (not each.near.required, each.near.level, f"/{each.together}" if each.together else each.name)
            units.setdefault(key, []).append(each)
    return [units[key] for key in sorted(units, key=lambda key: key[0])]


def _place_near(
    overlay: Overlay,
    unit: Sequence[Asked],
    places: dict[str, dict[str, int]],
    domains: dict[str, Mapping[str, str]],
) -> Misplaced | None:
    """Place a unit in the domain that has least room among those that hold it, as Kueue's best fit does; return why
    none does. One that need not be in one goes to as few as hold it then.
    """
    near = unit[0].near
    assert near is not None
    rooms = {each.name: _rooms(overlay, each.shape, near.level) for each in unit}
    totals = {
        each.name: {domain: sum(room[0] for room in nodes.values()) for domain, nodes in rooms[each.name].items()}
        for each in unit
    }
    first = totals[unit[0].name]
    enough = (domain for domain in first if all(totals[a.name].get(domain, 0) >= a.count for a in unit))
    for domain in sorted(enough, key=lambda domain: (first[domain], domain)):
        found = _place_within(overlay, unit, {each.name: rooms[each.name][domain] for each in unit})
        if found is not None:
            for each in unit:
                overlay.take(each.shape, found[each.name])
                if near.required:
                    domains[each.name] = {near.level: domain}
            places.update(found)
            return None
    if not near.required:
        for each in unit:
            spread = _over_several(overlay, each, near.level)
            if spread is not None:
                overlay.take(each.shape, spread)
                places[each.name] = spread
        return None
    short = next((a for a in unit if all(total < a.count for total in totals[a.name].values())), unit[0])
    most = totals[short.name]
    nearest = min(most, key=lambda domain: (-most[domain], domain), default=None)
    everywhere = overlay.capacity.index(short.shape).total
    certain = not overlay.more and everywhere < short.count
    return Misplaced(short, 0 if nearest is None else most[nearest], certain=certain, nearest=nearest)


def _place_within(
    overlay: Overlay, unit: Sequence[Asked], rooms: Mapping[str, Mapping[str, Room]]
) -> dict[str, dict[str, int]] | None:
    """Return places for all sets of a unit on the nodes of one domain, or None."""
    trial = Overlay(overlay.capacity, {node: dict(more) for node, more in overlay.more.items()})
    found: dict[str, dict[str, int]] = {}
    for each in unit:
        index = Index(each.shape, overlay.capacity.scarce(each.shape))
        now = (
            {node: trial.capacity.room(index, node, trial.more.get(node)) for node in rooms[each.name]} if found else {}
        )
        index.fill(now or rooms[each.name])
        found[each.name], left = _pick(index, {}, each.count)
        if left:
            return None
        trial.take(each.shape, found[each.name])
    return found


def _over_several(overlay: Overlay, asked: Asked, level: str) -> dict[str, int] | None:
    """Return places for a set in as few domains as hold it: those with most room, and of the rest the one that holds
    what is left with least to spare. None where all together do not.
    """
    rooms, places, wanted = _rooms(overlay, asked.shape, level), dict[str, int](), asked.count
    totals = {domain: sum(room[0] for room in nodes.values()) for domain, nodes in rooms.items()}
    while wanted and rooms:
        enough = [domain for domain in rooms if totals[domain] >= wanted]
        if enough:
            domain = min(enough, key=lambda each: (totals[each], each))
        else:
            domain = min(rooms, key=lambda each: (-totals[each], each))
        index = Index(asked.shape, overlay.capacity.scarce(asked.shape))
        index.fill(rooms.pop(domain))
        found, wanted = _pick(index, {}, wanted)
        places |= found
    return None if wanted else places


def _in_order(capacity: Capacity, asked: Asked, places: Mapping[str, int]) -> dict[str, int]:
    """Return places domain by domain: pods that have ranks take them one after another."""
    level = "" if asked.near is None else asked.near.level
    return dict(sorted(places.items(), key=lambda place: (capacity.nodes[place[0]].labels.get(level, ""), place[0])))


def _rooms(overlay: Overlay, shape: Shape, level: str) -> dict[str, dict[str, Room]]:
    """Return the nodes that hold pods of a shape with their room, by the value that they have of a label."""
    index, found = overlay.capacity.index(shape), dict[str, dict[str, Room]]()
    for name, room in {**index.rooms, **overlay.adjusted(index)}.items():
        domain = overlay.capacity.nodes[name].labels.get(level) if room[0] else None
        if domain is not None:
            found.setdefault(domain, {})[name] = room
    return found


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
