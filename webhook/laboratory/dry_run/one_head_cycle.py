"""A cycle as Kueue does it: the heads, decided about one by one on a snapshot that earlier ones have changed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

from webhook.core.assignment.decision import Attempt, Decision
from webhook.core.assignment.flavors import Assignment, Mode
from webhook.core.assignment.preemption import Candidate, Preemptor
from webhook.core.assignment.request import Choice, Option, Request
from webhook.core.ledger.record import reserve
from webhook.core.model.policy import PreemptionPolicy
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.claimed import Claimed
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.vacated import Vacated
from webhook.core.quota.tree import AmountsByFlavor, Usage
from webhook.core.reasons.barriers import StopsNobody, reason_of
from webhook.core.reasons.reasons import Code, Reason
from webhook.core.reasons.wake_keys import Freed
from webhook.core.scheduler.cycle import admit, grow_all, stop_all
from webhook.core.scheduler.explain import awaiting, barred, explain
from webhook.core.scheduler.plan import Plan, Preempted
from webhook.core.scheduler.queue_order import tournament, tree_of
from webhook.core.scheduler.queueing_hints import beside_quota, short_of, smallest
from webhook.core.scheduler.state import State
from webhook.laboratory.dry_run.turns import Scan, Turns

OUTRUN: Final = "no longer fits after others of the same cycle; it has its turn again in the next one"
UNTOLD: Final = Reason(Code.PENDING_EVALUATION, "has not had its turn")


@dataclass(slots=True)
class _Nomination(Attempt):
    """The search for a head's decision against a snapshot and nothing else: those being stopped are candidates too."""

    looks_further: ClassVar[bool] = False
    snapshot: Usage | None = None
    gone: frozenset[str] = frozenset()
    """Gangs that the snapshot no longer charges."""

    def views(self) -> tuple[Usage, Usage]:
        """Return the snapshot."""
        assert self.snapshot is not None
        return self.snapshot, self.snapshot

    def preemptor(self, seats: Vacated | None = None) -> Preemptor:
        """Return the head as one that may have others stopped."""
        return replace(Attempt.preemptor(self, seats), usage=self.views()[0], spared=self.gone, yields=False)

    def awaited(self, preemptor: Preemptor, needs: frozenset[FlavorResource]) -> tuple[str, ...]:
        """Return the gangs that the snapshot no longer charges: their nodes count as free, and no others."""
        del needs
        return () if preemptor.seats is None else tuple(sorted(self.gone))


@dataclass(slots=True)
class _Snapshot:
    """Usage as this cycle has changed it, and what it stops. Nodes and fences keep what earlier heads take there."""

    turns: Turns
    state: State
    usage: Usage
    now: float
    epoch: int
    victims: dict[str, Candidate] = field(default_factory=dict)
    admitted: list[tuple[EquivalenceClass, Decision]] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    sticking: set[EquivalenceClass] = field(default_factory=set)
    """Classes for whose head others are stopped, or whose head is still to be decided about."""

    def fits(self, eclass: EquivalenceClass, decision: Decision) -> bool:
        """Return whether the head fits once all victims so far and its own are gone."""
        own = [victim for victim in decision.victims if victim.allocation.uid not in self.victims]
        vertex, going = eclass.queue.vertex, [*self.victims.values(), *own]
        if vertex is None:
            return True
        for victim in going:
            self.usage.remove(victim.vertex, victim.allocation.amounts)
        fits = self.usage.fits(vertex, decision.assignment.usage)
        for victim in going:
            self.usage.add(victim.vertex, victim.allocation.amounts)
        return fits

    def places(self, eclass: EquivalenceClass, decision: Decision) -> Allotment | Misplaced | None:
        """Return where the head goes on nodes beside earlier heads, or why nowhere; None where that is not asked."""
        head, flavors = self.turns.head(eclass), decision.assignment.flavors
        return self.state.decider.places(head, decision.counts, flavors, self._awaited(decision))

    def claim(self, eclass: EquivalenceClass, decision: Decision) -> None:
        """Keep from later heads what the head is to have once others are gone."""
        self.charge(eclass, decision.assignment.usage)
        if self.state.nodes is not None and decision.places is not None:
            claimed = Claimed(decision.places, set(self._awaited(decision)))
            self.state.nodes.claim(self.turns.head(eclass).uid, claimed)

    def end_claims(self) -> None:
        """Let everybody have what was kept on nodes for who is not admitted."""
        if self.state.nodes is not None:
            for uid in self.state.nodes.claimants():
                self.state.nodes.unclaim(uid)

    def _awaited(self, decision: Decision) -> list[str]:
        """Return the gangs whose room on nodes a head may count on: none where it starts at once."""
        going = () if decision.fits else (*self.victims.values(), *decision.victims)
        return [uid for victim in going for uid in victim.allocation.uids]

    def admit(self, eclass: EquivalenceClass, decision: Decision) -> None:
        """Note that the head starts, and keep what it takes from later heads."""
        self.charge(eclass, decision.assignment.usage)
        flavors, charges = decision.assignment.flavors, eclass.request.charges
        gang, queue = self.turns.head(eclass), eclass.queue.name
        reservation = reserve(gang, queue, decision.counts, flavors, self.epoch, self.now, charges)
        self.state.fences.put_reservation(reservation)
        self.state.allot(reservation, decision.places)
        self.admitted.append((eclass, decision))

    def charge(self, eclass: EquivalenceClass, amounts: AmountsByFlavor) -> None:
        """Add to the usage of the head's queue."""
        if eclass.queue.vertex is not None:
            self.usage.add(eclass.queue.vertex, amounts)


def one_head_cycle(turns: Turns, state: State, now: float, epoch: int) -> Plan:
    """Decide about the head of each queue and return the plan."""
    state.settle_guard(recheck=True)
    state.pending.serve_bottlenecks()
    heads = [eclass for queue in state.pending.queues.values() if (eclass := _popped(turns, queue)) is not None]
    usage = state.allocations.usage
    nominated = {eclass: _nominate(turns, state, eclass, usage) for eclass in heads}
    snapshot = _Snapshot(turns, state, usage.copy(), now, epoch)
    for eclass, decision in _in_order(nominated, snapshot):
        _process(snapshot, eclass, decision)
    snapshot.end_claims()
    reservations = []
    for eclass, decision in snapshot.admitted:
        gang = turns.head(eclass)
        state.pending.withdraw(gang.uid)
        turns.forget(gang.uid)
        reservations.append(admit(state, eclass, decision, now=now, epoch=epoch, gang=gang))
        turns.note_admission(eclass)
    for eclass in heads:
        if eclass not in snapshot.sticking:
            turns.sticky.pop(eclass, None)
    grown = grow_all(state)
    state.settle_guard()
    state.pending.active = {}
    turns.number += 1
    return Plan(tuple(reservations), grown, tuple(snapshot.preempted))


Rank = tuple[float, bool, int, float, str]
"""Rank, whether it is not the one for which others were stopped, negated priority, time, uid."""


def _popped(turns: Turns, queue: PendingQueue) -> EquivalenceClass | None:
    """Return the class whose turn it is and whose head is to be decided about.

    A gang that its queue does not select takes a turn too, once, and nobody else has it: Kueue looks at the namespace
    of a head only. In a BestEffortFIFO queue the one for which others were stopped goes first, so that nobody takes the
    room meanwhile.
    """
    if queue.closed is not None:
        return None
    rank = partial(_rank, turns)
    active = [eclass for eclass in queue.eclasses.values() if not eclass.unschedulable and eclass.ineligible is None]
    eclasses = [eclass for eclass in active if turns.sticky.get(eclass) in eclass.gangs]
    first = queue.first()
    head = min(eclasses if first is None else [*eclasses, first], key=rank, default=None)
    stranger = min(_strangers(turns, queue), default=None, key=lambda found: found[0])
    if stranger is None or (head is not None and rank(head) < stranger[0]):
        return head
    (*_, uid), eclass = stranger
    turns.verdicts.setdefault(eclass, {})[uid] = eclass.ineligible or UNTOLD
    return None


def _rank(turns: Turns, eclass: EquivalenceClass) -> Rank:
    rank, priority, created, uid = turns.order_key(eclass)
    return rank, turns.sticky.get(eclass) not in eclass.gangs, priority, created, uid


def _strangers(turns: Turns, queue: PendingQueue) -> Iterator[tuple[Rank, EquivalenceClass]]:
    """Yield the gangs of namespaces that the queue does not select and that have not had their turn."""
    for eclass in queue.eclasses.values():
        if eclass.ineligible is not None and eclass.ineligible.code is Code.MISCONFIGURED:
            for created, uid in eclass.order:
                if uid not in turns.verdicts.get(eclass, {}):
                    yield (eclass.rank, True, -eclass.sample.priority, created, uid), eclass
                    break


def _nominate(
    turns: Turns,
    state: State,
    eclass: EquivalenceClass,
    usage: Usage,
    *,
    request: Request | None = None,
    gone: frozenset[str] = frozenset(),
) -> Decision:
    queue, head = eclass.queue, turns.head(eclass)
    if eclass.request.refusal is not None:
        return Decision(head.counts, Assignment(Mode.NO_FIT, 0, {}, {}))
    scan = turns.unfinished(eclass) if request is None else None
    resume = None if scan is None else scan.flavors
    attempt = _Nomination(
        state.decider,
        head,
        request or eclass.request,
        queue.spec,
        queue.vertex,
        resume,
        stops_for_nodes=True,
        snapshot=usage,
        gone=gone,
    )
    return state.guard.judge(eclass, attempt.best(), state.fences, usage)


def _in_order(
    offers: dict[EquivalenceClass, Decision], snapshot: _Snapshot
) -> Iterator[tuple[EquivalenceClass, Decision]]:
    """Yield the heads in the order in which they are decided about; shares change as others are admitted."""
    turns = snapshot.turns
    if not snapshot.state.settings.fair_sharing:
        yield from sorted(offers.items(), key=lambda item: (item[1].assignment.level, *turns.order_key(item[0])[1:]))
        return
    while offers:
        tree = min(tree_of(eclass.queue) for eclass in offers)
        winner = tournament([item for item in offers.items() if tree_of(item[0].queue) == tree], snapshot.usage)
        yield winner, offers.pop(winner)


def _process(snapshot: _Snapshot, eclass: EquivalenceClass, nominated: Decision) -> None:
    """Act on one nomination: admit, preempt, reserve, or leave it for a later cycle."""
    head, decision, deferred = snapshot.turns.head(eclass), nominated, False
    _note_scan(snapshot.turns, eclass, nominated)
    if nominated.assignment.mode is Mode.NO_FIT or nominated.barrier is not None:
        _step_aside(snapshot, eclass, nominated)
        return
    if _overlaps(snapshot, nominated):
        decision = _nominate_again(snapshot, eclass, nominated)
        _note_scan(snapshot.turns, eclass, decision)
        # It fits once the earlier victims are gone.
        deferred = decision.fits or (decision.preempts and not decision.victims)
    if deferred:
        _stick(snapshot, eclass)
        _tell(snapshot, eclass, _stopped_for(eclass, nominated))
        snapshot.claim(eclass, decision)
    elif not decision.fits and not decision.victims:
        _reserve(snapshot, eclass, decision)
        _step_aside(snapshot, eclass, decision)
    elif decision.fits and (short := snapshot.state.fences.shortfall(head, decision.counts)) is not None:
        # An earlier head took the room at a fence. It has its turn again in the next cycle.
        _tell(snapshot, eclass, reason_of(short))
    elif (
        judged := snapshot.state.guard.judge(eclass, decision, snapshot.state.fences, snapshot.usage)
    ) is not decision:
        # With what earlier heads took it would keep a starved gang waiting.
        assert judged.barrier is not None
        _tell(snapshot, eclass, barred(judged.barrier))
    elif _overlaps(snapshot, decision) or not snapshot.fits(eclass, decision):
        _tell(snapshot, eclass, Reason(Code.WAITING_FOR_QUOTA, OUTRUN, where=str(eclass.queue.vertex)))
    elif isinstance(places := snapshot.places(eclass, decision), Misplaced):
        _tell(snapshot, eclass, Reason(Code.NODES_DO_NOT_FIT, OUTRUN))
    elif decision.fits:
        snapshot.admit(eclass, replace(decision, places=places))
    else:
        snapshot.claim(eclass, replace(decision, places=places))
        _stick(snapshot, eclass)
        _tell(snapshot, eclass, _stopped_for(eclass, decision))
        snapshot.victims.update((victim.allocation.uid, victim) for victim in decision.victims)
        snapshot.preempted += stop_all(snapshot.state, eclass.queue, head, decision.victims)


def _overlaps(snapshot: _Snapshot, decision: Decision) -> bool:
    return any(victim.allocation.uid in snapshot.victims for victim in decision.victims)


def _nominate_again(snapshot: _Snapshot, eclass: EquivalenceClass, nominated: Decision) -> Decision:
    """Decide again with the earlier victims gone, on the flavors that were nominated."""
    for victim in snapshot.victims.values():
        snapshot.usage.remove(victim.vertex, victim.allocation.amounts)
    pinned = _pinned(eclass.request, nominated.assignment.flavors)
    decision = _nominate(
        snapshot.turns, snapshot.state, eclass, snapshot.usage, request=pinned, gone=frozenset(snapshot.victims)
    )
    for victim in snapshot.victims.values():
        snapshot.usage.add(victim.vertex, victim.allocation.amounts)
    return decision


def _pinned(request: Request, flavors: Mapping[str, Mapping[str, str]]) -> Request:
    """Return the request with all other flavors ruled out; each keeps its place, for a scan to go on from there."""

    def kept(choice: Choice, option: Option) -> Option:
        want = choice.wants[0]
        nominated = flavors.get(want.pod_set, {}).get(want.resource)
        return option if option.flavor == nominated else replace(option, misfit=f"{nominated} was nominated")

    return replace(
        request, choices=tuple(replace(c, options=tuple(kept(c, o) for o in c.options)) for c in request.choices)
    )


def _reserve(snapshot: _Snapshot, eclass: EquivalenceClass, decision: Decision) -> None:
    """Keep quota from later heads for one that may preempt and finds nobody."""
    queue = eclass.queue
    if queue.vertex is None or queue.spec is None or decision.assignment.mode is Mode.NO_FIT:
        return
    if queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
        return
    kept = {}
    for key, amount in decision.assignment.usage.items():
        room = queue.vertex.nominal(key) - snapshot.usage.of(queue.vertex, key)
        if decision.assignment.level > 0:
            limit = queue.vertex.borrowing.get(key)
            kept[key] = amount if limit is None else min(amount, room + limit)
        else:
            kept[key] = min(amount, room)
    snapshot.charge(eclass, kept)


def _step_aside(snapshot: _Snapshot, eclass: EquivalenceClass, decision: Decision) -> None:
    """Park a head that found nothing, unless its queue is strict or it has flavors left to try.

    Those of its queue that ask the same step aside with it (Kueue's scheduling-equivalence hash), unless what stopped
    it was something other than quota and flavors.
    """
    why = _why(snapshot, eclass, decision)
    _tell(snapshot, eclass, why)
    if decision.postponed:
        # Kueue would have looked at the nodes by now: nobody of its queue has its turn before that is done.
        snapshot.sticking.add(eclass)
        return
    if eclass.queue.strict or eclass in snapshot.turns.scans:
        return
    _mark_unschedulable(snapshot.state, eclass, decision)
    if decision.barrier is not None or eclass.sample.refusal is not None:
        return
    verdicts = snapshot.turns.verdicts
    verdicts[eclass] = verdicts.get(eclass, {}) | dict.fromkeys(eclass.gangs, why)
    for other in eclass.queue.eclasses.values():
        if _alike(other, eclass) and not other.unschedulable:
            told = {} if other.ineligible is None else verdicts.get(other, {})
            verdicts[other] = dict.fromkeys(other.gangs, why) | told
            _mark_unschedulable(snapshot.state, other, decision)


def _mark_unschedulable(state: State, eclass: EquivalenceClass, decision: Decision) -> None:
    """Set a class aside until anything that it asks for is freed in its tree, or on nodes where these are too full."""
    least = smallest(state, eclass, decision)
    wake_on = beside_quota(state, eclass, decision, least)
    keys: Iterable[FlavorResource] = short_of(eclass, decision, least)
    if decision.owed is not None:
        wake_on.append(decision.owed)
        state.guard.watch(decision.owed)
        keys = decision.assignment.usage
    eclass.barrier = decision.barrier
    if eclass.queue.vertex is not None:
        wake_on += [Freed(eclass.queue.vertex.root.index, key) for key in keys]
    state.pending.mark_unschedulable(eclass, wake_on)


def _alike(one: EquivalenceClass, other: EquivalenceClass) -> bool:
    """Return whether the gangs of both ask the same of a queue at the same priority, wherever they come from and
    whatever their fences see in them.
    """
    return one.sample.priority == other.sample.priority and _shapes(one) == _shapes(other)


def _shapes(eclass: EquivalenceClass) -> list[object]:
    sets = eclass.key[-1]
    assert isinstance(sets, tuple)
    return [shape for shape, *_ in sets]


def _why(snapshot: _Snapshot, eclass: EquivalenceClass, decision: Decision) -> Reason:
    if eclass.request.refusal is not None:
        return eclass.request.refusal
    if eclass.queue.vertex is None:
        return UNTOLD if decision.barrier is None else barred(decision.barrier)
    return explain(eclass, decision, eclass.queue.vertex, snapshot.state.allocations)


def _stopped_for(eclass: EquivalenceClass, decision: Decision) -> Reason:
    assert eclass.queue.vertex is not None
    return awaiting([victim.allocation for victim in decision.victims], eclass.queue.vertex)


def _note_scan(turns: Turns, eclass: EquivalenceClass, decision: Decision) -> None:
    """Keep in mind which flavors the scan for the head left untried; who may stop nobody starts over, as in Kueue. One
    that ended at nodes whose look is put off starts from where it did.
    """
    before = turns.unfinished(eclass)
    left = None if isinstance(decision.barrier, StopsNobody) else decision.assignment.resume
    if decision.postponed:
        left = None if before is None else before.flavors
    turns.scans.pop(eclass, None)
    if left:
        turns.scans[eclass] = Scan(turns.head(eclass).uid, turns.number, left)


def _stick(snapshot: _Snapshot, eclass: EquivalenceClass) -> None:
    """Let the head of a class try again where others are stopped for it, before all others of a BestEffortFIFO queue;
    there is one such gang in a queue.
    """
    turns = snapshot.turns
    turns.scans.pop(eclass, None)
    if eclass.queue.strict:
        return
    head = turns.head(eclass).uid
    for other in eclass.queue.eclasses.values():
        turns.sticky.pop(other, None)
    turns.sticky[eclass] = head
    snapshot.sticking.add(eclass)


def _tell(snapshot: _Snapshot, eclass: EquivalenceClass, why: Reason) -> None:
    snapshot.turns.verdicts.setdefault(eclass, {})[snapshot.turns.head(eclass).uid] = why
