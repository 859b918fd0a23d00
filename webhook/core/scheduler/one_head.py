"""A cycle as Kueue does it, for comparison: one head of each queue, all nominated against the same state.

Heads are decided about one by one in order on a snapshot that earlier ones have changed: what was nominated may no
longer fit, two heads may want the same victims, and a gang that preempts waits for a later cycle. Nothing is promised
between cycles; a preempted gang keeps its quota within the cycle that stops it. What a gang is told is what was said
when it last had its turn, in Kueue's words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.core.assignment.decision import STOPS_NOBODY, Attempt, Decision
from webhook.core.assignment.flavors import Assignment, Mode
from webhook.core.assignment.preemption import Candidate, give_back, take
from webhook.core.assignment.request import Choice, Option, Request
from webhook.core.ledger.record import reserve
from webhook.core.model.policy import PreemptionPolicy
from webhook.core.model.reasons import Code, Reason
from webhook.core.pending.queueing import Lane, Line, Scan
from webhook.core.quota.tree import AmountsByFlavor, Usage
from webhook.core.scheduler.cycle import admit, grow_all, stop_all
from webhook.core.scheduler.entry_order import tournament, tree_of
from webhook.core.scheduler.explain import awaiting, explain
from webhook.core.scheduler.plan import Plan, Preempted
from webhook.core.scheduler.queueing_hints import park
from webhook.core.scheduler.state import State


@dataclass(slots=True)
class _Snapshot:
    """Usage as this cycle has changed it, and whom it stops."""

    state: State
    usage: Usage
    now: float
    epoch: int
    victims: dict[str, Candidate] = field(default_factory=dict)
    admitted: list[tuple[Line, Decision]] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    sticking: set[Line] = field(default_factory=set)
    """Lines for whose head others are stopped."""

    def fits(self, line: Line, decision: Decision) -> bool:
        """Return whether the head fits once all victims so far and its own are gone."""
        own = [victim for victim in decision.victims if victim.holding.uid not in self.victims]
        node, going = line.lane.node, [*self.victims.values(), *own]
        if node is None:
            return True
        for victim in going:
            take(self.usage, victim)
        fits = self.usage.fits(node, decision.assignment.usage)
        for victim in going:
            give_back(self.usage, victim)
        return fits

    def admit(self, line: Line, decision: Decision) -> None:
        """Note that the head starts; fences keep what it takes from later heads."""
        flavors, charges = decision.assignment.flavors, line.request.charges
        gang, queue = line.head, line.lane.name
        reservation = reserve(gang, queue, decision.counts, flavors, self.epoch, self.now, charges)
        self.state.fences.put_reservation(reservation)
        self.admitted.append((line, decision))

    def charge(self, line: Line, amounts: AmountsByFlavor) -> None:
        """Add to the usage of the head's queue."""
        if line.lane.node is not None:
            self.usage.add(line.lane.node, amounts)


OUTRUN: Final = "no longer fits after others of the same cycle; it has its turn again in the next one"
UNTOLD: Final = Reason(Code.PENDING_EVALUATION, "has not had its turn")


def one_head_cycle(state: State, now: float, epoch: int) -> Plan:
    """Decide about the head of each queue and return the plan."""
    state.end_hunger(anew=True)
    state.room.open_gates()
    heads = [line for lane in state.room.lanes.values() if (line := _popped(lane)) is not None]
    usage = state.holdings.usage
    nominated = {line: _nominate(state, line, usage) for line in heads}
    snapshot = _Snapshot(state, usage.copy(), now, epoch)
    for line, decision in _in_order(state, nominated, snapshot):
        _process(snapshot, line, decision)
    reservations = []
    for line, decision in snapshot.admitted:
        gang = line.head
        state.room.withdraw(gang.uid)
        reservations.append(admit(state, line, decision, now=now, epoch=epoch, gang=gang))
        if line.lane.node is not None:
            state.moved[line.lane.node.root] = state.turn
    for line in heads:
        if line not in snapshot.sticking:
            line.sticky = None
    grown = grow_all(state)
    state.end_hunger()
    state.room.active = {}
    state.turn += 1
    return Plan(tuple(reservations), grown, tuple(snapshot.preempted))


Place = tuple[float, bool, int, float, str]
"""Rank, whether it is not the one for which others were stopped, negated priority, time, uid."""


def _popped(lane: Lane) -> Line | None:
    """Return the line whose turn it is and whose head is to be decided about.

    A gang that its queue does not select takes a turn too, once, and nobody else has it: Kueue looks at the namespace
    of a head only. In a BestEffortFIFO queue the one for which others were stopped goes first, so that nobody takes the
    room meanwhile.
    """
    if lane.closed is not None:
        return None
    awake = [line for line in lane.lines.values() if not line.unschedulable and line.aside is None]
    lines = [line for line in awake if line.sticky]
    first = lane.first()
    head = min(lines if first is None else [*lines, first], key=_place, default=None)
    stranger = min(_strangers(lane), default=None, key=lambda found: found[0])
    if stranger is None or (head is not None and _place(head) < stranger[0]):
        return head
    (*_, uid), line = stranger
    line.verdicts[uid] = line.aside or UNTOLD
    return None


def _place(line: Line) -> Place:
    rank, priority, created, uid = line.order_key
    return rank, not line.sticky, priority, created, uid


def _strangers(lane: Lane) -> Iterator[tuple[Place, Line]]:
    """Yield the gangs of namespaces that the queue does not select and that have not had their turn."""
    for line in lane.lines.values():
        if line.aside is not None and line.aside.code is Code.MISCONFIGURED:
            for created, uid in line.order:
                if uid not in line.verdicts:
                    yield (line.rank, True, -line.sample.priority, created, uid), line
                    break


def _nominate(
    state: State, line: Line, usage: Usage, request: Request | None = None, gone: frozenset[str] = frozenset()
) -> Decision:
    lane = line.lane
    if line.request.refusal is not None:
        return Decision(line.head.counts, Assignment(Mode.NO_FIT, 0, {}, {}))
    attempt = Attempt(state.decider, line.head, request or line.request, lane.queue, lane.node)
    attempt.snapshot, attempt.gone = usage, gone
    scan = state.unfinished(line) if request is None else None
    attempt.resume = None if scan is None else scan.flavors
    return state.hunger.judge(line, attempt.best(), state.fences, usage)


def _in_order(state: State, offers: dict[Line, Decision], snapshot: _Snapshot) -> Iterator[tuple[Line, Decision]]:
    """Yield the heads in the order in which they are decided about; shares change as others are admitted."""
    if not state.settings.fair_sharing:
        yield from sorted(offers.items(), key=lambda item: (item[1].assignment.level, *item[0].order_key[1:]))
        return
    while offers:
        tree = min(tree_of(line.lane) for line in offers)
        winner = tournament([item for item in offers.items() if tree_of(item[0].lane) == tree], snapshot.usage)
        yield winner, offers.pop(winner)


def _process(snapshot: _Snapshot, line: Line, nominated: Decision) -> None:
    """Act on one nomination: admit, preempt, reserve, or leave it for a later cycle."""
    decision, deferred = nominated, False
    _note_scan(snapshot.state, line, nominated)
    if nominated.assignment.mode is Mode.NO_FIT or nominated.fence is not None:
        _step_aside(snapshot, line, nominated)
        return
    if _overlaps(snapshot, nominated):
        decision = _nominate_again(snapshot, line, nominated)
        _note_scan(snapshot.state, line, decision)
        deferred = decision.fits
    if deferred:
        _stick(snapshot, line)
        _tell(line, _stopped_for(line, nominated))
        snapshot.charge(line, decision.assignment.usage)
    elif not decision.fits and not decision.victims:
        _reserve(snapshot, line, decision)
        _step_aside(snapshot, line, decision)
    elif decision.fits and (short := snapshot.state.fences.shortfall(line.head, decision.counts)) is not None:
        # An earlier head took the room at a fence. It has its turn again in the next cycle.
        _tell(line, short)
    elif (judged := snapshot.state.hunger.judge(line, decision, snapshot.state.fences, snapshot.usage)) is not decision:
        # With what earlier heads took it would keep a hungry gang waiting.
        assert judged.fence is not None
        _tell(line, judged.fence)
    elif not _overlaps(snapshot, decision) and snapshot.fits(line, decision):
        snapshot.charge(line, decision.assignment.usage)
        if decision.fits:
            snapshot.admit(line, decision)
        else:
            _stick(snapshot, line)
            _tell(line, _stopped_for(line, decision))
            snapshot.victims.update((victim.holding.uid, victim) for victim in decision.victims)
            snapshot.preempted += stop_all(snapshot.state, line, decision.victims)
    else:
        _tell(line, Reason(Code.WAITING_FOR_QUOTA, OUTRUN, node=str(line.lane.node)))


def _overlaps(snapshot: _Snapshot, decision: Decision) -> bool:
    return any(victim.holding.uid in snapshot.victims for victim in decision.victims)


def _nominate_again(snapshot: _Snapshot, line: Line, nominated: Decision) -> Decision:
    """Decide again with the earlier victims gone, on the flavors that were nominated."""
    for victim in snapshot.victims.values():
        take(snapshot.usage, victim)
    pinned = _pinned(line.request, nominated.assignment.flavors)
    decision = _nominate(snapshot.state, line, snapshot.usage, pinned, frozenset(snapshot.victims))
    for victim in snapshot.victims.values():
        give_back(snapshot.usage, victim)
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


def _reserve(snapshot: _Snapshot, line: Line, decision: Decision) -> None:
    """Keep quota from later heads for one that may preempt and finds nobody."""
    lane = line.lane
    if lane.node is None or lane.queue is None or decision.assignment.mode is Mode.NO_FIT:
        return
    if lane.queue.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
        return
    kept = {}
    for key, amount in decision.assignment.usage.items():
        room = lane.node.nominal(key) - snapshot.usage.of(lane.node, key)
        if decision.assignment.level > 0:
            limit = lane.node.borrowing.get(key)
            kept[key] = amount if limit is None else min(amount, room + limit)
        else:
            kept[key] = min(amount, room)
    snapshot.charge(line, kept)


def _step_aside(snapshot: _Snapshot, line: Line, decision: Decision) -> None:
    """Park a head that found nothing, unless its queue is strict or it has flavors left to try.

    Those of its queue that ask the same step aside with it (Kueue's scheduling-equivalence hash), unless what stopped
    it was something other than quota and flavors.
    """
    why = _why(snapshot.state, line, decision)
    _tell(line, why)
    if line.lane.strict or line.scan is not None:
        return
    park(snapshot.state, line, decision)
    if decision.fence is not None or line.sample.refusal is not None:
        return
    line.verdicts |= dict.fromkeys(line.gangs, why)
    for other in line.lane.lines.values():
        if other.alike(line) and not other.unschedulable:
            told = {} if other.aside is None else other.verdicts
            other.verdicts = dict.fromkeys(other.gangs, why) | told
            park(snapshot.state, other, decision)


def _why(state: State, line: Line, decision: Decision) -> Reason:
    if line.request.refusal is not None:
        return line.request.refusal
    if line.lane.node is None:
        return decision.fence or UNTOLD
    return explain(line.head, decision, line.lane.node, state.holdings)


def _stopped_for(line: Line, decision: Decision) -> Reason:
    assert line.lane.node is not None
    return awaiting([victim.holding for victim in decision.victims], line.lane.node)


def _note_scan(state: State, line: Line, decision: Decision) -> None:
    """Keep in mind which flavors the scan for the head left untried; who may stop nobody starts over, as in Kueue."""
    left = None if decision.fence is STOPS_NOBODY else decision.assignment.resume
    line.scan = Scan(line.head.uid, state.turn, left) if left else None


def _stick(snapshot: _Snapshot, line: Line) -> None:
    """Let the head of a line try again where others are stopped for it, before all others of a BestEffortFIFO queue;
    there is one such gang in a queue.
    """
    line.scan = None
    if line.lane.strict:
        return
    head = line.head.uid
    for other in line.lane.lines.values():
        other.sticky = None
    line.sticky = head
    snapshot.sticking.add(line)


def _tell(line: Line, why: Reason) -> None:
    line.verdicts[line.head.uid] = why
