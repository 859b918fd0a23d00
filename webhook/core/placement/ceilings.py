"""Whether a gang could find nodes if all were gone that it may have stopped: a "no" is certain, and cheap.

For each kind of gang that asked lately, the room on every node is kept as it would be then. Only nodes that changed are
counted again, and what those hold who joined or left the gangs that may be stopped. One of these that ends changes
nothing: what it held is free, and was counted already.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.amounts import Amounts
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.index import Index
from webhook.core.nodes.shape import Shape
from webhook.core.placement.gate import Gate
from webhook.core.placement.overlay import Asked

CEILINGS_MAX: Final = 8
"""Kept; each takes some megabytes at 10,000 nodes, and the one used longest ago goes first."""


@dataclass(slots=True)
class _Ceiling:
    """The room on every node for pods of one shape, with some gangs gone."""

    capacity: Capacity
    index: Index
    seen: int = -1
    """How many changes of nodes are in it."""
    gone: dict[str, Mapping[str, Amounts]] = field(default_factory=dict)
    """Gang to what it holds, by node, as it is counted here."""
    more: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node to amounts that are free besides: the sums of that. What claims would keep of it is left out of account."""

    def catch_up(self, gangs: Collection[str]) -> None:
        """Count ``gangs`` as gone, on the nodes as they are."""
        capacity, changed = self.capacity, dict[str, None]()
        for gang in [gang for gang in self.gone if gang not in gangs]:
            self._add(self.gone.pop(gang), -1, changed)
        for gang in gangs:
            now, before = capacity.held(gang), self.gone.get(gang)
            if now is before or not (now or before):
                continue
            if before is not None:
                self._add(before, -1, changed)
                del self.gone[gang]
            if now:
                self._add(now, 1, changed)
                self.gone[gang] = now
        since = None if self.seen < 0 else capacity.changed_since(self.seen)
        if since is None:
            self._read()
        else:
            for node in (*changed, *(node for node in since if node not in changed)):
                self.index.set(node, capacity.room(self.index, node, self.more.get(node)))
        self.seen = capacity.changes

    def _read(self) -> None:
        """Count all nodes, as it is new or nobody knows which changed."""
        self.index = Index(self.index.shape, self.index.scarce)
        rooms = {node: self.capacity.room(self.index, node, self.more.get(node)) for node in self.capacity.nodes}
        self.index.fill({node: room for node, room in rooms.items() if room[0]})

    def _add(self, held: Mapping[str, Amounts], sign: int, changed: dict[str, None]) -> None:
        for node, amounts in held.items():
            more = self.more.setdefault(node, {})
            for name, amount in amounts.items():
                more[name] = more.get(name, 0) + sign * amount
            changed[node] = None


class Ceilings:
    """Those that were asked about last."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Hashable, Shape], _Ceiling] = {}

    def may_hold(self, capacity: Capacity, asked: Sequence[Asked], kind: Hashable, gangs: Collection[str]) -> bool:
        """Return whether each of ``asked`` might find nodes once ``gangs`` are gone; False is certain.

        Who asks as the same ``kind`` names much the same gangs: what was counted for the last one is used again.
        """
        return all(Gate(capacity, each, self._index(capacity, each.shape, kind, gangs)).open for each in asked)

    def _index(self, capacity: Capacity, shape: Shape, kind: Hashable, gangs: Collection[str]) -> Index:
        ceiling = self._kept.pop((kind, shape), None)
        if ceiling is None or ceiling.capacity is not capacity:
            ceiling = _Ceiling(capacity, Index(shape, capacity.scarce(shape)))
        ceiling.catch_up(gangs)
        self._kept[kind, shape] = ceiling
        if len(self._kept) > CEILINGS_MAX:
            del self._kept[next(iter(self._kept))]
        return ceiling.index
