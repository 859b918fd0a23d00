"""What is booked for the heads of one tree, or of one queue, and what that means for other starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from webhook.core.backfill.bookings import Head, head_at, owns
from webhook.core.backfill.timetable import Booking, Start, Timetable
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.quota.allocations import Allocations
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor
from webhook.core.reasons.barriers import BehindHead, Passing
from webhook.core.reasons.wake_keys import QueueHead


@dataclass(slots=True)
class HeadPlan:
    """The heads as of one moment."""

    allocations: Allocations
    now: float
    eclasses: Sequence[EquivalenceClass]
    turns: Mapping[str, int]
    """By uid, their order."""
    bookings: dict[str, Booking]
    table: Timetable | None = None
    """None: nothing is booked."""
    rights: frozenset[tuple[object, ...]] = frozenset()
    """Queue, priority and what is asked of each head that is booked: by that it goes who has a right before it."""
    _table: Timetable | None = None
    """Where those are looked for that are not booked, once somebody asked."""
    _starts: dict[str, Booking | None] = field(default_factory=dict)
    """By uid of such a head, what it could have booked."""

    def booking_of(self, head: EquivalenceClass) -> tuple[Booking | None, Timetable]:
        """Return what is booked for the head of a queue, or could be if it waits for more than quota; and where."""
        assert head.queue.vertex is not None
        uid, table = head.head.uid, self._table or self.table
        if table is None:
            table = self._table = Timetable(self.allocations, head.queue.vertex.root, self.now)
        if head in self.eclasses:
            return self.bookings.get(uid), table
        if uid not in self._starts:
            self._starts[uid] = table.earliest(head)
        return self._starts[uid], table

    def as_of(self, now: float) -> "HeadPlan":
        """Let time go on, of which nothing depends that is booked while nobody is late."""
        if now != self.now:
            self.now, self._starts = now, {}
            for table in (self.table, self._table):
                if table is not None:
                    table.now = now
        return self

    def may_not_pass(
        self, eclass: EquivalenceClass, start: Start, head: EquivalenceClass, fences: Fences
    ) -> BehindHead | None:
        """Return why ``eclass`` may not pass the head of its own queue, whether or not that is booked."""
        space, now = eclass.sample.namespace, self.now
        fenced = space == head.sample.namespace and bool(fences.fences(space))
        if eclass.head.max_run_seconds is None:
            return BehindHead(head.head.key, Passing.NO_LIMIT)
        if start.end_seconds == inf:
            return BehindHead(head.head.key, Passing.STOPS_OTHERS)
        booking, table = self.booking_of(head)
        if booking is None:
            if not fenced and not head.request.keys & start.amounts.keys():
                return None
            return BehindHead(head.head.key, Passing.START_UNKNOWN)
        beside = not fenced and (head in self.eclasses or table.beside(booking, start))
        if beside or start.end_seconds <= booking.at_seconds:
            return None
        return BehindHead(head.head.key, Passing.TOO_LONG, booking.at_seconds - now)

    def intervenes(self, start: Start, eclass: EquivalenceClass | None, head: EquivalenceClass) -> bool:
        """Return whether the head of ``eclass``, or one that grows, may put off the head of another queue."""
        vertex = head.queue.vertex
        assert vertex is not None
        if vertex is start.vertex:
            return False
        if eclass is not None and eclass.sample.priority > head.sample.priority:
            return True
        asked = self.bookings[head.head.uid].amounts.keys() & {key for key, amount in start.amounts.items() if amount}
        return owns(self.allocations.projected, start.vertex, vertex, start.amounts, asked)

    def heads(self, table: Timetable, known: Mapping[str, Booking], but: EquivalenceClass | None = None) -> list[Head]:
        """Return the heads that are booked or may be, as of now."""
        heads = []
        for eclass in self.eclasses:
            uid, kept = eclass.head.uid, self._kept_by(eclass.queue)
            if eclass is not but and (uid in known or table.may_hold(eclass, kept)):
                heads.append(head_at(eclass, self.turns[uid], known.get(uid), kept, table.taken))
        return heads

    def _kept_by(self, queue: PendingQueue) -> AmountsByFlavor:
        """Return what the head of a queue keeps of the queue's own quota, whether or not that is put aside just now."""
        lifted, head = self.allocations.lifted, QueueHead(queue.name)
        if lifted is not None and lifted[0] == head:
            return lifted[2]
        kept = self.allocations.promises.get(head)
        return {} if kept is None else kept[1]

    def step_out(self, table: Timetable, eclass: EquivalenceClass | None) -> Booking | None:
        """Leave out what is kept for the head of ``eclass`` itself."""
        if eclass is None:
            return None
        if self._is_lifted(eclass) and eclass.queue.vertex is not None:
            table.forgo(eclass.queue.vertex, self._kept_by(eclass.queue))
        return table.cancel(eclass.head.uid)

    def step_in(self, table: Timetable, eclass: EquivalenceClass | None, booking: Booking | None) -> None:
        """Let that be as it was."""
        if booking is not None:
            table.book(booking)
        if eclass is not None and self._is_lifted(eclass) and eclass.queue.vertex is not None:
            table.charge(eclass.queue.vertex, self._kept_by(eclass.queue))

    def _is_lifted(self, eclass: EquivalenceClass) -> bool:
        """Return whether what its queue keeps for its head is put aside for the head of ``eclass``."""
        lifted = self.allocations.lifted
        return lifted is not None and lifted[0] == QueueHead(eclass.queue.name)

    def with_more_room(self, after: "HeadPlan") -> list[str]:
        """Return the heads beside which ``after`` may have more room: their bookings moved, or keep less out."""
        return [
            uid
            for uid, booking in self.bookings.items()
            if after.bookings.get(uid) != booking or _has_more_room(uid, self.table, after.table)
        ]


def _has_more_room(uid: str, before: Timetable | None, after: Timetable | None) -> bool:
    return before is None or after is None or after.has_more_room_beside(uid, before)


def ends_at(limit_seconds: int | None, since_seconds: float) -> float:
    """Return the Unix time by which what starts at ``since_seconds`` has ended; infinity without a limit."""
    return inf if limit_seconds is None else since_seconds + limit_seconds
