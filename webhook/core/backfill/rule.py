"""Backfill: who may go before the blocked head of a queue without delaying it.

The heads of all Backfill queues of a tree have room booked (``bookings``), each from its earliest start on. Whoever
else would start, of whatever queue, has to fit beside all that is booked for as long as its own run-time limit lets it
run; without a limit that is for ever. A later gang of a head's own queue needs a limit to pass at all, and passes no
head whose start depends on gangs without one, unless it asks nothing that the head asks. A head too starts as soon as
it fits beside the others that are booked, before its own time if there is room.

A head that is booked may be put off only by one that *intervenes*:

- It has a higher priority than that head.
- It *reclaims*: all that it takes of what the head asks for is owned by its own side of the tree, below the lowest
  cohort that it shares with the head. Who takes what it owns never waits for a borrower; so a head that stays within
  what its own side owns is put off by no owner. The quota that a blocked head keeps for itself counts as taken.

A gang that grows to full size intervenes as an owner only. Age gives no right before a head that is booked already.

So the earliest start that a head had once it was the head only ever moves earlier while limits are enforced, nobody
intervenes and no policy changes; and nobody starves. It holds for heads that wait for quota and have a bounded start:
one that a fence holds up is not booked, and takes what is left when the fence gives; one whose start depends on gangs
without a limit keeps its queue's own quota instead. Under fair sharing shares decide between queues, and a head is
protected in its own queue only. A new leader goes on with what is booked, as of the last write of the ledger.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf

from webhook.core.assignment.decision import Decision
from webhook.core.backfill.bookings import Head, book, head_at, owns
from webhook.core.backfill.heads import Heads, waits_for_quota
from webhook.core.backfill.timetable import Booking, Start, Timetable
from webhook.core.ledger.record import Booked
from webhook.core.model.policy import FlavorResource
from webhook.core.model.reasons import Code, Reason
from webhook.core.model.wake_keys import BeforeHeads, QueueHead, WakeKey
from webhook.core.pending.pending_queues import WaitingRoom
from webhook.core.pending.queueing import Lane, Line
from webhook.core.quota.allocations import Holding, Holdings
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor, Node


@dataclass(slots=True)
class _Plan:
    """The heads of one tree, or of one queue, and what is booked for them."""

    now: float
    lines: Sequence[Line]
    turns: Mapping[str, int]
    """By uid, their order."""
    bookings: dict[str, Booking]
    table: Timetable | None = None
    """None: nothing is booked."""
    rights: frozenset[tuple[object, ...]] = frozenset()
    """Queue, priority and what is asked of each head that is booked: by that it goes who has a right before it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gang that could start has to wait for a head."""

    reason: Reason
    beside: str | None = None
    """Uid of a head beside whose booking it has no room, whoever else moves: the gang has to wait until there is."""


_Basis = tuple[object, ...]
"""What a plan is made from, but for the time."""


@dataclass(slots=True)
class Backfill:
    """The heads of all Backfill queues, and what is booked for each."""

    room: WaitingRoom
    holdings: Holdings
    across_queues: bool
    """Heads are protected from other queues too."""
    booked: dict[str, Booking] = field(default_factory=dict)
    """By uid of the head, as last settled."""
    turns: dict[str, int] = field(default_factory=dict)
    """By uid, the order in which they became heads."""
    recalled: dict[str, Booked] = field(default_factory=dict)
    """By uid, what an earlier leader had booked, of gangs that were no heads so far."""
    put_off: dict[str, frozenset[str]] = field(default_factory=dict)
    """By uid of who would start or grow: the heads that it may put off, where it does."""
    freed: list[str] = field(default_factory=list)
    """The heads beside which there may be more room than before they were settled last."""
    _settled: dict[object, tuple[_Basis, _Plan, int]] = field(default_factory=dict)
    """By tree or queue, as last settled, with what ``Holdings.given_back_in`` said then."""
    _plans: dict[object, tuple[_Basis, _Plan]] = field(default_factory=dict)
    _settled_at: tuple[int, int, float] | None = None
    _seen: dict[Node, tuple[int, int, float]] = field(default_factory=dict)
    """By root, what was settled last was made from this, and until when it holds, where no fence has a part in it."""
    heads: Heads = field(init=False)

    def __post_init__(self) -> None:
        self.heads = Heads(self.room, self.across_queues)

    def settle(self, fences: Fences, now: float, *, anew: bool = False) -> list[WakeKey]:
        """Book for those that are heads now, and let those that were move up; return under which keys those wait that
        are to be decided about again: a head has another booking than before. Those ``beside`` whom there may be more
        room are ``freed``.

        ``anew`` tells that more may have changed than holdings and who waits.
        """
        self.freed = []
        if not self.room.backfilling and not self.booked:
            return []
        if anew:
            self._plans = {}
            if self.heads.forget_fenced(fences):
                self._seen = {}
        elif self._settled_at == self._moment(now):
            return []
        if self._recall(fences):
            self._seen = {}
        changed = {root for root in self.room.backfilling if self._has_changed(root, now)}
        keys = self._settle_trees(changed, fences, now) if changed or not self.room.backfilling else []
        self._settled_at = self._moment(now)
        self.put_off = {}
        return keys

    def _settle_trees(self, changed: Collection[Node], fences: Fences, now: float) -> list[WakeKey]:
        """Settle what has ``changed``; what has not stays as it is."""
        keys: list[WakeKey] = []
        self.freed = []
        settled = {}
        for root, lanes in self.room.backfilling.items():
            for some in self.heads.together(lanes):
                scope = self.heads.scope(some)
                settled[scope] = self._settle(some, fences, now, keys) if root in changed else self._settled[scope]
        plans = [plan for _, plan, _ in settled.values()]
        bookings = {uid: booking for plan in plans for uid, booking in plan.bookings.items()}
        self.freed += [uid for uid in self.booked if uid not in bookings]
        self.booked, self._settled = bookings, settled
        self.turns = {uid: turn for plan in plans for uid, turn in plan.turns.items()}
        for root in changed:
            scopes = [self.heads.scope(some) for some in self.heads.together(self.room.backfilling[root])]
            if all(map(self.heads.knows, scopes)):
                starts = (each.at_seconds for scope in scopes for each in settled[scope][1].bookings.values())
                self._seen[root] = (*self._state_of(root), min(starts, default=inf))
        return keys

    def _has_changed(self, root: Node, now: float) -> bool:
        """Return whether a tree may have changed since it was settled, or a head in it is late."""
        seen = self._seen.get(root)
        return seen is None or seen[:2] != self._state_of(root) or now > seen[2]

    def _state_of(self, root: Node) -> tuple[int, int]:
        return self.holdings.version_of(root), self.room.heads_version(root)

    def _settle(
        self, lanes: Sequence[Lane], fences: Fences, now: float, keys: list[WakeKey]
    ) -> tuple[_Basis, _Plan, int]:
        """Return the plan of these queues, and add the ``keys`` under which it wakes somebody.

        It stays as it was while nothing has changed that it is made from, and nobody is late.
        """
        known, lines = self._settled.get(self.heads.scope(lanes)), self.heads.waiting_for_quota(lanes, fences)
        basis = self._basis(lanes, lines)
        bookings = () if known is None else known[1].bookings.values()
        if known is not None and known[0] == basis and all(now <= booking.at_seconds for booking in bookings):
            return known
        plan = self._plan(lanes, lines, now)
        for line in plan.lines:
            uid = line.head.uid
            if uid in self.turns and self.booked.get(uid) != plan.bookings.get(uid):
                keys.append(QueueHead(line.lane.name))
        self.freed += self.booked if known is None else _with_more_room(known[1], plan)
        if known is not None and not plan.rights <= known[1].rights:
            keys.append(before_heads(plan.lines[0].lane))
        return basis, plan, self._given_back_in(lanes)

    def keeps_room_for(self, head: Line, fences: Fences, now: float) -> bool:
        """Return whether room is booked for the head of a queue, which other queues respect."""
        plan = self._plan_beside(head.lane, fences, now)
        return self.across_queues and head.head.uid in plan.bookings

    def refusal(self, line: Line, decision: Decision, fences: Fences, now: float) -> Refusal | None:
        """Return why the head of ``line``, which could start as decided, has to wait for another head; None if not."""
        node, lanes = line.lane.node, self.heads.lanes_beside(line.lane)
        if node is None or not lanes:
            return None
        plan = self._plan(lanes, self.heads.waiting_for_quota(lanes, fences), now)
        # Nobody knows when who has to wait for victims starts, and so when that one ends.
        end = inf if decision.preempts else _ends_at(line.head.max_run_seconds, now)
        start = Start(node, decision.assignment.usage, end, [victim.holding for victim in decision.victims])
        head = line.lane.head() if line.lane.backfills else None
        if head is not None and head is not line and head.order_key <= line.order_key:
            why = self._may_not_pass(plan, line, start, head, fences)
            if why is not None:
                return Refusal(why)
        delayed, whoever_moves = self._delayed(plan, start, line.head.uid, line)
        if delayed is None:
            return None
        uid, what = delayed.head.uid, f"would delay {{}}, head of queue {delayed.lane.name}"
        reason = _behind(delayed, what, _in(plan.bookings[uid].at_seconds - now))
        return Refusal(reason, uid if whoever_moves and line not in plan.lines else None)

    def refusals(self, uid: str, now: float) -> Callable[[Line], bool]:
        """Return what tells of a line that waits beside a head whether that still keeps it out, as settled last: if so
        the line need not be decided about.
        """
        plan = next((plan for _, plan, _ in self._settled.values() if uid in plan.bookings), None)
        rights: dict[tuple[object, ...], bool] = {}

        def refuses(line: Line) -> bool:
            node, amounts = line.lane.node, line.smallest
            if plan is None or plan.table is None or node is None or amounts is None or line.lane.heads(line):
                return False
            start = Start(node, amounts, _ends_at(line.head.max_run_seconds, now))
            if not plan.table.keeps_out(uid, start):
                return False
            like = (line.lane, line.sample.priority, *amounts.items())
            if like not in rights:
                booked = (each for each in plan.lines if each.head.uid in plan.bookings)
                rights[like] = any(self._intervenes(plan, start, line, each) for each in booked)
            return not rights[like]

        return refuses

    def room_beside(self, line: Line, fences: Fences, now: float) -> dict[FlavorResource, int]:
        """Return what the head of ``line`` could take now, for as long as it may run, beside all that is booked."""
        node, plan = line.lane.node, self._plan_beside(line.lane, fences, now)
        if node is None or plan.table is None:
            return {}
        own = self._step_out(plan.table, line)
        end = _ends_at(line.head.max_run_seconds, now)
        found = {key: plan.table.room(node, key, end) for key in line.request.keys}
        self._step_in(plan.table, line, own)
        return found

    def lets_grow(self, holding: Holding, extra: AmountsByFlavor, fences: Fences, now: float) -> bool:
        """Return whether an admitted gang can take ``extra`` without delaying a head."""
        node, lane = self.holdings.node_of(holding), self.room.lanes.get(holding.reservation.queue)
        lanes = () if lane is None else self.heads.lanes_beside(lane)
        if node is None or lane is None or not lanes:
            return True
        plan = self._plan(lanes, self.heads.waiting_for_quota(lanes, fences), now)
        start = Start(node, extra, inf if holding.end_seconds is None else holding.end_seconds)
        own = lane.head() if lane.backfills else None
        if own is not None and own.request.keys & extra.keys():
            booking, table = self._booking_of(plan, own)
            if booking is None:
                return False
            if own not in plan.lines and start.end_seconds > booking.at_seconds and not table.beside(booking, start):
                return False
        return self._delayed(plan, start, holding.uid, None)[0] is None

    def written(self) -> dict[str, Booked]:
        """Return what was settled last as the ledger is to have it, by uid of the heads."""
        found: dict[str, Booked] = {}
        for uid, turn in self.turns.items():
            record, booking = self.room.records.get(uid), self.booked.get(uid)
            if record is not None and record.lane is not None and record.lane.name is not None:
                at, amounts = (None, {}) if booking is None else (booking.at_seconds, booking.amounts)
                found[uid] = Booked(record.lane.name, turn, at, amounts)
        return found

    # -- what is planned ---------------------------------------------------------------------------------------------

    def _moment(self, now: float) -> tuple[int, int, float]:
        return (self.holdings.version, self.room.changes, now)

    def _plan_beside(self, lane: Lane, fences: Fences, now: float) -> _Plan:
        lanes = self.heads.lanes_beside(lane)
        return self._plan(lanes, self.heads.waiting_for_quota(lanes, fences), now)

    def _plan(self, lanes: Sequence[Lane], lines: Sequence[Line], now: float) -> _Plan:
        """Return the plan of these queues as of now; what is settled stays as it is."""
        if not lanes:
            return _Plan(now, (), {}, {})
        scope, basis = self.heads.scope(lanes), self._basis(lanes, lines)
        known = self._plans.get(scope)
        if known is not None and known[1].now == now and known[0] == basis:
            return known[1]
        plan = self._made(lanes, lines, scope, now)
        self._plans[scope] = (basis, plan)
        return plan

    def _basis(self, lanes: Sequence[Lane], lines: Sequence[Line]) -> _Basis:
        """Return what a plan of these queues is made from: who holds what, and who waits for quota."""
        assert lanes[0].node is not None
        return (self.holdings.version_of(lanes[0].node.root), *((line, line.head) for line in lines))

    def _given_back_in(self, lanes: Sequence[Lane]) -> int:
        assert lanes[0].node is not None
        return self.holdings.given_back_in(lanes[0].node.root)

    def _made(self, lanes: Sequence[Lane], lines: Sequence[Line], scope: object, now: float) -> _Plan:
        to_come = (each.turn for each in self.recalled.values())
        numbers = count(1 + max((*self.turns.values(), *to_come), default=0))
        new = sorted((line for line in lines if line.head.uid not in self.turns), key=lambda line: line.order[0])
        turns = {line.head.uid: self.turns.get(line.head.uid, 0) for line in lines}
        turns.update((line.head.uid, next(numbers)) for line in new)
        plan = _Plan(now, lines, turns, {})
        known = {uid: self.booked[uid] for uid in turns if uid in self.booked}
        nodes = {lane.node for lane in lanes}
        ours = [each for each in self.booked.values() if each.node in nodes]
        left = any(each.uid not in turns and not self._is_used(each) for each in ours)
        settled = self._settled.get(scope)
        given_back = left or settled is None or settled[2] != self._given_back_in(lanes)
        anew = list(turns) if given_back else [line.head.uid for line in new]
        if known or anew:
            assert lanes[0].node is not None
            table = Timetable(self.holdings, lanes[0].node.root, now)
            put_off = [uid for starter, heads in self.put_off.items() if self._has_room(starter) for uid in heads]
            book(table, self._heads(table, plan, known), known, anew=anew, put_off=put_off)
            plan.bookings = {uid: booking for uid in turns if (booking := table.booking(uid)) is not None}
            plan.table = table if plan.bookings else None
            booked = [(line, plan.bookings[line.head.uid]) for line in lines if line.head.uid in plan.bookings]
            plan.rights = frozenset(
                (line.lane, line.sample.priority, *sorted(booking.amounts)) for line, booking in booked
            )
        return plan

    def _recall(self, fences: Fences) -> bool:
        """Let heads go on with what an earlier leader had booked for them; it is checked like any other booking.
        Return whether any of them waits by now.

        One that waits and is no head was overtaken while nobody led.
        """
        known = [uid for uid in self.recalled if uid in self.room.records]
        for uid in known:
            before, lane = self.recalled.pop(uid), self.room.records[uid].lane
            line = None if lane is None or lane.name != before.queue else waits_for_quota(lane, fences)
            if line is None or line.head.uid != uid or line.lane.node is None:
                continue
            self.turns[uid] = before.turn
            if before.at_seconds is not None and _asks(line, before.amounts):
                at, end = before.at_seconds, _ends_at(line.head.max_run_seconds, before.at_seconds)
                self.booked[uid] = Booking(uid, line.key, line.lane.node, before.amounts, at, end)
        return bool(known)

    def _has_room(self, uid: str) -> bool:
        return uid in self.holdings.by_uid or uid in self.holdings.promises

    def _is_used(self, booking: Booking) -> bool:
        """Return whether somebody has started at the booked time and takes all that was booked."""
        holding = self.holdings.by_uid.get(booking.uid)
        if holding is None or holding.reservation.since_seconds < booking.at_seconds:
            return False
        return all(holding.amounts.get(key, 0) >= amount for key, amount in booking.amounts.items())

    def _heads(
        self, table: Timetable, plan: _Plan, known: Mapping[str, Booking], but: Line | None = None
    ) -> list[Head]:
        """Return the heads that are booked or may be, as of now."""
        heads = []
        for line in plan.lines:
            uid, kept = line.head.uid, self._kept_by(line.lane)
            if line is not but and (uid in known or table.may_hold(line, kept)):
                heads.append(head_at(line, plan.turns[uid], known.get(uid), kept, table.taken))
        return heads

    def _kept_by(self, lane: Lane) -> AmountsByFlavor:
        """Return what the head of a queue keeps of the queue's own quota, whether or not that is put aside just now."""
        lifted, head = self.holdings.lifted, QueueHead(lane.name)
        if lifted is not None and lifted[0] == head:
            return lifted[2]
        kept = self.holdings.promises.get(head)
        return {} if kept is None else kept[1]

    # -- who may start -----------------------------------------------------------------------------------------------

    def _may_not_pass(self, plan: _Plan, line: Line, start: Start, head: Line, fences: Fences) -> Reason | None:
        """Return why ``line`` may not pass the head of its own queue, whether or not that is booked."""
        space, now = line.sample.namespace, plan.now
        fenced = space == head.sample.namespace and bool(fences.fences(space))
        if line.head.max_run_seconds is None:
            return _behind(head, "would pass {}", "a gang without a run-time limit may not pass it")
        if start.end_seconds == inf:
            return _behind(head, "would pass {}", "only the head may have others stopped")
        booking, table = self._booking_of(plan, head)
        if booking is None:
            if not fenced and not head.request.keys & start.amounts.keys():
                return None
            return _behind(head, "would pass {}", "whose start depends on gangs without a run-time limit")
        beside = not fenced and (head in plan.lines or table.beside(booking, start))
        if beside or start.end_seconds <= booking.at_seconds:
            return None
        return _behind(head, "would pass {}", _in(booking.at_seconds - now))

    def _booking_of(self, plan: _Plan, head: Line) -> tuple[Booking | None, Timetable]:
        """Return what is booked for the head of a queue, or could be if it waits for more than quota; and where."""
        assert head.lane.node is not None
        table = plan.table or Timetable(self.holdings, head.lane.node.root, plan.now)
        if head in plan.lines:
            return plan.bookings.get(head.head.uid), table
        return table.earliest(head), table

    def _delayed(self, plan: _Plan, start: Start, uid: str, line: Line | None) -> tuple[Line | None, bool]:
        """Return a head that would be put off by ``start``, made by the head of ``line`` or by one that grows, without
        a right to that; and whether that is so whichever other head moved.
        """
        if plan.table is None:
            return None, False
        by_uid = {each.head.uid: each for each in plan.lines if each is not line and each.head.uid in plan.bookings}
        refused = None
        if not start.gone:
            own = self._step_out(plan.table, line)
            refused = plan.table.refuses(start)
            self._step_in(plan.table, line, own)
            if refused is None:
                return None, False
        weaker = frozenset(other for other, each in by_uid.items() if self._intervenes(plan, start, line, each))
        if refused is not None and not weaker:
            return by_uid[refused.uid], True
        after = Timetable(self.holdings, start.node.root, plan.now, start)
        self._step_out(after, line)
        known = {other: plan.bookings[other] for other in by_uid}
        book(after, self._heads(after, plan, known, line), known, anew=plan.turns, put_off=weaker)
        for other in (other for other in by_uid if other not in weaker):
            then = after.booking(other)
            if then is None or then.at_seconds > known[other].at_seconds:
                return by_uid[other], False
        self.put_off[uid] = weaker
        return None, False

    def _intervenes(self, plan: _Plan, start: Start, line: Line | None, head: Line) -> bool:
        """Return whether the head of ``line``, or one that grows, may put off the head of another queue."""
        node = head.lane.node
        assert node is not None
        if node is start.node:
            return False
        if line is not None and line.sample.priority > head.sample.priority:
            return True
        asked = plan.bookings[head.head.uid].amounts.keys() & {key for key, amount in start.amounts.items() if amount}
        return owns(self.holdings.outlook, start.node, node, start.amounts, asked)

    def _step_out(self, table: Timetable, line: Line | None) -> Booking | None:
        """Leave out what is kept for the head of ``line`` itself."""
        if line is None:
            return None
        if self._is_lifted(line) and line.lane.node is not None:
            table.forgo(line.lane.node, self._kept_by(line.lane))
        return table.cancel(line.head.uid)

    def _step_in(self, table: Timetable, line: Line | None, booking: Booking | None) -> None:
        """Let that be as it was."""
        if booking is not None:
            table.book(booking)
        if line is not None and self._is_lifted(line) and line.lane.node is not None:
            table.charge(line.lane.node, self._kept_by(line.lane))

    def _is_lifted(self, line: Line) -> bool:
        """Return whether what its queue keeps for its head is put aside for the head of ``line``."""
        lifted = self.holdings.lifted
        return lifted is not None and lifted[0] == QueueHead(line.lane.name)


def before_heads(lane: Lane) -> BeforeHeads:
    """Return the key of those that have no right before any booked head of the queue's tree."""
    return BeforeHeads(None if lane.node is None else lane.node.root.index)


def _with_more_room(before: _Plan, after: _Plan) -> list[str]:
    """Return the heads beside which there may be room now: their bookings moved, or keep less out."""
    return [
        uid
        for uid, booking in before.bookings.items()
        if after.bookings.get(uid) != booking or _has_more_room(uid, before.table, after.table)
    ]


def _has_more_room(uid: str, before: Timetable | None, after: Timetable | None) -> bool:
    return before is None or after is None or after.has_more_room_beside(uid, before)


def _asks(line: Line, amounts: AmountsByFlavor) -> bool:
    """Return whether the smallest start of the head of ``line`` could be charged ``amounts``."""
    asked = line.request.amounts(line.head.least_counts)
    return amounts.keys() <= line.request.keys and _by_resource(amounts) == _by_resource(asked)


def _by_resource(amounts: AmountsByFlavor) -> dict[str, int]:
    total: dict[str, int] = {}
    for key, amount in amounts.items():
        total[key.resource] = total.get(key.resource, 0) + amount
    return total


def _ends_at(limit_seconds: int | None, since_seconds: float) -> float:
    return inf if limit_seconds is None else since_seconds + limit_seconds


def _in(seconds: float) -> str:
    return f"which may start in {max(0, seconds):.0f} s, before this gang's limit has it end"


def _behind(head: Line, what: str, why: str) -> Reason:
    name = f"{head.head.namespace}/{head.head.name}"
    return Reason(
        Code.BEHIND_HEAD, f"{what.format(name)}: {why}", help="it starts after the head or in a gap before it"
    )
