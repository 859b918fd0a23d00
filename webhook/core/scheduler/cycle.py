"""One cycle: admit everything that fits, make room where policy allows, park the rest with what blocks it.

The order is that of repeated single admissions. A gang for which others must be stopped leaves the order and becomes a
claim: its room is promised to it in the projected usage until its victims are gone, and nobody else may take it. The
blocked head of a StrictFIFO queue holds back its own queue's unused nominal quota, at most what it asks, and nothing of
others.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Mode
from webhook.core.assignment.preemption import Candidate, Variant
from webhook.core.ledger.record import Claim, Reservation, reserve, with_places
from webhook.core.model.gang import Gang
from webhook.core.model.interning import interned
from webhook.core.model.policy import StopPolicy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.placement.misplaced import Misplaced
from webhook.core.quota.allocations import Allocation
from webhook.core.quota.tree import AmountsByFlavor, Vertex
from webhook.core.reasons.eviction import LOCAL_QUEUE_STOPPED, QUEUE_STOPPED
from webhook.core.reasons.wake_keys import QueueHead
from webhook.core.scheduler import booked_nodes, claims
from webhook.core.scheduler.growth import Room, grow, joining
from webhook.core.scheduler.plan import Plan, Preempted, Stopped
from webhook.core.scheduler.queue_order import ClassicalQueueOrder, FairQueueOrder, QueueOrder
from webhook.core.scheduler.queueing_hints import mark_unschedulable
from webhook.core.scheduler.state import State

DRAINED_MAX: Final = 100
"""Gangs that one cycle stops because their queues drain: all 400 of a queue in one plan took 60 ms."""


class Cycle:
    """One run over everything that changed."""

    def __init__(self, state: State, now: float, epoch: int, most: int | None = None, looks: int | None = None) -> None:
        self._state = state
        self._now, self._epoch, self._most, self._looks = now, epoch, most, looks
        self._looked_before: int | None = None
        """At how many gangs searches had looked before the first claim was settled; None before that."""
        self._admitted: list[Reservation] = []
        self._preempted: list[Preempted] = []
        self._steps = 0
        self._known: dict[EquivalenceClass, tuple[tuple[object, ...], Decision]] = {}
        """What was decided about a class, and from what."""
        self._raised: dict[Vertex, dict[PendingQueue, None]] = {}
        """By tree, the queues entered above the lowest level."""
        self._order: QueueOrder = ClassicalQueueOrder()
        if state.settings.fair_sharing:
            self._order = FairQueueOrder(self._decide_first, lambda: state.allocations.projected)

    def run(self) -> Plan:
        """Carry the cycle out on the state and return the plan."""
        claims.renew(self._state)
        self._state.settle_bookings(recheck=True)
        booked_nodes.renew(self._state)
        claims.let_heads_pass(self._state)
        self._looked_before = self._state.allocations.looked_at
        self._settle_claims()
        self._state.settle_guard(recheck=True)
        grown: list[Reservation] = []
        self._decide_all()
        if not self._state.pending.active:
            # Else who was asked before is still to be decided about: the next one would use up its searches each time.
            booked_nodes.ask_next(self._state)
        while True:
            self._decide_all()
            grown += () if self._spent else grow_all(self._state)
            # What grew may have been starved, and others of its queue with it; or it has put off a head that was
            # booked.
            woken = self._state.settle_bookings()
            if self._spent or not (self._state.settle_guard() or woken):
                self._state.cut = self._tired and (self._state.stirred or bool(self._state.pending.active))
                return Plan(tuple(self._admitted), tuple(grown), tuple(self._preempted))

    @property
    def _spent(self) -> bool:
        return (self._looks is not None and self._tired) or (self._most is not None and self._steps >= self._most)

    @property
    def _tired(self) -> bool:
        if self._looks is None or self._looked_before is None:
            return False
        return self._state.allocations.looked_at - self._looked_before >= self._looks

    # -- the order --------------------------------------------------------------------------------------------------

    def _decide_all(self) -> None:
        pending, order = self._state.pending, self._order
        while not self._spent:
            self._state.settle_bookings()
            self._state.settle_guard()
            pending.serve_bottlenecks()
            active, pending.active = pending.active, {}
            for queue in active:
                self._enter(queue)
            nominee = order.pop()
            if nominee is None:
                return
            level, queue = nominee
            eclass = queue.first()
            if eclass is None:
                continue
            if queue.has_to_lead(eclass):
                pending.mark_unschedulable(eclass, ())
                self._enter(queue)
                continue
            decision = self._decide_once(eclass)
            if decision.assignment.level > level and (decision.fits or decision.preempts or queue.strict):
                pending.pass_on(eclass)
                self._enter(queue, decision.assignment.level)
                continue
            self._act(eclass, decision)
            self._enter(queue)
        pending.active.update((queue, None) for queue in order.queues())

    def _decide_first(self, queue: PendingQueue) -> Decision:
        eclass = queue.first()
        assert eclass is not None
        return self._decide(eclass)

    def _decide_once(self, eclass: EquivalenceClass) -> Decision:
        """Decide about a class, or recall what was decided if nothing has been taken, promised or given back since."""
        by = (self._state.allocations.version, self._state.pending.changes, eclass.order[0])
        known = self._known.get(eclass)
        if known is not None and known[0] == by:
            return known[1]
        decision = self._decide(eclass)
        self._known[eclass] = (by, decision)
        return decision

    def _decide(self, eclass: EquivalenceClass) -> Decision:
        self._state.deciding = eclass.head.uid
        return self._state.decide(eclass)

    def _act(self, eclass: EquivalenceClass, decision: Decision) -> None:
        del self._known[eclass]
        self._state.deciding = eclass.head.uid
        if decision.barrier is not None and decision.misplaced is not None:
            instead = booked_nodes.instead_of_waiting(self._state, eclass, decision, self._smallest)
            if instead is not decision:
                self._known.clear()
            decision = instead
        if decision.fits or decision.preempts:
            held = self._end_promise(eclass)
            if decision.fits:
                self._admit_head(eclass, decision)
            else:
                self._preempt(eclass, decision)
            if held is not None:
                vertex, amounts = held
                left = [key for key, amount in amounts.items() if amount > decision.assignment.usage.get(key, 0)]
                self._state.wake(vertex, left)
        else:
            self._promise_unused(eclass, decision)
            decision = booked_nodes.held_up(self._state, eclass, decision, self._smallest)
            mark_unschedulable(self._state, eclass, decision)
            if booked_nodes.book(self._state, eclass, decision, self._smallest):
                self._known.clear()

    def _smallest(self, eclass: EquivalenceClass, decision: Decision) -> Reservation:
        """Return the smallest start of a class's head on the flavors that were decided about."""
        smallest = replace(decision, counts=eclass.head.least_counts)
        return plan(eclass, smallest, now=self._now, epoch=self._epoch, gang=eclass.head)

    def _end_promise(self, eclass: EquivalenceClass) -> tuple[Vertex, AmountsByFlavor] | None:
        """End what is held back for a head whose turn has come, and return it."""
        if not eclass.queue.heads(eclass):
            return None
        head = QueueHead(eclass.queue.name)
        held = self._state.allocations.promises.get(head)
        self._state.allocations.withdraw_promise(head)
        return held

    # -- admission --------------------------------------------------------------------------------------------------

    def _admit_head(self, eclass: EquivalenceClass, decision: Decision) -> None:
        gang = eclass.head
        kept = self._state.end_booking(gang.uid)
        self._state.pending.withdraw(gang.uid)
        reservation = admit(self._state, eclass, decision, now=self._now, epoch=self._epoch, gang=gang)
        if kept is not None and decision.places is not None and kept.places != decision.places.places:
            self._state.wake_nodes()
        self._count(reservation)
        self._clip_promise(eclass.queue)
        if eclass.queue.backfills:
            self._state.growing.update(dict.fromkeys(self._state.partial()))
        if eclass.queue.vertex is not None:
            self._enter_again(eclass.queue.vertex.root, everybody=False)

    def _clip_promise(self, queue: PendingQueue) -> None:
        """Let a head that was passed keep no more of its queue's own quota than is unused now."""
        allocations, head = self._state.allocations, QueueHead(queue.name)
        promised = allocations.promises.get(head) if queue.backfills else None
        if promised is not None:
            vertex, held = promised
            allocations.withdraw_promise(head)
            unused = {
                key: min(amount, allocations.projected.unused_nominal(vertex, key)) for key, amount in held.items()
            }
            allocations.promise(head, vertex, {key: amount for key, amount in unused.items() if amount > 0})

    def _count(self, reservation: Reservation) -> None:
        self._admitted.append(reservation)
        self._steps += 1

    def _enter(self, queue: PendingQueue, level: int = 0) -> None:
        """Take up a queue's nominee, which goes at least at ``level``."""
        eclass = queue.first()
        if eclass is not None:
            eclass.level = max(level, eclass.level)
            if eclass.level > 0 and queue.vertex is not None:
                self._raised.setdefault(queue.vertex.root, {})[queue] = None
        self._order.enter(queue, eclass, level)

    def _enter_again(self, root: Vertex, *, everybody: bool) -> None:
        """Put nominees of one tree back to the lowest level: everybody's after a preemption, and after an admission
        those with other flavors or sizes to turn to; all others only rise by it.
        """
        raised = self._raised.get(root, {})
        for queue in list(raised):
            eclass = queue.first()
            if eclass is None or everybody or eclass.shifting:
                del raised[queue]
            if eclass is not None and (everybody or eclass.shifting):
                eclass.level = 0
                self._order.enter(queue, eclass)

    # -- preemption -------------------------------------------------------------------------------------------------

    def _preempt(self, eclass: EquivalenceClass, decision: Decision) -> None:
        state, queue = self._state, eclass.queue
        assert queue.vertex is not None
        stopped = stop_all(state, queue, eclass.head, decision.victims)
        self._preempted += stopped
        self._steps += bool(stopped)
        gang = eclass.head
        state.lapse_booking(gang.uid)
        awaits = tuple(dict.fromkeys((*(c.allocation.uid for c in decision.victims), *decision.awaits)))
        planned = plan(eclass, decision, now=self._now, epoch=self._epoch, gang=gang)
        state.pending.claim(gang, eclass)
        state.allocations.promise(gang.uid, queue.vertex, decision.assignment.usage)
        state.claims[gang.uid] = Claim(planned, awaits)
        claims.keep_places(state, gang.uid, decision.places)
        for victim in decision.victims:
            state.wake(victim.vertex, victim.allocation.amounts)
        self._enter_again(queue.vertex.root, everybody=True)

    def _settle_claims(self) -> None:
        """Admit the gangs whose room has become free, in order, none into room that was made for an earlier claim.

        Those whose gangs are not known come first: what they may have come before is not known either. Who has nodes
        again, or others to wait for, or lapsed, is not searched for once more in the next cycle if this one ends here.
        """
        state = self._state
        claimants = state.claimants()
        if not state.stirred or not claimants:
            state.stirred = False
            return
        allocations, view = state.allocations, state.allocations.usage.copy()
        gone: set[str] = set()
        for claimant in (*state.claimants(known=False), *sorted(claimants, key=partial(claims.order, state))):
            if self._spent:
                return
            state.deciding = claimant
            vertex, amounts = allocations.promises[claimant]
            known, claim = state.is_claiming(claimant), state.claims[claimant]
            # One that has ended and was started again is nobody to wait for.
            waits = [uid for uid in claim.awaits if uid in allocations.stopping]
            taken_up = known and view.fits(vertex, amounts) and self._take_up(claimant)
            if known and not taken_up and not claims.may_go_on(state, claimant, waits):
                waits = claims.await_others(state, claimant)
                if not waits:
                    continue
            for uid in waits if claimant in allocations.promises else ():
                # Of thousands of claims each may await the same thousands.
                if uid in gone:
                    continue
                gone.add(uid)
                going = allocations.vertex_of(allocations.by_uid[uid])
                if going is not None:
                    view.remove(going, allocations.by_uid[uid].amounts)
            view.add(vertex, amounts)
        state.stirred = False

    def _take_up(self, uid: str) -> bool:
        """Admit a gang that claims if quota, fences and nodes have room for all of it by now; return whether they do.

        It is admitted on those nodes that were found free: whoever asks again may be put off.
        """
        state, claim, record = self._state, self._state.claims[uid], self._state.pending.records[uid]
        vertex, amounts = state.allocations.promises[uid]
        if not state.allocations.usage.fits(vertex, amounts):
            return False
        if state.fences.shortfall(record.gang, claim.planned.counts) is not None:
            return False
        places = claims.places_of(state, uid)
        if isinstance(places, Misplaced):
            return False
        assert record.queue is not None
        kept = state.end_claim(uid)
        if kept is not None and places is not None and kept.places != places.places:
            state.wake_nodes()
        state.pending.withdraw(uid)
        planned = with_places(claim.planned, {})
        reservation = replace(planned, epoch=self._epoch, since_seconds=self._now, priority=record.gang.priority)
        reservation = state.allot(reservation, places)
        self._count(charge(state, record.queue, record.gang, reservation, amounts))
        # Room may have come since its size was chosen.
        state.growing[uid] = None
        return True

    def _promise_unused(self, eclass: EquivalenceClass, decision: Decision) -> None:
        """Let the blocked head of a StrictFIFO or Backfill queue keep the queue's unused nominal quota to itself."""
        state, queue = self._state, eclass.queue
        if queue.vertex is None or not queue.keeps_quota(eclass):
            return
        vertex, head = queue.vertex, QueueHead(queue.name)
        before = state.allocations.promises.get(head)
        state.allocations.lift(head)
        held: dict[FlavorResource, int] = {}
        # Who has room booked is protected by that, and leaves the gap before it to others.
        booked = queue.backfills and state.backfill.keeps_room_for(eclass, state.fences, self._now)
        short = decision.assignment.mode is Mode.NO_CANDIDATES and decision.barrier is None
        # It may have nodes, and would start at once: its quota is here when its turn comes to look at them.
        if (short or decision.postponed) and not booked:
            for key, amount in decision.assignment.usage.items():
                unused = min(amount, state.allocations.projected.unused_nominal(vertex, key))
                if unused > 0:
                    held[key] = unused
        state.allocations.put_back()
        if before is not None and before[1] != held:
            state.allocations.promise(head, vertex, held)
            state.wake(*before)
        elif before is None and held:
            state.allocations.promise(head, vertex, held)


# -- what every cycle does ------------------------------------------------------------------------------------


def admit(
    state: State, eclass: EquivalenceClass, decision: Decision, *, now: float, epoch: int, gang: Gang
) -> Reservation:
    """Reserve for ``gang``, which no longer waits, what was decided about it."""
    reservation = plan(eclass, decision, now=now, epoch=epoch, gang=gang)
    reservation = state.allot(reservation, decision.places)
    return charge(state, eclass.queue, gang, reservation, decision.assignment.usage)


def plan(eclass: EquivalenceClass, decision: Decision, *, now: float, epoch: int, gang: Gang) -> Reservation:
    """Return what ``gang`` of ``eclass`` holds once what was decided about it is done."""
    flavors = decision.assignment.flavors
    vertex = eclass.queue.vertex
    cohorts = () if vertex is None else tuple(above.name for above in vertex.path())[1:]
    return reserve(gang, eclass.queue.name, decision.counts, flavors, epoch, now, eclass.request.charges, cohorts)


def charge(
    state: State, queue: PendingQueue, gang: Gang, planned: Reservation, amounts: Mapping[FlavorResource, int]
) -> Reservation:
    """Let ``gang``, which no longer waits, hold what was ``planned`` for it at ``amounts``; return its reservation."""
    preemptible, reservation = state.policy.may_be_preempted(gang, queue.name), planned
    if reservation.preemptible is not preemptible:
        reservation = replace(planned, preemptible=preemptible)
    state.allocations.put(Allocation(reservation, interned(amounts), gang))
    state.stopped_for_share.pop(gang.uid, None)
    state.pending.admitted_beside(queue, gang.priority)
    state.usage.charge(queue, gang, amounts)
    state.fences.put_reservation(reservation)
    return reservation


def stop_all(state: State, queue: PendingQueue, gang: Gang, victims: tuple[Candidate, ...]) -> list[Preempted]:
    """Mark ``victims`` as being stopped for ``gang`` of a queue; those already going are left out of the result."""
    stopped = []
    for victim in victims:
        if victim.allocation.uid in state.allocations.stopping:
            continue
        state.allocations.stop(victim.allocation.uid)
        if victim.variant is Variant.FAIR_SHARING:
            state.note_stop(victim.allocation.uid, gang.uid)
        why = victim.variant.reason
        text = f"stopped for {gang.key} of queue {queue.name} ({why})"
        stopped.append(Preempted(victim.allocation.uid, gang.uid, why, text))
    return stopped


def grow_all(state: State) -> tuple[Reservation, ...]:
    """Let gangs that started below full size take what is left."""
    grown = []
    partial = state.partial() if state.growing else {}
    seats, room = joining(state.policy, state.settings), Room(state.allocations, state.fences, state.decider)
    for uid in sorted(state.growing):
        state.deciding = uid
        allocation, larger = partial.get(uid), None
        # Who is awaited by a booking may take from it what it is to leave there: each time it has more to leave.
        while allocation is not None and (more := grow(allocation, room, state.lets_grow, seats)) is not None:
            places = room.places(allocation, more.reservation)
            if isinstance(places, Misplaced):
                # Of more shapes than are kept, one is to be looked at once more in a later round: it grows then.
                break
            if places is not None:
                more = replace(more, reservation=state.allot_more(more.reservation, places))
            state.allocations.put(more)
            state.fences.put_reservation(more.reservation, more.reclaimed)
            allocation = larger = more
        if larger is not None:
            grown.append(larger.reservation)
    state.growing = {}
    return tuple(grown)


def drain(state: State) -> tuple[Stopped, ...]:
    """Return which admitted gangs are to be stopped because their queue drains, each once, some in each cycle."""
    if not state.undrained:
        return ()
    state.undrained = state.draining = False
    stopped: list[Stopped] = []
    for uid in sorted(state.allocations.by_uid):
        if len(stopped) == DRAINED_MAX:
            state.undrained = state.draining = True
            break
        allocation = state.allocations.by_uid[uid]
        going = uid in state.allocations.stopping
        found = None if going or not allocation.reservation.evictable else _drained_by(state, allocation)
        if found is not None:
            state.allocations.stop(uid)
            stopped.append(found)
    return tuple(stopped)


def _drained_by(state: State, allocation: Allocation) -> Stopped | None:
    queue = state.policy.queues.get(allocation.reservation.queue or "")
    if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return Stopped(allocation.uid, QUEUE_STOPPED, f"queue {queue.name} is stopped ({queue.stop_policy})")
    label = None if allocation.gang is None else allocation.gang.queue
    local = state.policy.local_queues.get((allocation.reservation.namespace, label or ""))
    if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        where = f"LocalQueue {local.namespace}/{local.name}"
        return Stopped(allocation.uid, LOCAL_QUEUE_STOPPED, f"{where} is stopped ({local.stop_policy})")
    return None
