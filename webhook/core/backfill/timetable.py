"""When a blocked head can start at the latest: a quota tree over time.

Running gangs end one by one at their run-time limits; heads that are booked come at their time and end at their limits
too. Gangs without a limit never end, those being stopped are as good as gone, and one that is still there after its
limit is expected to end at any moment.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from operator import itemgetter

from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.assignment.request import ClassKey
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex
from webhook.core.reasons.reasons import Code


@dataclass(frozen=True, slots=True)
class Booking:
    """What is kept for the head of a queue: the smallest start of that gang, from when until when."""

    uid: str
    asked: ClassKey
    """What the gang was when it was booked."""
    vertex: Vertex
    amounts: AmountsByFlavor
    at_seconds: float
    """Unix time of its earliest start."""
    end_seconds: float
    """When its limit has it end; infinite without one."""

    def not_before(self, now: float) -> "Booking":
        """Return it as it is when its time has come and it has not started: put off until ``now``."""
        late = now - self.at_seconds
        return self if late <= 0 else replace(self, at_seconds=now, end_seconds=self.end_seconds + late)


@dataclass(frozen=True, slots=True)
class Start:
    """A gang that would start now, or grow: what if?"""

    vertex: Vertex
    amounts: AmountsByFlavor
    end_seconds: float
    """Infinite when nobody knows."""
    gone: Sequence[Allocation] = ()
    """The gangs that would be stopped for it."""


class Timetable:
    """What is taken of one tree from now on, by what runs and by what is booked."""

    def __init__(self, allocations: Allocations, root: Vertex, now: float, start: Start | None = None) -> None:
        self.root, self.now = root, now
        self._view = allocations.projected.copy_of(root)
        if allocations.lifted is not None and allocations.lifted[1].root is root:
            self._view.add(*allocations.lifted[1:])
        gone = () if start is None else [each for each in start.gone if each.uid not in allocations.stopping]
        for victim in gone:
            vertex = allocations.vertex_of(victim)
            if vertex is not None:
                self._view.remove(vertex, victim.amounts)
        self._going = list(_ends(allocations, root, {victim.uid for victim in gone}))
        if start is not None:
            self._view.add(start.vertex, start.amounts)
            if start.end_seconds < inf:
                insort(self._going, (start.end_seconds, start.vertex, start.amounts), key=itemgetter(0))
        plain = start is None and allocations.lifted is None
        self.taken = allocations.projected if plain else self._view.copy_of(root)
        """What is taken now, but for bookings; while nothing changes."""
        self._ends = [end for end, _, _ in self._going]
        self._ended = 0
        self._booked: dict[str, tuple[Booking, Usage]] = {}
        """By uid, with what is taken at that start, it included."""
        self._there: dict[str, Booking] = {}
        """Those that the view counts."""
        self._lasting: Usage | None = None
        """What those take who have no limit, once somebody asked."""

    def may_hold(self, head: EquivalenceClass, kept: AmountsByFlavor) -> bool:
        """Return whether a head could start one day if nobody else were booked; ``kept`` is not in its way."""
        vertex = head.queue.vertex
        assert vertex is not None
        if head.smallest is None:
            return True
        if self._lasting is None:
            self._lasting = self._without_end()
        self._lasting.remove(vertex, kept)
        fits = self._lasting.fits(vertex, head.smallest)
        self._lasting.add(vertex, kept)
        return fits

    def _without_end(self) -> Usage:
        """Return what those take who have no limit."""
        view = self._view.copy_of(self.root)
        for _, vertex, amounts in self._going[self._ended :]:
            view.remove(vertex, amounts)
        for booking in self._there.values():
            view.remove(booking.vertex, booking.amounts)
        return view

    def booking(self, uid: str) -> Booking | None:
        """Return what is booked for a gang."""
        found = self._booked.get(uid)
        return None if found is None else found[0]

    def book(self, booking: Booking) -> None:
        """Enter a booking, which must fit."""
        snapshot = self._at(booking.at_seconds).copy_of(self.root)
        snapshot.add(booking.vertex, booking.amounts)
        for other, view in self._booked.values():
            if booking.at_seconds <= other.at_seconds < booking.end_seconds:
                view.add(booking.vertex, booking.amounts)
        self._booked[booking.uid] = (booking, snapshot)

    def cancel(self, uid: str) -> Booking | None:
        """Take a booking out and return it; None when there is none."""
        found = self._booked.pop(uid, None)
        if found is None:
            return None
        booking = found[0]
        for other, view in self._booked.values():
            if booking.at_seconds <= other.at_seconds < booking.end_seconds:
                view.remove(booking.vertex, booking.amounts)
        if self._there.pop(uid, None) is not None:
            self._view.remove(booking.vertex, booking.amounts)
        return booking

    def forgo(self, vertex: Vertex, amounts: AmountsByFlavor) -> None:
        """Leave out ``amounts`` that queue ``vertex`` takes at all times."""
        for view in self._views():
            view.remove(vertex, amounts)

    def charge(self, vertex: Vertex, amounts: AmountsByFlavor) -> None:
        """Let queue ``vertex`` take ``amounts`` at all times."""
        for view in self._views():
            view.add(vertex, amounts)

    def holds(self, booking: Booking) -> bool:
        """Return whether a booking would fit for all of its time."""
        views = self._views_over(booking.at_seconds, booking.end_seconds)
        return all(view.fits(booking.vertex, booking.amounts) for view in views)

    def refuses(self, start: Start) -> Booking | None:
        """Return the earliest booking that would have no room if somebody started now; that it fits now is known."""
        refused = (booking for booking, _ in self._booked.values() if self.keeps_out(booking.uid, start))
        return min(refused, key=lambda booking: (booking.at_seconds, booking.uid), default=None)

    def keeps_out(self, uid: str, start: Start) -> bool:
        """Return whether a booking would have no room if somebody started now."""
        booking, view = self._booked[uid]
        return booking.at_seconds < start.end_seconds and not view.fits(start.vertex, start.amounts)

    def has_more_room_beside(self, uid: str, before: "Timetable") -> bool:
        """Return whether less is taken anywhere at the start of a booking than another timetable with it says."""
        (_, now), (_, then) = self._booked[uid], before._booked[uid]
        return any(now.less_than(then, vertex) for vertex in self.root.below())

    def beside(self, booking: Booking, start: Start) -> bool:
        """Return whether somebody who starts now leaves room for a booking that is not entered, when it begins."""
        view = self._at(booking.at_seconds)
        view.add(start.vertex, start.amounts)
        fits = view.fits(booking.vertex, booking.amounts)
        view.remove(start.vertex, start.amounts)
        return fits

    def room(self, vertex: Vertex, key: FlavorResource, end_seconds: float) -> int:
        """Return what queue ``vertex`` could take from now until then; at most 0 where it is oversubscribed."""
        return min(view.available(vertex, key) for view in self._views_over(self.now, end_seconds))

    def earliest(self, head: EquivalenceClass, latest: float = inf) -> Booking | None:
        """Return the earliest booking that fits for the smallest start of a head, not after ``latest``.

        None when there is none: it depends on gangs without a run-time limit.
        """
        limit = head.head.max_run_seconds
        lasts = inf if limit is None else float(limit)
        turns = {self.now}
        for booking, _ in self._booked.values():
            turns.update((booking.at_seconds, booking.at_seconds - lasts, booking.end_seconds))
        known = sorted(turn for turn in turns if self.now <= turn < inf)
        beside = self._in_the_way(head)
        for turn, following in pairwise([*known, inf]):
            if turn > latest:
                return None
            ahead = [view for at, view in beside if turn < at < turn + lasts]
            if ahead and head.smallest is not None:
                continue
            at, amounts = turn, _least_start(head, (self._at(turn), *ahead))
            if amounts is None:
                ahead = [view for at, view in beside if turn < at <= turn + lasts]
                at, amounts = self._between(head, turn, following, ahead)
            if amounts is not None:
                assert head.queue.vertex is not None
                return Booking(head.head.uid, head.key, head.queue.vertex, amounts, at, at + lasts)
        return None

    def _in_the_way(self, head: EquivalenceClass) -> list[tuple[float, Usage]]:
        """Return when who is booked comes, and what is taken then: only those beside which the head does not fit, where
        there is no choice in what it takes.
        """
        vertex, least = head.queue.vertex, head.smallest
        assert vertex is not None
        views = ((booking.at_seconds, view) for booking, view in self._booked.values())
        return [(at, view) for at, view in views if least is None or not view.fits(vertex, least)]

    def _between(
        self, head: EquivalenceClass, turn: float, following: float, ahead: Sequence[Usage]
    ) -> tuple[float, AmountsByFlavor | None]:
        """Return when the head first fits after one turn and before the next, and what it takes then; else None.

        ``ahead`` is what is taken when others come before it would end. Nobody comes in between and the same come
        before it ends, so the later the more fits: ever larger steps first, then half of the last one again and again.
        """
        first, beyond = bisect_right(self._ends, turn), bisect_left(self._ends, following)
        if first == beyond or (ahead and _least_start(head, ahead) is None):
            return turn, None

        def start(number: int) -> AmountsByFlavor | None:
            return _least_start(head, (self._at(self._ends[number]), *ahead))

        low, high = first, first
        while high < beyond and start(high) is None:
            low, high = high + 1, high + 1 + 2 * (high + 1 - first)
        if high >= beyond:
            high = beyond - 1
            if low > high or start(high) is None:
                return turn, None
        number = low + bisect_left(range(low, high), True, key=lambda each: start(each) is not None)
        return self._ends[number], start(number)

    def _views(self) -> Iterator[Usage]:
        yield self._view
        for _, view in self._booked.values():
            yield view

    def _views_over(self, at: float, end: float) -> Iterator[Usage]:
        """Yield what is taken at those moments of a time at which most is: its start, and when others come."""
        yield self._at(at)
        for booking, view in self._booked.values():
            if at < booking.at_seconds < end:
                yield view

    def _at(self, at: float) -> Usage:
        """Return what is taken then; the same object as before, changed."""
        self._let_end(bisect_right(self._ends, at))
        for uid, (booking, _) in self._booked.items():
            there = booking.at_seconds <= at < booking.end_seconds
            if there and uid not in self._there:
                self._there[uid] = booking
                self._view.add(booking.vertex, booking.amounts)
            elif not there and self._there.pop(uid, None) is not None:
                self._view.remove(booking.vertex, booking.amounts)
        return self._view

    def _let_end(self, number: int) -> None:
        for _, vertex, amounts in self._going[self._ended : number]:
            self._view.remove(vertex, amounts)
        for _, vertex, amounts in self._going[number : self._ended]:
            self._view.add(vertex, amounts)
        self._ended = number


def _ends(
    allocations: Allocations, root: Vertex, gone: Collection[str]
) -> Iterator[tuple[float, Vertex, AmountsByFlavor]]:
    """Yield when which running gang gives back what to which queue, in that order."""
    for allocation in allocations.ending(root):
        vertex, end = allocations.vertex_of(allocation), allocation.end_seconds
        assert vertex is not None
        assert end is not None
        if allocation.uid not in gone:
            yield end, vertex, allocation.amounts


def _least_start(head: EquivalenceClass, views: Iterable[Usage]) -> AmountsByFlavor | None:
    """Return what the smallest start of a head takes where it fits all of ``views``; None where none does."""
    queue, vertex = head.queue.spec, head.queue.vertex
    assert queue is not None
    assert vertex is not None
    if head.smallest is not None:
        return head.smallest if all(view.fits(vertex, head.smallest) for view in views) else None
    seen = views if isinstance(views, Sequence) else tuple(views)

    def judge(key: FlavorResource, amount: int) -> Verdict:
        room = amount <= max(0, min(view.available(vertex, key) for view in seen))
        return Verdict(Mode.FIT if room else Mode.NO_FIT, 0, None if room else Code.WAITING_FOR_QUOTA)

    found = assign(head.request, head.head.least_counts, queue.fungibility, Judge(judge))
    return found.usage if found.mode is Mode.FIT else None
