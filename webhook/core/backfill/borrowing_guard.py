"""Hunger: a queue that has all its own takes no room that a gang of another queue, still below its own, waits for.

kube-queue's rule for trees of minimum and maximum, against starvation without stopping anybody: without it a queue of
many small gangs takes each bit of room that becomes free, and a large gang elsewhere never finds enough at once. Only
queues that say so (``Queue.yields_to_hungry``) hunger and yield, and only to others of their tree. Said exactly:

- A gang is *hungry* when its queue uses less than it owns of everything that the gang asks and the queue owns any of;
  when nothing but room keeps it waiting (no fence, stop, back-off or wrong flavor); and when it could start once all
  that other queues took beyond what they own has ended. One that this would not help holds nobody up.
- It holds up a gang of another queue when both ask a resource of which, below the cohort where the two sides meet, the
  one side has all that it owns and the other side less; and when with that gang there, the hungry one would not have
  room for it, at a node that both use.

A gang whose own queue is below what it owns is held up by nobody, so that no two wait for each other; neither is one
that may use guaranteed quota only. Upstream looks at leaves and not at resources, and holds for whatever waits.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.model import quantity
from webhook.core.model.policy import FlavorResource, Queue
from webhook.core.model.reasons import Code, Reason
from webhook.core.model.wake_keys import Owed
from webhook.core.pending.pending_queues import WaitingRoom
from webhook.core.pending.queueing import Lane, Line
from webhook.core.quota.allocations import Holding, Holdings
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor, Node, Usage


@dataclass(frozen=True, slots=True)
class _Held:
    """What holds a gang up."""

    hungry: Line
    owed: Owed


@dataclass(slots=True)
class Hunger:
    """Who is held up by whom, and who is to be told when that ends."""

    room: WaitingRoom
    holdings: Holdings
    watched: dict[Owed, None] = field(default_factory=dict)
    """What somebody is held up by."""
    _settled: int = -1
    """Version of the holdings when ``watched`` was last gone through."""
    _found: dict[Lane, list[tuple[Line, AmountsByFlavor]]] = field(default_factory=dict)
    """The hungry lines of a queue in order, with what they ask."""
    _found_at: tuple[int, int] = (-1, -1)
    """What holdings and waiting gangs were when they were found."""

    def judge(self, line: Line, decision: Decision, fences: Fences, usage: Usage | None = None) -> Decision:
        """Return ``decision`` about the head of ``line``, blocked if it would start and somebody hungry needs the room.

        ``usage`` is what is taken, where that is not what the holdings say.
        """
        if not (decision.fits or decision.preempts) or not _yields(line.lane.queue, line.head.preemptible):
            return decision
        assert line.lane.node is not None
        view = self.holdings.outlook if usage is None else usage
        taking = _Taking(line.lane.node, decision.assignment.usage, view)
        # For the head of a strict queue nothing is held back while it is judged: what is found then counts for it only.
        held = self._holder(taking, fences, anew=usage is not None or line.lane.strict or line.lane.backfills)
        if held is None:
            return decision
        return replace(decision, fence=_reason(held, taking), victims=(), awaits=(), owed=held.owed)

    def lets_grow(self, holding: Holding, extra: AmountsByFlavor, fences: Fences) -> bool:
        """Return whether an admitted gang can take ``extra`` and keep nobody hungry waiting."""
        lane, node = self.room.lanes.get(holding.reservation.queue), self.holdings.node_of(holding)
        if node is None or lane is None or not _yields(lane.queue, holding.reservation.preemptible):
            return True
        held = self._holder(_Taking(node, extra, self.holdings.outlook), fences)
        if held is not None:
            self.watch(held.owed)
        return held is None

    def watch(self, owed: Owed) -> None:
        """Remember that somebody is held up by this."""
        self.watched[owed] = None

    def settle(self, fences: Fences, *, anew: bool) -> bool:
        """Wake those whom nobody hungry holds up any more; return whether there may be some.

        ``anew`` tells that more may have changed than holdings.
        """
        if anew:
            self._found.clear()
        if not self.watched or (self._settled == self.holdings.version and not anew):
            return False
        self._settled = self.holdings.version
        over = [owed for owed in self.watched if not self._lasts(owed, fences)]
        for owed in over:
            del self.watched[owed]
            self.room.wake(owed)
        return bool(over)

    def _lasts(self, owed: Owed, fences: Fences) -> bool:
        lane, usage = self.room.lanes.get(owed.queue), self.holdings.outlook
        line = None if lane is None else lane.lines.get(owed.equivalence)
        if line is None or line.lane.node is None or line not in _whose_turn_may_come(line.lane):
            return False
        node = line.lane.node
        meeting = next((each for each in node.path() if each.index == owed.cohort), None)
        asked = {} if meeting is None else _hungry(line, fences, usage)
        if meeting is None or owed.key not in asked:
            return False
        side = list(_side(node, meeting))
        return _short(usage, side, owed.key) and not _kept_out_by(usage, node, side, owed.key, asked[owed.key])

    def _holder(self, taking: "_Taking", fences: Fences, *, anew: bool = False) -> _Held | None:
        """Return a hungry gang that would be kept waiting: of the queues in the order of their names, the first one."""
        for lane in () if taking.below_own() else self.room.yielding.get(taking.node.root, ()):
            keys = [] if lane.node is None or lane.node is taking.node else taking.contested(lane.node)
            if not keys or lane.node is None:
                continue
            found = _all_hungry(lane, fences, taking.usage) if anew else self._hungry_in(lane, fences)
            lacking = taking.first_lacking(found, lane.node, keys)
            if lacking is not None:
                line, key = lacking
                return _Held(line, Owed(lane.node.name, line.key, _meeting(taking.node, lane.node).index, key))
        return None

    def _hungry_in(self, lane: Lane, fences: Fences) -> list[tuple[Line, AmountsByFlavor]]:
        """Return the hungry lines of a queue, found once for as long as nothing has changed."""
        at = (self.holdings.version, self.room.changes)
        if at != self._found_at:
            self._found, self._found_at = {}, at
        if lane not in self._found:
            self._found[lane] = _all_hungry(lane, fences, self.holdings.outlook)
        return self._found[lane]


@dataclass(frozen=True, slots=True)
class _Taking:
    """``amounts`` that queue ``node`` would take of what is left by ``usage``."""

    node: Node
    amounts: AmountsByFlavor
    usage: Usage

    def below_own(self) -> bool:
        """Return whether the queue takes what it is owed itself, or nothing."""
        return not self._shown() or _below_own(self.usage, self.node, self._shown())

    def contested(self, other: Node) -> list[FlavorResource]:
        """Return of what it takes the queue's side has all that it owns, and the side of queue ``other`` less."""
        meeting, usage = _meeting(self.node, other), self.usage
        mine, theirs = list(_side(self.node, meeting)), list(_side(other, meeting))
        return [
            key
            for key in sorted(self._shown())
            if _short(usage, theirs, key) and all(usage.of(each, key) >= each.subtree.get(key, 0) for each in mine)
        ]

    def first_lacking(
        self, hungry: Iterable[tuple[Line, AmountsByFlavor]], other: Node, keys: Iterable[FlavorResource]
    ) -> tuple[Line, FlavorResource] | None:
        """Return the first of the ``hungry`` lines of queue ``other`` that would lack one of ``keys``, and which."""
        shared = list(_meeting(self.node, other).path())
        self.usage.add(self.node, self.amounts)
        try:
            for line, asked in hungry:
                for key in keys:
                    refused = self.usage.binding(other, key, asked[key]) if key in asked else None
                    if refused is not None and refused[0] in shared:
                        return line, key
        finally:
            self.usage.remove(self.node, self.amounts)
        return None

    def _shown(self) -> list[FlavorResource]:
        return [key for key, amount in self.amounts.items() if amount and not key.is_internal]


def _yields(queue: Queue | None, preemptible: bool) -> bool:
    """Return whether a gang of ``queue`` may have to wait for hungry ones: not while it uses guaranteed quota only."""
    return queue is not None and queue.yields_to_hungry and (preemptible or not queue.spares_non_preemptible)


def _whose_turn_may_come(lane: Lane) -> Collection[Line]:
    """Return the lines of a queue of which it only takes room for the head to start."""
    if lane.closed is not None:
        return ()
    if lane.strict or lane.backfills:
        lines = [line for line in lane.lines.values() if line.aside is None]
        return [min(lines, key=lambda line: line.order_key)] if lines and not lane.claiming else ()
    return lane.lines.values()


def _all_hungry(lane: Lane, fences: Fences, usage: Usage) -> list[tuple[Line, AmountsByFlavor]]:
    """Return the hungry lines of a queue in order, with what each asks."""
    reach: dict[FlavorResource, int] = {}
    lines = ((line, _hungry(line, fences, usage, reach)) for line in _whose_turn_may_come(lane))
    return sorted((item for item in lines if item[1]), key=lambda item: item[0].order_key[1:])


def _hungry(
    line: Line, fences: Fences, usage: Usage, reach: dict[FlavorResource, int] | None = None
) -> AmountsByFlavor:
    """Return what the smallest start of the head of ``line`` asks if it is hungry; empty when it is not.

    ``reach`` collects how much the queue could take of what.
    """
    node = line.lane.node
    if node is None or not line.order or line.aside is not None or line.request.refusal is not None:
        return {}
    reach, charged = {} if reach is None else reach, _least(line)
    for key, amount in charged.items():
        if key not in reach:
            reach[key] = _reach(usage, node, key)
        if amount > reach[key]:
            return {}
    asked = {key: amount for key, amount in charged.items() if amount and not key.is_internal}
    hungry = _below_own(usage, node, asked) and fences.shortfall(line.head, line.head.least_counts) is None
    return asked if hungry else {}


def _least(line: Line) -> AmountsByFlavor:
    """Return what the smallest start of any gang of the line is charged; empty where no flavor fits it."""
    if line.least is None:
        assert line.lane.queue is not None
        found = assign(line.request, line.sample.least_counts, line.lane.queue.fungibility, Judge(_any_amount))
        line.least = found.usage if found.mode is Mode.FIT else {}
    return line.least


def _any_amount(_key: FlavorResource, _amount: int) -> Verdict:
    return Verdict(Mode.FIT, 0)


def _below_own(usage: Usage, node: Node, keys: Iterable[FlavorResource]) -> bool:
    """Return whether a queue uses less than it owns of each of ``keys`` of which it owns any."""
    owned = [key for key in keys if node.subtree.get(key, 0) > 0]
    return bool(owned) and all(usage.of(node, key) < node.subtree[key] for key in owned)


def _short(usage: Usage, side: Iterable[Node], key: FlavorResource) -> bool:
    return all(usage.of(each, key) < each.subtree.get(key, 0) for each in side)


def _kept_out_by(usage: Usage, node: Node, side: list[Node], key: FlavorResource, amount: int) -> bool:
    """Return whether a node of the hungry queue's own side refuses: others above have no part in that."""
    refused = usage.binding(node, key, amount)
    return refused is not None and refused[0] in side


def _meeting(one: Node, other: Node) -> Node:
    """Return the lowest cohort above both queues of one tree."""
    above = {each.index for each in other.path()}
    return next(each for each in one.path() if each.index in above)


def _side(node: Node, meeting: Node) -> Iterator[Node]:
    """Yield ``node`` and what is above it, below the cohort where two sides meet."""
    for each in node.path():
        if each is meeting:
            return
        yield each


def _reach(usage: Usage, queue: Node, key: FlavorResource) -> int:
    """Return what ``queue`` could take once everything is gone that others took beyond what they own."""
    path = list(queue.path())
    used = [usage.of(queue, key)]
    for child, cohort in pairwise(path):
        others = sum(
            _passed_up(other, key, _within_own(usage, other, key)) for other in cohort.children if other is not child
        )
        used.append(_passed_up(child, key, used[-1]) + others)
    reach = path[-1].subtree.get(key, 0) - used[-1]
    for node, taken in reversed(list(zip(path[:-1], used[:-1], strict=True))):
        local, limit = node.local.get(key, 0), node.borrowing.get(key)
        if limit is not None:
            reach = min(reach, node.subtree.get(key, 0) - local - max(0, taken - local) + limit)
        reach += max(0, local - taken)
    return reach


def _within_own(usage: Usage, node: Node, key: FlavorResource) -> int:
    return min(usage.of(node, key), node.subtree.get(key, 0))


def _passed_up(node: Node, key: FlavorResource, used: int) -> int:
    return max(0, used - node.local.get(key, 0))


def _reason(held: _Held, taking: _Taking) -> Reason:
    key, gang, hungry, usage = held.owed.key, held.hungry.head, held.hungry.lane.node, taking.usage
    assert hungry is not None
    name, used = gang.key, quantity.render(usage.of(hungry, key), key.resource)
    own = quantity.render(hungry.subtree.get(key, 0), key.resource)
    return Reason(
        Code.BEHIND_HUNGRY,
        f"{name} waits in {hungry}, which uses {used} of its own {own} {key.resource}, and needs the room",
        node=str(taking.node),
        resource=key.resource,
        flavor=key.flavor,
        asked=taking.amounts[key],
        used=usage.of(taking.node, key),
        limit=taking.node.subtree.get(key, 0),
        help=f"it starts after {name}, or once {taking.node} uses less than its own",
    )
