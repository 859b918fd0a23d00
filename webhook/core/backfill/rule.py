"""Backfill: who may go before the blocked head of a queue without delaying it.

The heads of all Backfill queues of a tree have room booked (``bookings``), each from its earliest start on. Whoever
else would start, of whatever queue, has to leave free all that is booked, for as long as its own run-time limit lets it
run; without a limit that is for ever. A later gang of a head's own queue needs a limit to pass at all, and passes no
head whose start depends on gangs without one, unless it asks nothing that the head asks. A head too starts as soon as
there is room for it and for the others that are booked, even before its own time.

A head that is booked may be put off only by one that *intervenes*:

- It has a higher priority than that head.
- It *reclaims*: all that it takes of what the head asks for is owned by its own side of the tree, below the lowest
  cohort that it shares with the head. An owner never waits for a borrower. So no owner puts off a head that stays
  within what its own side owns. The quota that a blocked head keeps for itself counts as taken.

A gang that grows to full size intervenes as an owner only. Age gives no right before a head that is booked already.

So the earliest start that a head had once it was the head only ever moves earlier while limits are enforced, nobody
intervenes and no policy changes; and nobody starves. It holds for heads that wait for quota and have a bounded start:
one that a fence or the nodes hold up is not booked, and takes what is left when these give (``scheduler.booked_nodes``
keeps nodes for it), and one that the nodes never hold is no head; one whose start depends on gangs
without a limit keeps its queue's own quota instead. Under fair sharing shares decide between queues, and a head is
protected in its own queue only. A new leader goes on with what is booked, as of the last write of the ledger.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf

from webhook.core.assignment.decision import Decision
from webhook.core.backfill.bookings import asks, book
from webhook.core.backfill.head_plan import HeadPlan, ends_at
from webhook.core.backfill.heads import Heads, before_heads, waits_for_quota
from webhook.core.backfill.timetable import Booking, Start, Timetable
from webhook.core.ledger.record import Booked
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.pending.pending_queues import PendingQueues
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor, Vertex
from webhook.core.reasons.barriers import BehindHead, Passing
from webhook.core.reasons.wake_keys import QueueHead, WakeKey

_Basis = tuple[object, ...]
"""What a plan is made from, but for the time."""


@dataclass(slots=True)
class Backfill:
    """The heads of all Backfill queues, and what is booked for each."""

    pending: PendingQueues
    allocations: Allocations
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
    _settled: dict[object, tuple[_Basis, HeadPlan, int]] = field(default_factory=dict)
    """By tree or queue, as last settled, with what ``allocations.given_back_in`` said then."""
    _plans: dict[object, tuple[_Basis, HeadPlan]] = field(default_factory=dict)
    _settled_at: tuple[int, int, float] | None = None
    _seen: dict[Vertex, tuple[int, int, float]] = field(default_factory=dict)
    """By root, what was settled last was made from this, and until when it holds, where no fence has a part in it."""
    heads: Heads = field(init=False)

    def __post_init__(self) -> None:
        self.heads = Heads(self.pending, self.across_queues)

    def settle(self, fences: Fences, now: float, *, recheck: bool = False) -> list[WakeKey]:
        """Book for those that are heads now, and let those that were move up; return under which keys those wait that
        are to be decided about again: a head has another booking than before. Those ``beside`` which there may be more
        room are ``freed``.

        ``recheck`` says that more may have changed than allocations and who waits.
        """
        self.freed = []
        if not self.pending.backfilling and not self.booked:
            return []
        if recheck:
            self._plans = {}
            if self.heads.forget_fenced(fences):
                self._seen = {}
        elif self._settled_at == self._moment(now):
            return []
        if self._recall(fences):
            self._seen = {}
        changed = {root for root in self.pending.backfilling if self._has_changed(root, now)}
        keys = self._settle_trees(changed, fences, now) if changed or not self.pending.backfilling else []
        self._settled_at = self._moment(now)
        self.put_off = {}
        return keys

    def _settle_trees(self, changed: Collection[Vertex], fences: Fences, now: float) -> list[WakeKey]:
        """Settle what has ``changed``; what has not stays as it is."""
        keys: list[WakeKey] = []
        self.freed = []
        settled = {}
        for root, queues in self.pending.backfilling.items():
            for some in self.heads.together(queues):
                scope = self.heads.scope(some)
                settled[scope] = self._settle(some, fences, now, keys) if root in changed else self._settled[scope]
        plans = [plan for _, plan, _ in settled.values()]
        bookings = {uid: booking for plan in plans for uid, booking in plan.bookings.items()}
        self.freed += [uid for uid in self.booked if uid not in bookings]
        self.booked, self._settled = bookings, settled
        self.turns = {uid: turn for plan in plans for uid, turn in plan.turns.items()}
        for root in changed:
            scopes = [self.heads.scope(some) for some in self.heads.together(self.pending.backfilling[root])]
            if all(map(self.heads.knows, scopes)):
                starts = (each.at_seconds for scope in scopes for each in settled[scope][1].bookings.values())
                self._seen[root] = (*self._state_of(root), min(starts, default=inf))
        return keys

    def _has_changed(self, root: Vertex, now: float) -> bool:
        """Return whether a tree may have changed since it was settled, or a head in it is late."""
        seen = self._seen.get(root)
        return seen is None or seen[:2] != self._state_of(root) or now > seen[2]

    def _state_of(self, root: Vertex) -> tuple[int, int]:
        return self.allocations.version_of(root), self.pending.heads_version(root)

    def _settle(
        self, queues: Sequence[PendingQueue], fences: Fences, now: float, keys: list[WakeKey]
    ) -> tuple[_Basis, HeadPlan, int]:
        """Return the plan of these queues, and add the ``keys`` under which it wakes somebody.

        It stays as it was while nothing has changed that it is made from, and nobody is late.
        """
        known, eclasses = self._settled.get(self.heads.scope(queues)), self.heads.waiting_for_quota(queues, fences)
        basis = self._basis(queues, eclasses)
        if known is not None and _stays(known, basis, now):
            return known
        plan = self._plan(queues, eclasses, now)
        for eclass in plan.eclasses:
            uid = eclass.head.uid
            if uid in self.turns and self.booked.get(uid) != plan.bookings.get(uid):
                keys.append(QueueHead(eclass.queue.name))
        self.freed += self.booked if known is None else known[1].with_more_room(plan)
        if known is not None and not plan.rights <= known[1].rights:
            keys.append(before_heads(plan.eclasses[0].queue))
        return basis, plan, self._given_back_in(queues)

    def keeps_room_for(self, head: EquivalenceClass, fences: Fences, now: float) -> bool:
        """Return whether room is booked for the head of a queue, which other queues respect."""
        plan = self._plan_beside(head.queue, fences, now)
        return self.across_queues and head.head.uid in plan.bookings

    def start_of(self, head: EquivalenceClass, fences: Fences, now: float) -> float | None:
        """Return the booked start of the head of a queue, or the one that it could have booked; None without one."""
        booking = self._plan_beside(head.queue, fences, now).booking_of(head)[0]
        return None if booking is None else booking.at_seconds

    def refusal(
        self,
        eclass: EquivalenceClass,
        decision: Decision,
        fences: Fences,
        now: float,
        gone: Sequence[Allocation] = (),
    ) -> BehindHead | None:
        """Return why the head of ``eclass``, which could start, has to wait for another head; None if not. Those that
        are ``gone`` are so before it starts, though nobody stops them.
        """
        vertex, queues = eclass.queue.vertex, self.heads.queues_beside(eclass.queue)
        if vertex is None or not queues:
            return None
        plan = self._plan(queues, self.heads.waiting_for_quota(queues, fences), now)
        # Nobody knows when who has to wait for victims starts, and so when that one ends.
        end = inf if decision.preempts else ends_at(eclass.head.max_run_seconds, now)
        leaving = [*gone, *(victim.allocation for victim in decision.victims)]
        start = Start(vertex, decision.assignment.usage, end, leaving)
        head = eclass.queue.head() if eclass.queue.backfills else None
        if head is not None and head is not eclass and head.order_key <= eclass.order_key:
            why = plan.may_not_pass(eclass, start, head, fences)
            if why is not None:
                return why
        delayed, whoever_moves = self._delayed(plan, start, eclass.head.uid, eclass)
        if delayed is None:
            return None
        uid = delayed.head.uid
        return BehindHead(
            delayed.head.key,
            Passing.TOO_LONG,
            plan.bookings[uid].at_seconds - now,
            delayed.queue.name,
            uid if whoever_moves and eclass not in plan.eclasses else None,
        )

    def refusals(self, uid: str, now: float) -> Callable[[EquivalenceClass], bool]:
        """Return what tells of a class that waits with a head whether that still keeps it out, as settled last: if so
        the class need not be decided about.
        """
        plan = next((plan for _, plan, _ in self._settled.values() if uid in plan.bookings), None)
        rights: dict[tuple[object, ...], bool] = {}

        def refuses(eclass: EquivalenceClass) -> bool:
            vertex, amounts = eclass.queue.vertex, eclass.smallest
            if plan is None or plan.table is None or vertex is None or amounts is None or eclass.queue.heads(eclass):
                return False
            start = Start(vertex, amounts, ends_at(eclass.head.max_run_seconds, now))
            if not plan.table.keeps_out(uid, start):
                return False
            like = (eclass.queue, eclass.sample.priority, *amounts.items())
            if like not in rights:
                booked = (each for each in plan.eclasses if each.head.uid in plan.bookings)
                rights[like] = any(plan.intervenes(start, eclass, each) for each in booked)
            return not rights[like]

        return refuses

    def room_beside(self, eclass: EquivalenceClass, fences: Fences, now: float) -> dict[FlavorResource, int]:
        """Return what the head of ``eclass`` could take now, for as long as it may run, without what is booked."""
        vertex, plan = eclass.queue.vertex, self._plan_beside(eclass.queue, fences, now)
        if vertex is None or plan.table is None:
            return {}
        own = plan.step_out(plan.table, eclass)
        end = ends_at(eclass.head.max_run_seconds, now)
        found = {key: plan.table.room(vertex, key, end) for key in eclass.request.keys}
        plan.step_in(plan.table, eclass, own)
        return found

    def lets_grow(self, allocation: Allocation, extra: AmountsByFlavor, fences: Fences, now: float) -> bool:
        """Return whether an admitted gang can take ``extra`` without delaying a head."""
        vertex, queue = self.allocations.vertex_of(allocation), self.pending.queues.get(allocation.reservation.queue)
        queues = () if queue is None else self.heads.queues_beside(queue)
        if vertex is None or queue is None or not queues:
            return True
        plan = self._plan(queues, self.heads.waiting_for_quota(queues, fences), now)
        start = Start(vertex, extra, inf if allocation.end_seconds is None else allocation.end_seconds)
        own = queue.head() if queue.backfills else None
        if own is not None and own.request.keys & extra.keys():
            booking, table = plan.booking_of(own)
            if booking is None:
                return False
            if own not in plan.eclasses and start.end_seconds > booking.at_seconds and not table.beside(booking, start):
                return False
        return self._delayed(plan, start, allocation.uid, None)[0] is None

    def written(self) -> dict[str, Booked]:
        """Return what was settled last as the ledger is to have it, by uid of the heads."""
        found: dict[str, Booked] = {}
        for uid, turn in self.turns.items():
            record, booking = self.pending.records.get(uid), self.booked.get(uid)
            if record is not None and record.queue is not None and record.queue.name is not None:
                at, amounts = (None, {}) if booking is None else (booking.at_seconds, booking.amounts)
                found[uid] = Booked(record.queue.name, turn, at, amounts)
        return found

    # -- what is planned ---------------------------------------------------------------------------------------------

    def _moment(self, now: float) -> tuple[int, int, float]:
        return (self.allocations.version, self.pending.changes, now)

    def _plan_beside(self, queue: PendingQueue, fences: Fences, now: float) -> HeadPlan:
        queues = self.heads.queues_beside(queue)
        return self._plan(queues, self.heads.waiting_for_quota(queues, fences), now)

    def _plan(self, queues: Sequence[PendingQueue], eclasses: Sequence[EquivalenceClass], now: float) -> HeadPlan:
        """Return the plan of these queues as of now; what is settled stays as it is."""
        if not queues:
            return HeadPlan(self.allocations, now, (), {}, {})
        scope, basis = self.heads.scope(queues), self._basis(queues, eclasses)
        known = self._plans.get(scope)
        if known is not None and known[1].now == now and known[0] == basis:
            return known[1]
        settled = self._settled.get(scope)
        if settled is not None and _stays(settled, basis, now):
            plan = settled[1].as_of(now)
        else:
            plan = self._made(queues, eclasses, scope, now)
        self._plans[scope] = (basis, plan)
        return plan

    def _basis(self, queues: Sequence[PendingQueue], eclasses: Sequence[EquivalenceClass]) -> _Basis:
        """Return what a plan of these queues is made from: who holds what, and who waits for quota."""
        assert queues[0].vertex is not None
        return (self.allocations.version_of(queues[0].vertex.root), *((eclass, eclass.head) for eclass in eclasses))

    def _given_back_in(self, queues: Sequence[PendingQueue]) -> int:
        assert queues[0].vertex is not None
        return self.allocations.given_back_in(queues[0].vertex.root)

    def _made(
        self, queues: Sequence[PendingQueue], eclasses: Sequence[EquivalenceClass], scope: object, now: float
    ) -> HeadPlan:
        to_come = (each.turn for each in self.recalled.values())
        numbers = count(1 + max((*self.turns.values(), *to_come), default=0))
        new = sorted(
            (eclass for eclass in eclasses if eclass.head.uid not in self.turns), key=lambda eclass: eclass.order[0]
        )
        turns = {eclass.head.uid: self.turns.get(eclass.head.uid, 0) for eclass in eclasses}
        turns.update((eclass.head.uid, next(numbers)) for eclass in new)
        plan = HeadPlan(self.allocations, now, eclasses, turns, {})
        known = {uid: self.booked[uid] for uid in turns if uid in self.booked}
        vertices = {queue.vertex for queue in queues}
        ours = [each for each in self.booked.values() if each.vertex in vertices]
        left = any(each.uid not in turns and not self._is_used(each) for each in ours)
        settled = self._settled.get(scope)
        given_back = left or settled is None or settled[2] != self._given_back_in(queues)
        movable = list(turns) if given_back else [eclass.head.uid for eclass in new]
        if known or movable:
            assert queues[0].vertex is not None
            table = Timetable(self.allocations, queues[0].vertex.root, now)
            held = self.allocations.by_uid.keys() | self.allocations.promises.keys()
            put_off = [uid for starter, heads in self.put_off.items() if starter in held for uid in heads]
            book(table, plan.heads(table, known), known, movable=movable, put_off=put_off)
            plan.bookings = {uid: booking for uid in turns if (booking := table.booking(uid)) is not None}
            plan.table = table if plan.bookings else None
            booked = [
                (eclass, plan.bookings[eclass.head.uid]) for eclass in eclasses if eclass.head.uid in plan.bookings
            ]
            plan.rights = frozenset(
                (eclass.queue, eclass.sample.priority, *sorted(booking.amounts)) for eclass, booking in booked
            )
        return plan

    def _recall(self, fences: Fences) -> bool:
        """Let heads go on with what an earlier leader had booked for them; it is checked like any other booking.
        Return whether any of them waits by now.

        One that waits and is no head was overtaken while nobody led.
        """
        known = [uid for uid in self.recalled if uid in self.pending.records]
        for uid in known:
            before, queue = self.recalled.pop(uid), self.pending.records[uid].queue
            eclass = None if queue is None or queue.name != before.queue else waits_for_quota(queue, fences)
            if eclass is None or eclass.head.uid != uid or eclass.queue.vertex is None:
                continue
            self.turns[uid] = before.turn
            if before.at_seconds is not None and asks(eclass, before.amounts):
                at, end = before.at_seconds, ends_at(eclass.head.max_run_seconds, before.at_seconds)
                self.booked[uid] = Booking(uid, eclass.key, eclass.queue.vertex, before.amounts, at, end)
        return bool(known)

    def _is_used(self, booking: Booking) -> bool:
        """Return whether somebody has started at the booked time and takes all that was booked."""
        allocation = self.allocations.by_uid.get(booking.uid)
        if allocation is None or allocation.reservation.since_seconds < booking.at_seconds:
            return False
        return all(allocation.amounts.get(key, 0) >= amount for key, amount in booking.amounts.items())

    # -- who may start -----------------------------------------------------------------------------------------------

    def _delayed(
        self, plan: HeadPlan, start: Start, uid: str, eclass: EquivalenceClass | None
    ) -> tuple[EquivalenceClass | None, bool]:
        """Return a head that would be put off by ``start``, made by the head of ``eclass`` or by one that grows,
        without a right to that; and whether that is so whichever other head moved.
        """
        if plan.table is None:
            return None, False
        by_uid = {
            each.head.uid: each for each in plan.eclasses if each is not eclass and each.head.uid in plan.bookings
        }
        refused = None
        if not start.gone:
            own = plan.step_out(plan.table, eclass)
            refused = plan.table.refuses(start)
            plan.step_in(plan.table, eclass, own)
            if refused is None:
                return None, False
        weaker = frozenset(other for other, each in by_uid.items() if plan.intervenes(start, eclass, each))
        if refused is not None and not weaker:
            return by_uid[refused.uid], True
        after = Timetable(self.allocations, start.vertex.root, plan.now, start)
        plan.step_out(after, eclass)
        known = {other: plan.bookings[other] for other in by_uid}
        book(after, plan.heads(after, known, eclass), known, movable=plan.turns, put_off=weaker)
        for other in (other for other in by_uid if other not in weaker):
            then = after.booking(other)
            if then is None or then.at_seconds > known[other].at_seconds:
                return by_uid[other], False
        self.put_off[uid] = weaker
        return None, False


def _stays(settled: tuple[_Basis, HeadPlan, int], basis: _Basis, now: float) -> bool:
    """Return whether a plan is as it would be if it were made now: from the same, and nobody is late."""
    return settled[0] == basis and all(now <= booking.at_seconds for booking in settled[1].bookings.values())
