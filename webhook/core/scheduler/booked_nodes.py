"""Booked nodes: a gang that has quota and finds no nodes keeps those that become free first.

Otherwise smaller gangs take each node as it becomes free, and a wide one never finds enough of them at once, in a
queue of any strategy. Nobody is stopped for it. Of the gangs that run, as few are awaited as make room for it: first
those that end first by their run-time limits, then those without a limit, from the oldest on. On its
nodes, what it needs beyond what those still hold is kept free for it (``placement.claimed``). It waits in its queue as
before, and starts wherever it fits first.

Of those that share a flavor one gang books: the first by priority, time, uid that waits only for nodes. Who would
wait for the head of a Backfill queue, or for a starved gang, if there were nodes, books none. Who has booked looks for
nodes again whenever there is room besides what it keeps, so that it keeps what others left earlier than expected.
While no node goes away and nobody else's pods come, the last gang that it awaits never becomes a later one.

A booking ends with the wait, or when its gang would not start even if its nodes were free: another goes first, or the
quota would not do once those are gone that are awaited. It is not in the ledger: nobody was stopped for it, and a new
leader books again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Assignment, Mode
from webhook.core.ledger.record import Claim, Reservation, with_places
from webhook.core.model.gang import Gang
from webhook.core.nodes.claimed import Claimed
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.vacated import Vacated
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import Usage, Vertex
from webhook.core.reasons.barriers import HELD_UP
from webhook.core.reasons.wake_keys import NodesFreed, QueueHead
from webhook.core.scheduler.state import State

Smallest = Callable[[EquivalenceClass, Decision], Reservation]
"""Returns the smallest start of a class's head on the flavors that were decided about; asked where nodes are short."""

MOST_AWAITED: Final = 1_000
"""A gang that would have to wait for more gangs than these books nothing: the search would hold up everybody."""

SEARCHES: Final = 4
"""So many gangs look for nodes to book in one cycle, the others in a later one: each may take 20 ms, and who makes a
thousand jobs that fit no nodes at all would hold up everybody."""

LOOKS: Final = 4_000
"""At so many nodes a cycle may look in searches that find nothing or something to book, a hundredth of a second. What
one takes beyond that the next cycles make up for, in which nobody searches."""


def renew(state: State) -> None:
    """End bookings of gangs whose turn is over, and have those decided about again whose nodes went away."""
    state.searches_left = SEARCHES
    state.ceilings.begin_cycle()
    state.looks_owed = max(0, state.looks_owed - LOOKS)
    state.asked_at = state.asked_from
    for uid in list(state.booked):
        eclass = _turn_of(state, uid)
        if eclass is None or not _would_start(state, eclass):
            state.lapse_booking(uid)
        elif eclass.unschedulable and state.nodes is not None and not state.nodes.keeps(uid):
            state.pending.wake_class(eclass)


def ask_next(state: State) -> bool:
    """Have the next one decided about that lacks nodes, in their order, since a booking has ended; return whether there
    was any. It may book nodes now, also where there are not enough for it yet.

    Of two, one that comes later but is decided about first could use up the searches of every cycle.
    """
    since = state.asked_from
    if since is None or state.looks_owed > LOOKS:
        return False
    waiting = {state.order(each.head.uid): each for each in state.pending.waiting_for(NodesFreed()) if each.order}
    turn = sorted(each for each in waiting if each >= since)
    if turn:
        state.pending.wake_class(waiting[turn[0]])
    if len(turn) > 1:
        state.asked_from = turn[1]
    else:
        state.asked_from, state.asked_next = state.asked_next, None
    return bool(turn)


def instead_of_waiting(state: State, eclass: EquivalenceClass, decision: Decision, smallest: Smallest) -> Decision:
    """Return what can be decided about the head of ``eclass``, which finds no nodes, if those after it had booked none,
    and if others are stopped for the sake of their nodes.

    Where it starts or stops others then, or books some, those after it have none any more.
    """
    nodes, uid, state.searcher = state.nodes, eclass.head.uid, None
    if _goes_on(state, uid):
        return decision
    later = [each for each in _rivals(state, eclass, decision) if state.order(each) > state.order(uid)]
    stops = state.may_stop_for_nodes(eclass)
    may_help = bool(later) or (stops and _waits_for_nodes_alone(decision))
    if nodes is None or not may_help or not _lacks_nodes(decision) or not _may_search(state, uid):
        return decision
    looked, kept = nodes.looked, {each: nodes.unclaim(each) for each in later}
    instead = state.decide(eclass) if later else decision
    if stops and _waits_for_nodes_alone(instead):
        instead = state.decide(eclass, stops_for_nodes=True)
        if not instead.preempts:
            # It looked at all that may be stopped, which may be thousands: it may still book, others come later.
            state.searches_left = min(state.searches_left, 1)
    helps = instead.fits or instead.preempts
    if later and not helps:
        helps = _waits_for_nodes_alone(instead) and _could_book(state, eclass, smallest(eclass, instead))
    for each, claimed in kept.items():
        if claimed is not None:
            nodes.claim(each, claimed)
    if not helps:
        state.looks_owed += nodes.looked - looked
        _goes_on(state, uid)
        return decision
    for each in later:
        state.lapse_booking(each)
    return instead


def held_up(state: State, eclass: EquivalenceClass, decision: Decision, smallest: Smallest) -> Decision:
    """Return the decision about the head of ``eclass``, which is blocked, with what else would keep it from starting if
    it had nodes: where its turn has come to book some, and it may search for them.
    """
    uid = eclass.head.uid
    if not _waits_for_nodes_alone(decision) or not _searches_left(state, uid):
        return decision
    if any(state.order(each) < state.order(uid) for each in _rivals(state, eclass, decision)):
        return decision
    start = _start_of(state, eclass, smallest(eclass, decision))
    return decision if start is None else replace(decision, held_up_by=start.barrier, owed=start.owed)


def book(state: State, eclass: EquivalenceClass, decision: Decision, smallest: Smallest) -> bool:
    """Book nodes for the blocked head of ``eclass`` if it waits for nodes alone and nobody goes before it; return
    whether anything changed. What it has booked it keeps while a look at its nodes is put off.
    """
    nodes = state.nodes
    if nodes is None or decision.postponed:
        return False
    uid = eclass.head.uid
    if not _waits_for_nodes_alone(decision) or _rivals(state, eclass, decision):
        lost = uid in state.booked and (_is_held_up(decision) or not nodes.keeps(uid))
        if lost:
            state.lapse_booking(uid)
        return lost
    if nodes.keeps(uid) and decision.misplaced is not None and not nodes.ranking(decision.misplaced.asked.shape).total:
        return False
    if _goes_on(state, uid) or not _may_search(state, uid):
        return False
    looked, kept, planned = nodes.looked, nodes.unclaim(uid), smallest(eclass, decision)
    found = _first_to_be_free(state, eclass.head, planned)
    if found is None:
        state.looks_owed += nodes.looked - looked
        goes_on = _goes_on(state, uid)
        if kept is None:
            return False
        if goes_on:
            nodes.claim(uid, kept)
        else:
            state.lapse_booking(uid)
        return not goes_on
    claimed, awaits = found
    nodes.claim(uid, claimed)
    state.booked[uid] = Claim(with_places(planned, claimed.allotment.places), awaits)
    if kept is not None and kept.allotment.places != claimed.allotment.places:
        state.wake_nodes()
    return True


def _could_book(state: State, eclass: EquivalenceClass, planned: Reservation) -> bool:
    """Return whether the head of ``eclass`` would start on nodes, and such become free."""
    start = _start_of(state, eclass, planned)
    return start is not None and start.fits and _first_to_be_free(state, eclass.head, planned) is not None


def _first_to_be_free(state: State, gang: Gang, planned: Reservation) -> tuple[Claimed, tuple[str, ...]] | None:
    """Return where a gang would go once as few as possible have ended, in their order, and which of them are there."""
    counts, flavors = planned.counts, planned.flavors
    nodes, seats = state.nodes, state.decider.vacated(gang, counts, flavors)
    assert nodes is not None
    assert seats is not None
    looked = nodes.looked
    if seats.hopeless:
        return None
    ends: list[Allocation] = []
    beside = _beside(state, planned.usage())
    if not seats.found() and not _suffice(state, gang, seats, beside, planned):
        return None
    for allocation in sorted(beside, key=lambda each: _end(state, each)):
        if seats.found():
            break
        if len(ends) == MOST_AWAITED or seats.given_up:
            return None
        seats.take(allocation.uids)
        ends.append(allocation)
    # All of it was looked at above: no look is asked for again, which might be put off.
    places = place(nodes, seats.asked, nodes.held_by([uid for each in ends for uid in each.uids]))
    if isinstance(places, Misplaced):
        return None
    # Whoever books looks for nodes again whenever some become free.
    state.looks_owed += nodes.looked - looked
    awaited = [each for each in ends if places.nodes & nodes.held_by(each.uids).keys()]
    claimed = Claimed(places, {uid for each in awaited for uid in each.uids}, booked=True)
    return claimed, tuple(each.uid for each in awaited)


def _suffice(state: State, gang: Gang, seats: Vacated, beside: Iterable[Allocation], planned: Reservation) -> bool:
    """Return whether there might be nodes once all are gone that run ``beside`` a gang; False is certain, unless there
    was no answer yet.
    """
    kind = ("all of", *sorted({key.flavor for key in planned.usage()}))
    gangs = dict.fromkeys(uid for each in beside for uid in each.uids)
    return bool(state.decider.ceilings.may_hold(seats.capacity, seats.alike, kind, gangs, gang.uid))


def _beside(state: State, usage: Mapping[FlavorResource, int]) -> list[Allocation]:
    """Return the gangs on the same flavors."""
    flavors = {key.flavor for key in usage}
    allocations = state.allocations.by_uid.values()
    return [each for each in allocations if any(key.flavor in flavors for key in each.amounts)]


def _end(state: State, allocation: Allocation) -> tuple[bool, float, float, str]:
    """Return the sort key by which gangs are expected to end."""
    end = allocation.end_seconds
    going = allocation.uid in state.allocations.stopping
    return not going, inf if end is None else end, allocation.reservation.since_seconds, allocation.uid


def _may_search(state: State, uid: str) -> bool:
    """Count one more search; where there were too many in this cycle, have who has to wait be asked in later ones."""
    if not _searches_left(state, uid):
        _ask_later(state, state.order(uid))
        return False
    state.searches_left, state.searcher = max(0, state.searches_left - 1), uid
    return True


def _searches_left(state: State, uid: str) -> bool:
    """Return whether there may be a search for a gang. Who has begun one may end it: others may have lost what they had
    booked for the sake of what it was found to book.
    """
    return (state.searches_left > 0 or state.searcher == uid) and state.looks_owed <= LOOKS


def _goes_on(state: State, uid: str) -> bool:
    """Return whether it is not known yet what nodes would hold for a gang without others; if so, ask again in the next
    cycle. What is counted for one keeps no other from being asked, but few search beside it.
    """
    if uid not in state.ceilings.waiting:
        return False
    state.searches_left = min(state.searches_left, 1)
    _ask_later(state, state.order(uid))
    return True


def _ask_later(state: State, place: tuple[int, float, str]) -> None:
    """Have who has to wait be asked in a later cycle. One that was woken, and not asked, does not put those off whose
    turn it is: it is asked when they have been.
    """
    begun, now, later = state.asked_at, state.asked_from, state.asked_next
    if now is None or begun is None:
        state.asked_from = place if now is None else min(place, now)
    elif place < begun:
        state.asked_next = place if later is None else min(place, later)
    elif now < begun:
        state.asked_from, state.asked_next = place, now if later is None else min(now, later)
    else:
        state.asked_from = min(place, now)


def _lacks_nodes(decision: Decision) -> bool:
    misplaced = decision.misplaced
    return misplaced is not None and not misplaced.unseen


def _waits_for_nodes_alone(decision: Decision) -> bool:
    """Return whether the quota of a queue has room and nobody else goes first, as far as is known, and the nodes have
    no room.
    """
    fits = decision.assignment.mode is Mode.FIT and decision.held_up_by is None
    return fits and _lacks_nodes(decision) and bool(decision.assignment.usage)


def _is_held_up(decision: Decision) -> bool:
    """Return whether the quota has room, and others go first whether or not the nodes have room."""
    barrier = decision.barrier if decision.misplaced is None else decision.held_up_by
    return decision.assignment.mode is Mode.FIT and isinstance(barrier, HELD_UP)


def _rivals(state: State, eclass: EquivalenceClass, decision: Decision) -> list[str]:
    """Return the gangs that have nodes of the same flavors booked."""
    flavors = {key.flavor for key in decision.assignment.usage}
    return [
        uid
        for uid, booked in state.booked.items()
        if uid != eclass.head.uid and any(key.flavor in flavors for key in booked.planned.usage())
    ]


def _turn_of(state: State, uid: str) -> EquivalenceClass | None:
    """Return the class of which a gang is the head and which its queue would let start; None where there is none."""
    record = state.pending.records.get(uid)
    eclass = None if record is None else record.eclass
    if eclass is None or eclass.ineligible is not None or eclass.queue.closed is not None or eclass.head.uid != uid:
        return None
    ahead = (eclass.queue.top() or eclass.queue.strict_head()) if eclass.queue.strict else None
    return eclass if ahead in {None, eclass} else None


def _would_start(state: State, eclass: EquivalenceClass) -> bool:
    """Return whether the head of ``eclass``, which has nodes booked, would start if they were free."""
    booked = state.booked[eclass.head.uid]
    start = _start_of(state, eclass, booked.planned, booked.awaits)
    return start is not None and start.fits


def _start_of(
    state: State, eclass: EquivalenceClass, planned: Reservation, awaits: Iterable[str] = ()
) -> Decision | None:
    """Return what would be decided about the head of ``eclass`` if there were nodes for what is ``planned``; None where
    it lacks quota, or a fence has no room. If the quota would not do now, those that it ``awaits`` count as gone.
    """
    allocations, queue, vertex, usage = state.allocations, eclass.queue, eclass.queue.vertex, planned.usage()
    if vertex is None:
        return None
    awaited = [allocations.by_uid[each] for each in awaits if each in allocations.by_uid]
    jobs = {job for each in awaited for job in each.reservation.jobs}
    if state.fences.shortfall(eclass.head, planned.counts, jobs) is not None:
        return None
    if queue.strict or queue.backfills:
        # As when it is decided about: what its queue keeps is kept for it, or it passes by the rule of heads.
        allocations.lift(QueueHead(queue.name))
    gone = [] if allocations.projected.fits(vertex, usage) else _still_there(allocations, vertex, awaited)
    fits = _without(allocations, vertex, gone).fits(vertex, usage)
    if not queue.leads(eclass):
        allocations.put_back()
    start = Decision(planned.counts, Assignment(Mode.FIT, 0, planned.flavors, usage))
    why = state.backfill.refusal(eclass, start, state.fences, state.now, gone) if fits else None
    if why is not None:
        start = replace(start, barrier=why)
    elif fits:
        view = _without(allocations, vertex, gone) if gone else None
        start = state.guard.judge(eclass, start, state.fences, view)
    allocations.put_back()
    return start if fits else None


def _still_there(allocations: Allocations, vertex: Vertex, awaited: Iterable[Allocation]) -> list[Allocation]:
    """Return those that hold quota in the tree of ``vertex`` and are not being stopped."""
    homes = [(each, allocations.vertex_of(each)) for each in awaited if each.uid not in allocations.stopping]
    return [each for each, home in homes if home is not None and home.root is vertex.root]


def _without(allocations: Allocations, vertex: Vertex, gone: Sequence[Allocation]) -> Usage:
    """Return what is used of the tree of ``vertex`` once these are ``gone``, and all that is decided is done."""
    left = allocations.projected.copy_of(vertex.root) if gone else allocations.projected
    for each in gone:
        home = allocations.vertex_of(each)
        assert home is not None
        left.remove(home, each.amounts)
    return left
