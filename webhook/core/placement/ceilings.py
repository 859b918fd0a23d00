"""Whether a gang could find nodes if all gangs were gone that it may have stopped: a "no" is certain, and cheap.

For each kind of gang that asked lately, what others hold that it may have stopped is kept added up, by node, and for
each shape the room on every node as it would be then. Only nodes that changed are counted again, and what those hold
who joined or left the gangs that may be stopped. One of these that ends changes nothing: what it held is free, and was
counted already. Who asks first about many gangs has to ask several times, because they are counted in steps.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.changes import Changes
from webhook.core.nodes.columns import Asks
from webhook.core.nodes.domains import keep_last
from webhook.core.nodes.ranking import Ranking
from webhook.core.nodes.shape import Shape
from webhook.core.notation.amounts import Amounts
from webhook.core.placement.overlay import Asked
from webhook.core.placement.prefilter import Prefilter

CEILINGS_MAX: Final = 8
"""Kept; each takes some megabytes at 10,000 nodes, and the one used longest ago goes first."""

COUNTED_AT_ONCE: Final = 15_000
"""What gangs hold that are new here is added up on so many nodes, one counted again for each gang there, before who
asks has to ask once more: some hundredths of a second."""


@dataclass(slots=True)
class _Gone:
    """What some gangs hold together."""

    capacity: Capacity
    gangs: dict[str, Mapping[str, Amounts]] = field(default_factory=dict)
    """Gang to what it holds, by node, as it is counted here."""
    more: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each resource and port, node to what is free besides: the sums of that. What claims would keep of it is left
    out of account."""
    changes: Changes = field(default_factory=Changes)
    """Of that."""

    def catch_up(self, gangs: Collection[str]) -> bool:
        """Count ``gangs``, and no others; return whether that is done."""
        left = COUNTED_AT_ONCE
        # What has changed is counted besides: so those that are new have their turn, whatever changes.
        for gang in [gang for gang in self.gangs if gang not in gangs]:
            self._add(self.gangs.pop(gang), -1)
        for gang in gangs:
            if left <= 0 and gang not in self.gangs:
                return False
            now, before = self.capacity.held(gang), self.gangs.get(gang)
            if now is before or not (now or before):
                continue
            if before is None:
                left -= len(now)
            else:
                self._add(before, -1)
                del self.gangs[gang]
            if now:
                self._add(now, 1)
                self.gangs[gang] = now
        return True

    def on(self, node: str) -> dict[str, int]:
        """Return what is free besides on one node."""
        return {name: of[node] for name, of in self.more.items() if node in of}

    def _add(self, held: Mapping[str, Amounts], sign: int) -> None:
        self.changes.note(held, len(self.capacity.nodes))
        for node, amounts in held.items():
            for name, amount in amounts.items():
                of = self.more.setdefault(name, {})
                now = of.get(node, 0) + sign * amount
                if now:
                    of[node] = now
                    continue
                # Whoever writes jobs may use one host port after another.
                of.pop(node, None)
                if not of:
                    del self.more[name]


@dataclass(slots=True)
class _Ceiling:
    """The room on every node for pods of one shape, with some gangs gone."""

    gone: _Gone
    ranking: Ranking
    seen: tuple[int, int] | None = None
    """How many changes of nodes, and of what the gangs hold, are in it."""

    def catch_up(self) -> None:
        """Count what has changed."""
        capacity, gone = self.gone.capacity, self.gone
        of_nodes, of_gone = (
            (None, None) if self.seen is None else map(Changes.since, (capacity.changes, gone.changes), self.seen)
        )
        if of_nodes is None or of_gone is None:
            self._read()
        else:
            for node in dict.fromkeys((*of_gone, *of_nodes)):
                self.ranking.set(node, capacity.room(self.ranking, node, gone.on(node)))
        self.seen = capacity.changes.count, gone.changes.count

    def _read(self) -> None:
        """Count all nodes, as it is new or nobody knows which changed."""
        capacity, shape, asked = self.gone.capacity, self.ranking.shape, list[Asks]()
        self.ranking = Ranking(shape, self.ranking.scarce)
        for name, amount, column in capacity.asked(shape):
            left, rows = column.copy(), capacity.rows
            for node, more in self.gone.more.get(name, {}).items():
                if node in rows:
                    left[rows[node]] += more
            asked.append((name, amount, left))
        self.ranking.read(capacity.names, asked, capacity.verdict(shape))
        capacity.looked += len(capacity.names)


@dataclass(slots=True)
class _Kept:
    """What was counted last, for decisions or for questions."""

    gone: dict[Hashable, _Gone] = field(default_factory=dict)
    """By kind."""
    _ceilings: dict[tuple[Hashable, Shape], _Ceiling] = field(default_factory=dict)

    def may_hold(
        self, capacity: Capacity, asked: Sequence[Asked], kind: Hashable, gangs: Collection[str]
    ) -> bool | None:
        """Return what ``Ceilings.may_hold`` does."""
        gone = self.gone.pop(kind, None)
        if gone is None or gone.capacity is not capacity:
            gone = _Gone(capacity)
        keep_last(self.gone, kind, gone, CEILINGS_MAX)
        if not gone.catch_up(gangs):
            return None
        # A yes is not certain anyway: of more sets than are kept those of most pods say no.
        widest = sorted(asked, key=lambda each: -each.count)[:CEILINGS_MAX]
        return all(Prefilter(capacity, each, self._ranking(gone, each.shape, kind)).open for each in widest)

    def _ranking(self, gone: _Gone, shape: Shape, kind: Hashable) -> Ranking:
        ceiling = self._ceilings.pop((kind, shape), None)
        if ceiling is None or ceiling.gone is not gone:
            ceiling = _Ceiling(gone, Ranking(shape, gone.capacity.largest.scarce(shape)))
        ceiling.catch_up()
        keep_last(self._ceilings, (kind, shape), ceiling, CEILINGS_MAX)
        return ceiling.ranking


class Ceilings:
    """Those that were asked about last. A question counts apart, so that it has no effect on decisions.

    While a kind is counted for decisions nothing else begins to be, which might push out what is counted already: the
    others stand in line. Each has its turn that asks in every cycle; one that has not asked in the last lapses.
    """

    def __init__(self) -> None:
        self._decided, self._asked = _Kept(), _Kept()
        self._line: dict[Hashable, bool] = {}
        """Kinds that have no answer yet, the one that is counted first, to whether they have asked in this cycle."""
        self.waiting: dict[str, None] = {}
        """Uids of the gangs that had no answer yet in this cycle."""
        self.unanswered = 0
        """How often there was no answer yet for a decision."""

    def begin_cycle(self) -> None:
        """Let those lapse that nobody has asked about in the last cycle: their gangs started, are gone, or wait for
        something else.
        """
        self.waiting = {}
        self._line = {kind: False for kind, asked in self._line.items() if asked}

    def may_hold(
        self, capacity: Capacity, asked: Sequence[Asked], kind: Hashable, gangs: Collection[str], gang: str
    ) -> bool | None:
        """Return whether each of ``asked`` of ``gang`` might find nodes once ``gangs`` are gone. False is certain;
        None: ask again, they are not all counted yet.

        Gangs of the same ``kind`` name much the same others: what was counted for the last one is used again.
        """
        if capacity.asking:
            return self._asked.may_hold(capacity, asked, kind, gangs)
        answer = None
        if kind in self._decided.gone or kind == next(iter(self._line), kind):
            answer = self._decided.may_hold(capacity, asked, kind, gangs)
        if answer is None:
            self._line[kind], self.waiting[gang] = True, None
            self.unanswered += 1
        else:
            self._line.pop(kind, None)
        return answer
