"""Which heads of Backfill queues have room booked from when on: conservative backfill, with heads only.

The heads of a tree are booked one after the other, each at the earliest start that delays none of those it has no right
before. What is booked once is kept: with each change a head only moves up, into room that nobody else has booked. It is
put off only by those that may *take precedence* of it: one of higher priority, and one that takes no more than its own
side of the tree owns, below the lowest cohort that the two share. Whoever becomes a head later comes after those that
are booked, however old it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.backfill.timetable import Booking, Timetable
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A head that is to be booked, and its rank among the others."""

    eclass: EquivalenceClass
    vertex: Vertex
    amounts: AmountsByFlavor
    """What it takes, as far as that is known before it is booked."""
    level: int
    """How high in the tree it would borrow now."""
    turn: int
    """Number in the order in which gangs became heads."""
    kept: AmountsByFlavor
    """What it keeps of its queue's own quota while it has no start: not in its own way."""

    @property
    def uid(self) -> str:
        """Uid of the gang."""
        return self.eclass.head.uid

    @property
    def rank(self) -> tuple[int, int, int]:
        """In this order heads are booked that are not booked yet."""
        return (self.level, -self.eclass.sample.priority, self.turn)


def head_at(eclass: EquivalenceClass, turn: int, known: Booking | None, kept: AmountsByFlavor, taken: Usage) -> Head:
    """Return the head of a queue as of now, when the tree is used as ``taken`` says, what it keeps included."""
    vertex, queue = eclass.queue.vertex, eclass.queue.spec
    assert vertex is not None
    assert queue is not None
    amounts = eclass.smallest if known is None else known.amounts
    if amounts is None:

        def judge(key: FlavorResource, amount: int) -> Verdict:
            return Verdict(Mode.FIT, taken.borrow_level(vertex, key, amount)[0])

        amounts = assign(eclass.request, eclass.head.least_counts, queue.fungibility, Judge(judge)).usage
    taken.remove(vertex, kept)
    level = taken.highest_level(vertex, amounts)
    taken.add(vertex, kept)
    return Head(eclass, vertex, amounts, level, turn, kept)


def book(
    table: Timetable,
    heads: Iterable[Head],
    known: Mapping[str, Booking],
    *,
    movable: Iterable[str],
    put_off: Iterable[str] = (),
) -> None:
    """Enter the bookings of ``heads`` into a timetable that has none.

    ``known`` says by uid what was booked before. Of those that keep it, and those known to have no bounded start, only
    the ones in ``movable`` may move up. Those ``put_off`` by one that may do that keep their order among each other.
    """
    heads = sorted(heads, key=lambda each: each.rank)
    for each in heads:
        before = known.get(each.uid)
        if before is not None and before.vertex is each.vertex and before.asked == each.eclass.key:
            kept = before.not_before(table.now)
            if table.holds(kept):
                table.book(kept)
    searched, wanted, guarded = set(movable), {each.uid for each in heads}, set(put_off)
    changes, moved = 0, True
    in_vain: dict[str, tuple[int, int]] = {}
    while moved:
        moved = False
        for each in heads:
            booked = table.booking(each.uid)
            lost = booked is None and each.uid in known
            if not (each.uid in searched or lost) or (booked is not None and booked.at_seconds <= table.now):
                continue
            if in_vain.get(each.uid) == (state := (changes, len(guarded))):
                # Nothing has changed since it was tried last.
                continue
            others_moved = _move_up(table, each, heads, guarded)
            moved |= others_moved
            if others_moved or table.booking(each.uid) is not booked:
                changes += 1
            else:
                in_vain[each.uid] = state
        searched = wanted


def owns(usage: Usage, vertex: Vertex, other: Vertex, amounts: AmountsByFlavor, keys: Iterable[FlavorResource]) -> bool:
    """Return whether all that queue ``vertex`` would take of ``keys`` is owned by its side of the lowest cohort that it
    shares with queue ``other``, when the tree is used as ``usage`` says.
    """
    above = set(map(id, other.path()))
    side = vertex
    while side.parent is not None and id(side.parent) not in above:
        side = side.parent
    usage.add(vertex, amounts)
    owned = all(usage.of(side, key) <= side.subtree.get(key, 0) for key in keys)
    usage.remove(vertex, amounts)
    return owned


def _move_up(table: Timetable, one: Head, heads: Iterable[Head], guarded: set[str]) -> bool:
    """Book a head at its earliest start; return whether that made room for others, or took it from them.

    ``guarded`` are, and become, those that somebody takes precedence of: of two of them the first in order goes first.
    """
    before = table.cancel(one.uid)
    if before is not None:
        found = table.earliest(one.eclass, before.at_seconds)
        moved = found is not None and found.at_seconds < before.at_seconds
        table.book(found if found is not None and moved else before)
        return moved
    table.forgo(one.vertex, one.kept)
    later = [each for each in heads if each.rank > one.rank and table.booking(each.uid) is not None]
    peers = {each for each in later if one.uid in guarded and each.uid in guarded}
    behind = [each for each in later if each in peers or _takes_precedence(table.taken, one, each, one.amounts)]
    while True:
        found, lost = _book_before(table, one, behind)
        if found is None:
            table.charge(one.vertex, one.kept)
            return False
        outranked = [each for each in behind if _takes_precedence(table.taken, one, each, found.amounts)]
        wronged = [each for each in lost if each not in peers and each not in outranked]
        if not wronged:
            guarded.update(each.uid for each in outranked if lost)
            return bool(lost)
        # It was to take another flavor, of which it owns less.
        table.cancel(one.uid)
        for booking in lost.values():
            table.book(booking)
        behind = [each for each in behind if each not in wronged]


def _book_before(table: Timetable, one: Head, behind: Iterable[Head]) -> tuple[Booking | None, dict[Head, Booking]]:
    """Book a head as if those ``behind`` it were not; return its booking, and theirs that do not fit any more."""
    put_off = {each: booking for each in behind if (booking := table.cancel(each.uid)) is not None}
    found = table.earliest(one.eclass)
    if found is not None:
        table.book(found)
    lost = {}
    for each, booking in put_off.items():
        if table.holds(booking):
            table.book(booking)
        else:
            lost[each] = booking
    return found, lost


def _takes_precedence(taken: Usage, one: Head, other: Head, amounts: AmountsByFlavor) -> bool:
    """Return whether a head that takes ``amounts`` may be booked as if ``other``, later in order, were not."""
    if one.eclass.sample.priority > other.eclass.sample.priority:
        return True
    keys = amounts.keys() & other.amounts.keys()
    taken.remove(one.vertex, one.kept)
    owned = one.vertex is not other.vertex and owns(taken, one.vertex, other.vertex, amounts, keys)
    taken.add(one.vertex, one.kept)
    return owned


def asks(eclass: EquivalenceClass, amounts: AmountsByFlavor) -> bool:
    """Return whether the smallest start of the head of ``eclass`` could be charged ``amounts``."""
    asked = eclass.request.amounts(eclass.head.least_counts)
    return amounts.keys() <= eclass.request.keys and _by_resource(amounts) == _by_resource(asked)


def _by_resource(amounts: AmountsByFlavor) -> dict[str, int]:
    total: dict[str, int] = {}
    for key, amount in amounts.items():
        total[key.resource] = total.get(key.resource, 0) + amount
    return total
