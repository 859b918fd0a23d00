"""One cycle: admit everything that fits, make room where policy allows, park the rest with what blocks it.

The order is that of repeated single admissions. A gang for which others must be stopped leaves the order and becomes a
claim: its room is promised to it in the outlook until its victims are gone, and nobody else may take it. The blocked
head of a StrictFIFO queue holds back its own queue's unused nominal quota, at most what it asks, and nothing of others.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Mode
from webhook.core.assignment.preemption import Candidate, Variant
from webhook.core.ledger.record import Claim, Reservation, reserve
from webhook.core.model.eviction import LOCAL_QUEUE_STOPPED, QUEUE_STOPPED
from webhook.core.model.gang import Gang
from webhook.core.model.policy import FlavorResource, StopPolicy
from webhook.core.model.wake_keys import QueueHead
from webhook.core.pending.queueing import Lane, Line
from webhook.core.placement.fit import Misplaced
from webhook.core.quota.allocations import Holding
from webhook.core.quota.tree import AmountsByFlavor, Node
from webhook.core.scheduler import claims
from webhook.core.scheduler.entry_order import Agenda, ClassicalAgenda, FairAgenda
from webhook.core.scheduler.growth import grow, joining
from webhook.core.scheduler.plan import Plan, Preempted, Stopped
from webhook.core.scheduler.queueing_hints import park
from webhook.core.scheduler.state import State


class Cycle:
    """One run over everything that changed."""

    def __init__(self, state: State, now: float, epoch: int, most: int | None = None) -> None:
        self._state = state
        self._now, self._epoch, self._most = now, epoch, most
        self._admitted: list[Reservation] = []
        self._preempted: list[Preempted] = []
        self._steps = 0
        self._known: dict[Line, tuple[tuple[object, ...], Decision]] = {}
        """What was decided about a line, and from what."""
        self._raised: dict[Node, dict[Lane, None]] = {}
        """By tree, the lanes entered above the lowest level."""
        self._agenda: Agenda = ClassicalAgenda()
        if state.settings.fair_sharing:
            self._agenda = FairAgenda(self._decide_first, lambda: state.holdings.outlook)

    def run(self) -> Plan:
        """Carry the cycle out on the state and return the plan."""
        claims.renew(self._state)
        self._state.settle_bookings(anew=True)
        claims.let_heads_pass(self._state)
        self._settle_claims()
        self._state.end_hunger(anew=True)
        grown: list[Reservation] = []
        while True:
            self._decide_all()
            grown += () if self._spent else grow_all(self._state)
            # What grew may have been hungry, and others of its queue with it; or it has put off a head that was booked.
            woken = self._state.settle_bookings()
            if self._spent or not (self._state.end_hunger() or woken):
                return Plan(tuple(self._admitted), tuple(grown), tuple(self._preempted))

    @property
    def _spent(self) -> bool:
        return self._most is not None and self._steps >= self._most

    # -- the order --------------------------------------------------------------------------------------------------

    def _decide_all(self) -> None:
        room, agenda = self._state.room, self._agenda
        while not self._spent:
            self._state.settle_bookings()
            self._state.end_hunger()
            room.open_gates()
            awake, room.active = room.active, {}
            for lane in awake:
                self._enter(lane)
            offer = agenda.pop()
            if offer is None:
                return
            level, lane = offer
            line = lane.first()
            if line is None:
                continue
            if lane.has_to_lead(line):
                room.park(line, ())
                self._enter(lane)
                continue
            decision = self._decide_once(line)
            if decision.assignment.level > level and (decision.fits or decision.preempts or lane.strict):
                room.pass_on(line)
                self._enter(lane, decision.assignment.level)
                continue
            self._act(line, decision)
            self._enter(lane)
        room.active.update((lane, None) for lane in agenda.lanes())

    def _decide_first(self, lane: Lane) -> Decision:
        line = lane.first()
        assert line is not None
        return self._decide(line)

    def _decide_once(self, line: Line) -> Decision:
        """Decide about a line, or recall what was decided if nothing has been taken, promised or given back since."""
        by = (self._state.holdings.version, self._state.room.changes, line.order[0])
        known = self._known.get(line)
        if known is not None and known[0] == by:
            return known[1]
        decision = self._decide(line)
        self._known[line] = (by, decision)
        return decision

    def _decide(self, line: Line) -> Decision:
        return self._state.decide(line)

    def _act(self, line: Line, decision: Decision) -> None:
        del self._known[line]
        if decision.fits or decision.preempts:
            held = self._end_hold(line)
            if decision.fits:
                self._admit_head(line, decision)
            else:
                self._preempt(line, decision)
            if held is not None:
                node, amounts = held
                left = [key for key, amount in amounts.items() if amount > decision.assignment.usage.get(key, 0)]
                self._state.wake(node, left)
        else:
            self._hold_back(line, decision)
            park(self._state, line, decision)

    def _end_hold(self, line: Line) -> tuple[Node, AmountsByFlavor] | None:
        """End what is held back for a head whose turn has come, and return it."""
        if not line.lane.heads(line):
            return None
        head = QueueHead(line.lane.name)
        held = self._state.holdings.promises.get(head)
        self._state.holdings.withdraw_promise(head)
        return held

    # -- admission --------------------------------------------------------------------------------------------------

    def _admit_head(self, line: Line, decision: Decision) -> None:
        gang = line.head
        self._state.room.withdraw(gang.uid)
        reservation = admit(self._state, line, decision, now=self._now, epoch=self._epoch, gang=gang)
        self._count(reservation)
        self._clip_promise(line.lane)
        if line.lane.backfills:
            self._state.growing.update(dict.fromkeys(self._state.partial()))
        if line.lane.node is not None:
            self._enter_again(line.lane.node.root, everybody=False)

    def _clip_promise(self, lane: Lane) -> None:
        """Let a head that was passed keep no more of its queue's own quota than is unused now."""
        holdings, head = self._state.holdings, QueueHead(lane.name)
        promised = holdings.promises.get(head) if lane.backfills else None
        if promised is not None:
            node, held = promised
            holdings.withdraw_promise(head)
            unused = {key: min(amount, holdings.outlook.own_unused(node, key)) for key, amount in held.items()}
            holdings.promise(head, node, {key: amount for key, amount in unused.items() if amount > 0})

    def _count(self, reservation: Reservation) -> None:
        self._admitted.append(reservation)
        self._steps += 1

    def _enter(self, lane: Lane, level: int = 0) -> None:
        """Take up a lane's offer, which goes at ``level`` at the least."""
        line = lane.first()
        if line is not None:
            line.level = max(level, line.level)
            if line.level > 0 and lane.node is not None:
                self._raised.setdefault(lane.node.root, {})[lane] = None
        self._agenda.enter(lane, level)

    def _enter_again(self, root: Node, *, everybody: bool) -> None:
        """Put offers of one tree back to the lowest level: everybody's after a preemption, and after an admission
        those with other flavors or sizes to turn to; all others only rise by it.
        """
        raised = self._raised.get(root, {})
        for lane in list(raised):
            line = lane.first()
            if line is None or everybody or line.shifting:
                del raised[lane]
            if line is not None and (everybody or line.shifting):
                line.level = 0
                self._agenda.enter(lane)

    # -- preemption -------------------------------------------------------------------------------------------------

    def _preempt(self, line: Line, decision: Decision) -> None:
        state, lane = self._state, line.lane
        assert lane.node is not None
        stopped = stop_all(state, lane, line.head, decision.victims)
        self._preempted += stopped
        self._steps += bool(stopped)
        gang = line.head
        awaits = tuple(dict.fromkeys((*(c.holding.uid for c in decision.victims), *decision.awaits)))
        planned = plan(line, decision, now=self._now, epoch=self._epoch, gang=gang)
        state.room.claim(gang, line)
        state.holdings.promise(gang.uid, lane.node, decision.assignment.usage)
        state.claims[gang.uid] = Claim(planned, awaits)
        for victim in decision.victims:
            state.wake(victim.node, victim.holding.amounts)
        self._enter_again(lane.node.root, everybody=True)

    def _settle_claims(self) -> None:
        """Admit the gangs whose room has become free, in order, none into room that was made for an earlier claim.

        Those whose gangs are not known come first: what they may have come before is not known either.
        """
        state = self._state
        claimants = state.claimants()
        if not state.stirred or not claimants:
            state.stirred = False
            return
        holdings, view = state.holdings, state.holdings.usage.copy()
        gone: set[str] = set()
        for claimant in (*state.claimants(known=False), *sorted(claimants, key=partial(claims.order, state))):
            if self._spent:
                return
            node, amounts = holdings.promises[claimant]
            known, claim = state.is_claiming(claimant), state.claims[claimant]
            # One that has ended and was started again is nobody to wait for.
            waits = [uid for uid in claim.awaits if uid in holdings.stopping]
            if known and view.fits(node, amounts) and self._is_free(claimant, claim):
                self._take_up(claimant)
            elif known and not waits:
                waits = claims.await_others(state, claimant)
                if not waits:
                    continue
            for uid in waits:
                holding = holdings.by_uid[uid]
                going = holdings.node_of(holding)
                if uid not in gone and going is not None and claimant in holdings.promises:
                    view.remove(going, holding.amounts)
                    gone.add(uid)
            view.add(node, amounts)
        state.stirred = False

    def _is_free(self, uid: str, claim: Claim) -> bool:
        state, (node, amounts) = self._state, self._state.holdings.promises[uid]
        gang, counts = state.room.records[uid].gang, claim.planned.counts
        if not state.holdings.usage.fits(node, amounts) or state.fences.shortfall(gang, counts) is not None:
            return False
        return not isinstance(state.decider.places(gang, counts, claim.planned.flavors), Misplaced)

    def _take_up(self, uid: str) -> None:
        state, claim, record = self._state, self._state.claims.pop(uid), self._state.room.records[uid]
        assert record.lane is not None
        amounts = state.holdings.promises[uid][1]
        places = state.decider.places(record.gang, claim.planned.counts, claim.planned.flavors)
        assert not isinstance(places, Misplaced), "looked at before"
        state.allot(uid, places)
        state.holdings.withdraw_promise(uid)
        state.room.withdraw(uid)
        reservation = replace(claim.planned, epoch=self._epoch, since_seconds=self._now, priority=record.gang.priority)
        self._count(charge(state, record.lane, record.gang, reservation, amounts))

    def _hold_back(self, line: Line, decision: Decision) -> None:
        """Let the blocked head of a StrictFIFO or Backfill queue keep the queue's unused nominal quota to itself."""
        state, lane = self._state, line.lane
        if lane.node is None or not lane.keeps_quota(line):
            return
        node, head = lane.node, QueueHead(lane.name)
        before = state.holdings.promises.get(head)
        state.holdings.lift(head)
        held: dict[FlavorResource, int] = {}
        # Who has room booked is protected by that, and leaves the gap before it to others.
        booked = lane.backfills and state.backfill.keeps_room_for(line, state.fences, self._now)
        if decision.assignment.mode is Mode.NO_CANDIDATES and decision.fence is None and not booked:
            for key, amount in decision.assignment.usage.items():
                unused = min(amount, state.holdings.outlook.own_unused(node, key))
                if unused > 0:
                    held[key] = unused
        state.holdings.put_back()
        if before is not None and before[1] != held:
            state.holdings.promise(head, node, held)
            state.wake(*before)
        elif before is None and held:
            state.holdings.promise(head, node, held)


# -- what every cycle does ------------------------------------------------------------------------------------


def admit(state: State, line: Line, decision: Decision, *, now: float, epoch: int, gang: Gang) -> Reservation:
    """Reserve for ``gang``, which no longer waits, what was decided about it."""
    reservation = plan(line, decision, now=now, epoch=epoch, gang=gang)
    state.allot(gang.uid, decision.places)
    return charge(state, line.lane, gang, reservation, decision.assignment.usage)


def plan(line: Line, decision: Decision, *, now: float, epoch: int, gang: Gang) -> Reservation:
    """Return what ``gang`` of ``line`` holds once what was decided about it is done."""
    return reserve(gang, line.lane.name, decision.counts, decision.assignment.flavors, epoch, now, line.request.charges)


def charge(
    state: State, lane: Lane, gang: Gang, planned: Reservation, amounts: Mapping[FlavorResource, int]
) -> Reservation:
    """Let ``gang``, which no longer waits, hold what was ``planned`` for it at ``amounts``; return its reservation."""
    reservation = replace(planned, preemptible=state.policy.may_be_preempted(gang, lane.name))
    state.holdings.put(Holding(reservation, amounts, gang))
    state.stopped_for_share.pop(gang.uid, None)
    state.room.admitted_beside(lane, gang.priority)
    state.charge_usage(lane, gang, amounts)
    state.fences.put_reservation(reservation)
    return reservation


def stop_all(state: State, lane: Lane, gang: Gang, victims: tuple[Candidate, ...]) -> list[Preempted]:
    """Mark ``victims`` as being stopped for ``gang`` of a queue; those already going are left out of the result."""
    stopped = []
    for victim in victims:
        if victim.holding.uid in state.holdings.stopping:
            continue
        state.holdings.stop(victim.holding.uid)
        if victim.variant is Variant.FAIR_SHARING:
            state.note_stop(victim.holding.uid, gang.uid)
        why = victim.variant.reason
        text = f"stopped for {gang.key} of queue {lane.name} ({why})"
        stopped.append(Preempted(victim.holding.uid, gang.uid, why, text))
    return stopped


def grow_all(state: State) -> tuple[Reservation, ...]:
    """Let gangs that started below full size take what is left."""
    grown = []
    partial = state.partial() if state.growing else {}
    seats = joining(state.policy, state.settings)
    for uid in sorted(state.growing):
        holding = partial.get(uid)
        larger = None if holding is None else grow(holding, state.holdings, state.fences, state.lets_grow, seats)
        if larger is not None:
            state.holdings.put(larger)
            state.fences.put_reservation(larger.reservation, larger.reclaimed)
            grown.append(larger.reservation)
    state.growing = {}
    return tuple(grown)


def drain(state: State) -> tuple[Stopped, ...]:
    """Return which admitted gangs are to be stopped because their queue drains, each once."""
    if not state.undrained:
        return ()
    state.undrained = False
    stopped = []
    for uid in sorted(state.holdings.by_uid):
        holding = state.holdings.by_uid[uid]
        going = uid in state.holdings.stopping
        found = None if going or not holding.reservation.evictable else _drained_by(state, holding)
        if found is not None:
            state.holdings.stop(uid)
            stopped.append(found)
    return tuple(stopped)


def _drained_by(state: State, holding: Holding) -> Stopped | None:
    queue = state.policy.queues.get(holding.reservation.queue or "")
    if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return Stopped(holding.uid, QUEUE_STOPPED, f"queue {queue.name} is stopped ({queue.stop_policy})")
    label = None if holding.gang is None else holding.gang.queue
    local = state.policy.local_queues.get((holding.reservation.namespace, label or ""))
    if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        where = f"LocalQueue {local.namespace}/{local.name}"
        return Stopped(holding.uid, LOCAL_QUEUE_STOPPED, f"{where} is stopped ({local.stop_policy})")
    return None
