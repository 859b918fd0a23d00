"""Where sets go whose pods are to be near each other: in one domain of a level, each slice of them in one of another.

Kueue's order and tie-breaks: of the domains that hold the set, the one with least room, of equal ones the first by the
values of its labels. A wish that no domain holds climbs to the next wider level, and at last takes as few domains as
hold the set. On each level below, as few as hold it are taken; below the level of the slices those with least room.
A set with slices and no level of its own goes to the widest level, the smallest holes first. Of a group of a leader and
its workers the domain is chosen by the workers, and in it the leader's node, where it takes least of their room.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.domains import Domain, Path
from webhook.core.nodes.ranking import Ranking, Room
from webhook.core.nodes.shape import Shape
from webhook.core.notation import names
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked, Overlay

MOST_SEATS: Final = 256
"""Nodes that are looked at for a leader, those with least room for it: each costs some microseconds."""

Size = tuple[int, int]
"""How many slices something holds, and how many pods; a set without slices has them of one pod."""


def units(asked: Iterable[Asked]) -> list[list[Asked]]:
    """Return the sets that are to be in one domain, those together that are to be in the same; required ones first."""
    found: dict[tuple[bool, str, str], list[Asked]] = {}
    for each in asked:
        if each.near is not None and not each.near.anywhere:
            key = (not each.near.required, each.near.level, f"/{each.together}" if each.together else each.name)
            found.setdefault(key, []).append(each)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def place_near(
    overlay: Overlay,
    unit: Sequence[Asked],
    places: dict[str, dict[str, int]],
    domains: dict[str, Mapping[str, str]],
) -> Misplaced | None:
    """Place the sets of a unit in one domain, or as near to each other as they have to be; return why that fails. A
    wish that holds nowhere places nothing.
    """
    near = unit[0].near
    assert near is not None
    own = levels_of(unit[0])
    depth = own.index(near.level) + 1 if near.level else 1
    for end in range(len(own) if near.path and near.level else depth, depth - 1 if near.required else 0, -1):
        domain = _place_in_one(overlay, unit, end, places)
        if domain is not None:
            if near.required:
                # A narrower one that holds it now need not hold who replaces a pod of it.
                domains.update({each.name: dict(zip(own[:depth], domain[:depth], strict=True)) for each in unit})
            return None
    if not near.required:
        for each in unit:
            ground = _Ground(overlay, each)
            spread = ground.place(_fewest(ground.sizes(1), ground.wanted, least=ground.least), 1)
            if spread is not None:
                overlay.take(each.shape, spread)
                places[each.name] = spread
            elif each.slices:
                slices = sum(size[0] for size in ground.sizes(1).values())
                return Misplaced(each, slices * each.slices, certain=False)
        return None
    return _why(overlay, unit, depth)


def in_order(capacity: Capacity, asked: Asked, places: Mapping[str, int]) -> dict[str, int]:
    """Return places domain by domain: pods that have ranks take them one after another."""
    levels = levels_of(asked)

    def place(node: str) -> tuple[list[str], str]:
        labels = capacity.nodes[node].labels
        return [labels.get(level, "") for level in levels], node

    return {node: places[node] for node in sorted(places, key=place)}


def levels_of(asked: Asked) -> Path:
    """Return the labels that tell the domains of a set apart: its topology's, else those that it names itself."""
    assert asked.near is not None
    named = dict.fromkeys(level for level in (asked.near.level, asked.near.slice_level) if level)
    if asked.near.path:
        return asked.near.path
    return asked.shape.levels if named.keys() <= {*asked.shape.levels} else tuple(named)


def _place_in_one(
    overlay: Overlay, unit: Sequence[Asked], depth: int, places: dict[str, dict[str, int]]
) -> Domain | None:
    """Place a unit in one domain ``depth`` levels deep, and return it; None where no one holds it."""
    # Of a leader and its workers these choose.
    grounds = [_Ground(overlay, each) for each in (unit if _leader(unit) is None else sorted(unit, key=_fewer))]
    first, *others = [(ground.sizes(depth), ground.wanted) for ground in grounds]
    enough = {
        domain: size
        for domain, size in first[0].items()
        if size[0] >= first[1] and all(sizes.get(domain, (0, 0))[0] >= wanted for sizes, wanted in others)
    }
    while enough:
        domain = min(enough, key=lambda each: (enough[each], each))
        found = _place_within(overlay, unit, domain)
        if found is not None:
            for each in unit:
                overlay.take(each.shape, found[each.name])
            places.update(found)
            return domain
        del enough[domain]
    return None


def _place_within(overlay: Overlay, unit: Sequence[Asked], domain: Domain) -> dict[str, dict[str, int]] | None:
    """Return places for all sets of a unit on the nodes of one domain, or None."""
    leader = _leader(unit)
    seat = None if leader is None else _seat(overlay, leader, max(unit, key=lambda each: each.count), domain)
    if leader is not None and seat is not None:
        found = _in_turn(overlay, unit, domain, {leader.name: {seat: 1}})
        if found is not None:
            return found
    return _in_turn(overlay, unit, domain, {})


def _in_turn(
    overlay: Overlay, unit: Sequence[Asked], domain: Domain, found: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]] | None:
    """Return places within one domain for one set after the other, in addition to those already ``found``."""
    trial = overlay if len(unit) == 1 else overlay.copy()
    for each in unit:
        trial.take(each.shape, found.get(each.name, {}))
    for each in unit:
        if each.name in found:
            continue
        ground = _Ground(trial, each)
        placed = ground.place([(domain, ground.wanted)], len(domain))
        if placed is None:
            return None
        found[each.name] = placed
        if trial is not overlay:
            trial.take(each.shape, placed)
    return found


def _leader(unit: Sequence[Asked]) -> Asked | None:
    """Return the set of one pod next to another one, as Kueue tells a leader from its workers."""
    leader = min(unit, key=lambda each: each.count)
    return leader if len(unit) == 2 and leader.count == 1 else None


def _fewer(asked: Asked) -> int:
    return -asked.count


def _seat(overlay: Overlay, leader: Asked, workers: Asked, domain: Domain) -> str | None:
    """Return the node of a domain on which the leader takes least of the workers' room."""
    nodes, ground = _Ground(overlay, leader).nodes(domain), _Ground(overlay, workers)
    levels = levels_of(workers)

    def price(node: str) -> tuple[tuple[int, int, int], list[str], str]:
        labels = overlay.capacity.nodes[node].labels
        return ground.beside(node, leader.shape), [labels.get(level, "") for level in levels], node

    tightest = nsmallest(MOST_SEATS, nodes, key=lambda node: (nodes[node], node))
    return min(tightest, key=price, default=None)


def _why(overlay: Overlay, unit: Sequence[Asked], depth: int) -> Misplaced:
    sizes = {each.name: _Ground(overlay, each).sizes(depth) for each in unit}
    wanted = {each.name: _Ground(overlay, each).wanted for each in unit}
    short = next((a for a in unit if all(s < wanted[a.name] for s, _ in sizes[a.name].values())), unit[0])
    most = sizes[short.name]
    nearest = min(most, key=lambda domain: (-most[domain][0], domain), default=None)
    certain = not overlay.more and overlay.capacity.ranking(short.shape).total < short.count
    if nearest is None:
        return Misplaced(short, 0, certain=certain)
    found = most[nearest][0] * (short.slices or 1)
    return Misplaced(short, found, certain=certain, nearest="/".join(nearest))


class _Ground:
    """Where the pods of one set can go, in addition to what an overlay has taken."""

    def __init__(self, overlay: Overlay, asked: Asked) -> None:
        near = asked.near
        assert near is not None
        self.asked = asked
        self.levels = levels_of(asked)
        self.size = asked.slices or 1
        self.wanted = -(-asked.count // self.size)
        """Slices; the last may lack some pods."""
        self.least = not near.level
        """The smallest holes are filled first."""
        self._overlay = overlay
        self._capacity = overlay.capacity
        self._ranking: Ranking = overlay.capacity.ranking(asked.shape)
        self._adjusted: Mapping[str, Room] = overlay.adjusted(self._ranking)
        self._sliced = self.levels.index(near.slice_level) + 1 if asked.slices else len(self.levels)
        """How deep a slice may not be torn apart any more."""

    def sizes(self, depth: int) -> dict[Domain, Size]:
        """Return what each domain ``depth`` levels deep holds, of those that hold a pod."""
        pods = self._pods(depth)
        if self.size == 1:
            return {domain: (count, count) for domain, count in pods.items()}
        slices: dict[Domain, int] = {}
        for domain, count in self._pods(self._sliced).items():
            outer = domain[:depth]
            slices[outer] = slices.get(outer, 0) + count // self.size
        return {domain: (slices.get(domain, 0), count) for domain, count in pods.items()}

    def place(self, chosen: Sequence[tuple[Domain, int]] | None, depth: int) -> dict[str, int] | None:
        """Return places for all slices within the ``chosen`` domains; None where none were, or they do not fit."""
        if chosen is None:
            return None
        for end in range(depth + 1, self._sliced + 1):
            if self._is_node(end):
                return self._on_nodes([domain for domain, _ in chosen])
            outer = {domain for domain, _ in chosen}
            within = {domain: size for domain, size in self.sizes(end).items() if domain[: end - 1] in outer}
            found = _fewest(within, self.wanted, least=self.least)
            if found is None:
                return None
            chosen = found
        if self.size == 1:
            return self._on_nodes([domain for domain, _ in chosen])
        places, left = dict[str, int](), self.asked.count
        for domain, slices in sorted(chosen):
            pods = min(slices * self.size, left)
            self._fill(domain, pods, places)
            left -= pods
        return places

    def _on_nodes(self, domains: Sequence[Domain]) -> dict[str, int] | None:
        """Return places for all slices on single nodes of ``domains``."""
        nodes = {
            (*domain, node): (count // self.size, count)
            for domain in domains
            for node, count in self.nodes(domain).items()
        }
        places, left = dict[str, int](), self.asked.count
        for (*_, node), slices in _fewest(nodes, self.wanted, least=self.least) or ():
            pods = min(slices * self.size, left)
            if pods:
                places[node] = pods
            left -= pods
        return None if left else places

    def _fill(self, domain: Domain, wanted: int, places: dict[str, int]) -> None:
        """Place pods within a domain in which no slice is torn apart any more, those places first that hold fewest."""
        end = len(domain) + 1
        if end > len(self.levels) or self._is_node(end):
            for node, count in sorted(self.nodes(domain).items(), key=lambda found: (found[1], found[0])):
                pods = min(count, wanted)
                if pods:
                    places[node] = pods
                wanted -= pods
            return
        children = {inner: count for inner, count in self._pods(end).items() if inner[:-1] == domain}
        for inner in sorted(children, key=lambda each: (children[each], each)):
            pods = min(children[inner], wanted)
            if pods:
                self._fill(inner, pods, places)
            wanted -= pods

    def _is_node(self, depth: int) -> bool:
        return self.levels[depth - 1] == names.HOSTNAME

    def _pods(self, depth: int) -> Mapping[Domain, int]:
        """Return how many pods each domain of a level holds, if any."""
        domains = self._capacity.domains(self.levels[:depth])
        usual = self._ranking.sums(domains)
        if not self._adjusted:
            return usual
        pods = dict(usual)
        for node, room in self._adjusted.items():
            domain = domains.of.get(node)
            if domain is not None:
                pods[domain] = pods.get(domain, 0) + room[0] - self._ranking.rooms.get(node, (0, 0))[0]
        return {domain: count for domain, count in pods.items() if count}

    def beside(self, node: str, shape: Shape) -> tuple[int, int, int]:
        """Return what is lost if a pod of another ``shape`` goes to ``node``: slices, then what stays there, slices as
        many as can be, and pods as few as can be.
        """
        taken = dict(self._overlay.more.get(node, {}))
        for name, amount in shape.uses.items():
            taken[name] = taken.get(name, 0) - amount
        room = self._adjusted[node] if node in self._adjusted else self._ranking.rooms.get(node, (0, 0))
        left = self._capacity.room(self._ranking, node, taken)[0]
        together = before = room[0]
        if self.size > 1 and not self._is_node(self._sliced):
            domain = self._capacity.domains(self.levels[: self._sliced]).of.get(node, ())
            together = self._pods(self._sliced).get(domain, 0)
        lost = together // self.size - (together - before + left) // self.size
        return lost, -(left // self.size), left

    def nodes(self, domain: Domain) -> dict[str, int]:
        """Return the nodes of a domain that hold pods, and how many."""
        usual, adjusted = self._ranking.rooms, self._adjusted
        members = self._capacity.domains(self.levels[: len(domain)]).members.get(domain, ())
        if not adjusted:
            return {node: usual[node][0] for node in members if node in usual}
        pods = {node: (adjusted.get(node) or usual.get(node, (0, 0)))[0] for node in members}
        return {node: count for node, count in pods.items() if count}


def _fewest(sizes: Mapping[Domain, Size], wanted: int, *, least: bool = False) -> list[tuple[Domain, int]] | None:
    """Return where ``wanted`` slices go, and how many to each: to those that hold most, until one of the rest holds
    what is left, and of these to the one that holds least; with ``least`` to the smallest first. None where all
    together do not hold them.
    """
    chosen = list[tuple[Domain, int]]()
    order = sorted(sizes, key=lambda each: ((sizes[each][0] if least else -sizes[each][0]), sizes[each][1], each))
    for place, each in enumerate(order):
        if not least and sizes[each][0] >= wanted:
            best = min((other for other in order[place:] if sizes[other][0] >= wanted), key=lambda o: (sizes[o], o))
            return [*chosen, (best, wanted)]
        taken = min(sizes[each][0], wanted)
        if taken:
            chosen.append((each, taken))
            wanted -= taken
        if not wanted:
            return chosen
    return None if wanted else chosen
