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

from webhook.core.model import names
from webhook.core.model.amounts import Amounts
from webhook.core.placement.allotment import Allotment
from webhook.core.placement.capacity import Capacity, Index, Room
from webhook.core.placement.overlay import Asked, Overlay
from webhook.core.placement.search import search
from webhook.core.placement.shape import Shape

Domain = tuple[str, ...]
"""The values that its nodes have of the labels of a level and of those above it."""


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
    none does. One that need not be in one goes to one of a wider level then, and at last to as few as hold it.
    """
    near = unit[0].near
    assert near is not None
    path = _path(unit[0])
    for depth in range(len(path), len(path) - 1 if near.required else 0, -1):
        domain = _place_in_one(overlay, unit, path[:depth], places)
        if domain is not None:
            if near.required:
                domains.update({each.name: dict(zip(path, domain, strict=True)) for each in unit})
            return None
    if not near.required:
        for each in unit:
            spread = _over_several(overlay, each)
            if spread is not None:
                overlay.take(each.shape, spread)
                places[each.name] = spread
        return None
    totals = {each.name: _totals(_rooms(overlay, each.shape, path)) for each in unit}
    short = next((a for a in unit if all(total < a.count for total in totals[a.name].values())), unit[0])
    most = totals[short.name]
    nearest = min(most, key=lambda domain: (-most[domain], domain), default=None)
    everywhere = overlay.capacity.index(short.shape).total
    certain = not overlay.more and everywhere < short.count
    if nearest is None:
        return Misplaced(short, 0, certain=certain)
    return Misplaced(short, most[nearest], certain=certain, nearest="/".join(nearest))


def _place_in_one(
    overlay: Overlay, unit: Sequence[Asked], path: tuple[str, ...], places: dict[str, dict[str, int]]
) -> Domain | None:
    """Place a unit in one domain of the level that ``path`` leads to, and return it; None where no one holds it."""
    rooms = {each.name: _rooms(overlay, each.shape, path) for each in unit}
    totals = {name: _totals(found) for name, found in rooms.items()}
    first = totals[unit[0].name]
    enough = (domain for domain in first if all(totals[a.name].get(domain, 0) >= a.count for a in unit))
    for domain in sorted(enough, key=lambda domain: (first[domain], domain)):
        found = _place_within(overlay, unit, {name: of_set[domain] for name, of_set in rooms.items()}, len(path))
        if found is not None:
            for each in unit:
                overlay.take(each.shape, found[each.name])
            places.update(found)
            return domain
    return None


def _place_within(
    overlay: Overlay, unit: Sequence[Asked], rooms: Mapping[str, Mapping[str, Room]], depth: int
) -> dict[str, dict[str, int]] | None:
    """Return places for all sets of a unit on the nodes of one domain of a level ``depth`` deep, or None."""
    trial = Overlay(overlay.capacity, {node: dict(more) for node, more in overlay.more.items()})
    found: dict[str, dict[str, int]] = {}
    for each in unit:
        index = Index(each.shape, overlay.capacity.scarce(each.shape))
        now = (
            {node: trial.capacity.room(index, node, trial.more.get(node)) for node in rooms[each.name]} if found else {}
        )
        index.fill(_descend(overlay.capacity, each, now or rooms[each.name], depth))
        found[each.name], left = _pick(index, {}, each.count)
        if left:
            return None
        trial.take(each.shape, found[each.name])
    return found


def _over_several(overlay: Overlay, asked: Asked) -> dict[str, int] | None:
    """Return places for a set in as few domains as hold it: those with most room, and of the rest the one that holds
    what is left with least to spare. None where all together do not.
    """
    places, wanted = dict[str, int](), asked.count
    widest = _rooms(overlay, asked.shape, _path(asked)[:1])
    for domain in _fewest(widest, wanted):
        index = Index(asked.shape, overlay.capacity.scarce(asked.shape))
        index.fill(_descend(overlay.capacity, asked, widest[domain], 1, wanted))
        found, wanted = _pick(index, {}, wanted)
        places |= found
    return None if wanted else places


def _descend(
    capacity: Capacity, asked: Asked, rooms: Mapping[str, Room], depth: int, wanted: int | None = None
) -> Mapping[str, Room]:
    """Return those of a domain's nodes that are in as few domains of each level below it as hold the set."""
    levels = asked.shape.levels
    for end in range(depth + 1, len(levels) + 1):
        if levels[end - 1] == names.HOSTNAME:
            break  # single nodes are picked by their room
        within = _by_domain(capacity, rooms, levels[:end])
        chosen = _fewest(within, asked.count if wanted is None else wanted)
        rooms = {node: room for domain in chosen for node, room in within[domain].items()}
    return rooms


def _fewest(rooms: Mapping[Domain, Mapping[str, Room]], wanted: int) -> list[Domain]:
    """Return the domains with most room, until one of the rest holds what is left: of these the one with least."""
    totals, chosen = _totals(rooms), list[Domain]()
    while wanted > 0 and totals:
        enough = [domain for domain in totals if totals[domain] >= wanted]
        if enough:
            domain = min(enough, key=lambda each: (totals[each], each))
        else:
            domain = min(totals, key=lambda each: (-totals[each], each))
        wanted -= totals.pop(domain)
        chosen.append(domain)
    return chosen


def _path(asked: Asked) -> tuple[str, ...]:
    """Return the labels that tell the domains of a set apart: that which it names, below those above it."""
    assert asked.near is not None
    levels, level = asked.shape.levels, asked.near.level
    return levels[: levels.index(level) + 1] if level in levels else (level,)


def _in_order(capacity: Capacity, asked: Asked, places: Mapping[str, int]) -> dict[str, int]:
    """Return places domain by domain: pods that have ranks take them one after another."""
    levels = asked.shape.levels or _path(asked)

    def place(node: str) -> tuple[list[str], str]:
        labels = capacity.nodes[node].labels
        return [labels.get(level, "") for level in levels], node

    return {node: places[node] for node in sorted(places, key=place)}


def _rooms(overlay: Overlay, shape: Shape, path: tuple[str, ...]) -> dict[Domain, dict[str, Room]]:
    """Return the nodes that hold pods of a shape with their room, by the values that they have of some labels."""
    index = overlay.capacity.index(shape)
    return _by_domain(overlay.capacity, {**index.rooms, **overlay.adjusted(index)}, path)


def _by_domain(capacity: Capacity, rooms: Mapping[str, Room], path: tuple[str, ...]) -> dict[Domain, dict[str, Room]]:
    found: dict[Domain, dict[str, Room]] = {}
    for name, room in rooms.items():
        if not room[0]:
            continue
        labels = capacity.nodes[name].labels
        domain = tuple(labels[level] for level in path if level in labels)
        if len(domain) == len(path):
            found.setdefault(domain, {})[name] = room
    return found


def _totals(rooms: Mapping[Domain, Mapping[str, Room]]) -> dict[Domain, int]:
    return {domain: sum(room[0] for room in nodes.values()) for domain, nodes in rooms.items()}


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
