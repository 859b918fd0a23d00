"""The engine with a cycle as Kueue does it, for comparison: one head of each queue, all nominated against one state.

Heads are decided about one by one in order on a snapshot that earlier ones have changed: what was nominated may no
longer fit, two heads may want the same victims, and a gang that preempts waits for a later cycle. Nothing is promised
between cycles; a preempted gang keeps its quota within the cycle that stops it. What a gang is told is what was said
when it last had its turn, in Kueue's words.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

from webhook.core.assignment.decision import STOPS_NOBODY, Attempt, Decision
from webhook.core.assignment.flavors import Assignment, Mode
from webhook.core.assignment.preemption import Candidate, Preemptor, give_back, take
from webhook.core.assignment.request import Choice, Option, Request
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.gang import Gang
from webhook.core.model.policy import FlavorResource, PreemptionPolicy
from webhook.core.model.reasons import Code, Reason
from webhook.core.model.settings import EngineSettings
from webhook.core.model.wake_keys import Freed, NamespaceFences, WakeKey
from webhook.core.pending.queueing import Lane, Line, OrderKey
from webhook.core.quota.tree import AmountsByFlavor, Node, Usage
from webhook.core.scheduler.cycle import admit, grow_all, stop_all
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.entry_order import tournament, tree_of
from webhook.core.scheduler.explain import awaiting, explain
from webhook.core.scheduler.plan import Plan, Preempted
from webhook.core.scheduler.queueing_hints import short_of
from webhook.core.scheduler.state import State

OUTRUN: Final = "no longer fits after others of the same cycle; it has its turn again in the next one"
UNTOLD: Final = Reason(Code.PENDING_EVALUATION, "has not had its turn")


@dataclass(frozen=True, slots=True)
class _Scan:
    """Where a cycle stopped to look for flavors for a gang; the next one goes on from there."""

    uid: str
    cycle: int
    """Number of that cycle."""
    flavors: Mapping[int, int]
    """Choice of the gang's request to the flavor to go on with; only choices that have some left."""


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

    def preemptor(self) -> Preemptor:
        """Return the head as one that may have others stopped."""
        return replace(Attempt.preemptor(self), usage=self.views()[0], spared=self.gone, yields=False)

    def awaited(self, preemptor: Preemptor, needs: frozenset[FlavorResource]) -> tuple[str, ...]:
        """Return nobody: Kueue counts on no room that others will leave."""
        del preemptor, needs
        return ()


class OneHeadEngine(Engine):
    """Decides about one head of each queue in a cycle."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        super().__init__(settings)
        self.turn = 0
        """Number of the next cycle, or of the one that goes on."""
        self._moved: dict[Node, int] = {}
        """Root of a tree to the ``turn`` at which a gang was last admitted to it or left it."""
        self.sticky: dict[Line, str] = {}
        """By class, the gang for which others were stopped in the last cycle: it goes first in the next one."""
        self.scans: dict[Line, _Scan] = {}
        """Of classes of which the last cycle that had their head left flavors untried."""
        self.verdicts: dict[Line, dict[str, Reason]] = {}
        """By class and uid, what was said of gangs when they last had their turn."""

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced."""
        record = self._state.room.records.get(gang.uid)
        if record is not None and record.gang != gang:
            self.forget(gang.uid)
        super().submit(gang, now)

    def withdraw(self, uid: str) -> None:
        """Forget a waiting gang."""
        self.forget(uid)
        super().withdraw(uid)

    def restore(
        self, reservation: Reservation, gang: Gang | None = None, reclaimed: Mapping[str, int] | None = None
    ) -> None:
        """Charge what the ledger says."""
        self.forget(reservation.uid)
        super().restore(reservation, gang, reclaimed)

    def release(self, uid: str) -> None:
        """End a reservation, and give everybody in its tree another turn, as Kueue does."""
        holdings = self._state.holdings
        holding = holdings.by_uid.get(uid)
        node = None if holding is None else holdings.node_of(holding)
        super().release(uid)
        if node is not None:
            self._moved[node.root] = self.turn
            for lane in self._state.room.lanes.values():
                for line in lane.lines.values() if lane.node is not None and lane.node.root is node.root else ():
                    if line.unschedulable and line.aside is None:
                        self._state.room.wake_line(line)

    def forget(self, uid: str) -> None:
        """Forget what was said of a gang: it waits no longer, or otherwise."""
        for told in self.verdicts.values():
            told.pop(uid, None)
        self.sticky = {line: first for line, first in self.sticky.items() if first != uid}

    def note_admission(self, line: Line) -> None:
        """Note that a gang came to a tree."""
        if line.lane.node is not None:
            self._moved[line.lane.node.root] = self.turn

    def unfinished(self, line: Line) -> _Scan | None:
        """Return the scan that the next cycle goes on with for the head of ``line``, if there is one.

        One of the cycle before counts whatever happened since; an older one as long as nobody came to the tree or left.
        """
        scan, node = self.scans.get(line), line.lane.node
        if scan is None or scan.uid != self.head(line).uid:
            return None
        moved = -1 if node is None else self._moved.get(node.root, -1)
        return scan if scan.cycle >= self.turn - 1 or moved < scan.cycle else None

    def head(self, line: Line) -> Gang:
        """Return the gang of a class whose turn it is: the earliest, unless one is sticky."""
        return line.gangs.get(self.sticky.get(line, ""), line.head)

    def order_key(self, line: Line) -> OrderKey:
        """Return the place of its head in the queue."""
        head = self.head(line)
        return line.rank, -line.sample.priority, head.created_seconds, head.uid

    def undecided(self) -> frozenset[object]:
        """Return what the next cycle starts from: the heads, the flavors tried for them, and how many gangs of a
        namespace that is not selected had their turn.
        """
        lines = (line for lane in self._state.room.lanes.values() for line in lane.lines.values())
        scans = ((line, self.unfinished(line)) for line in lines if not line.unschedulable)
        return frozenset(
            (
                self.head(line).uid,
                tuple(sorted(scan.flavors.items())) if scan else (),
                line.aside and len(self.verdicts.get(line, ())),
            )
            for line, scan in scans
        )

    def reason(self, uid: str) -> Reason | None:
        """Return what Kueue would have said when the gang last had its turn, with the numbers of then."""
        record = self._state.room.records.get(uid)
        if record is not None and record.lane is None:
            what, fix = self.policy.why_no_queue(record.gang.namespace, record.gang.queue)
            return Reason(Code.MISCONFIGURED, what, help=fix)
        if record is None or record.lane is None or record.line is None:
            return super().reason(uid)
        lane, line = record.lane, record.line
        if lane.closed is not None:
            return lane.closed
        if line.aside is not None and line.aside.code is Code.SUSPENDED:
            return line.aside
        ahead = lane.ahead_of(record.gang)
        untold = Reason(Code.PENDING_EVALUATION, f"has not had its turn; {ahead} of queue {lane.name} are ahead of it")
        return self.verdicts.get(line, {}).get(uid, untold)

    def _decide(self, now: float, epoch: int, most: int | None) -> Plan:
        del most
        return _one_head_cycle(self, self._state, now, epoch)


@dataclass(slots=True)
class _Snapshot:
    """Usage as this cycle has changed it, and whom it stops."""

    engine: OneHeadEngine
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
        gang, queue = self.engine.head(line), line.lane.name
        reservation = reserve(gang, queue, decision.counts, flavors, self.epoch, self.now, charges)
        self.state.fences.put_reservation(reservation)
        self.admitted.append((line, decision))

    def charge(self, line: Line, amounts: AmountsByFlavor) -> None:
        """Add to the usage of the head's queue."""
        if line.lane.node is not None:
            self.usage.add(line.lane.node, amounts)


def _one_head_cycle(engine: OneHeadEngine, state: State, now: float, epoch: int) -> Plan:
    """Decide about the head of each queue and return the plan."""
    state.end_hunger(anew=True)
    state.room.open_gates()
    heads = [line for lane in state.room.lanes.values() if (line := _popped(engine, lane)) is not None]
    usage = state.holdings.usage
    nominated = {line: _nominate(engine, line, usage) for line in heads}
    snapshot = _Snapshot(engine, state, usage.copy(), now, epoch)
    for line, decision in _in_order(nominated, snapshot):
        _process(snapshot, line, decision)
    reservations = []
    for line, decision in snapshot.admitted:
        gang = engine.head(line)
        state.room.withdraw(gang.uid)
        engine.forget(gang.uid)
        reservations.append(admit(state, line, decision, now=now, epoch=epoch, gang=gang))
        engine.note_admission(line)
    for line in heads:
        if line not in snapshot.sticking:
            engine.sticky.pop(line, None)
    grown = grow_all(state)
    state.end_hunger()
    state.room.active = {}
    engine.turn += 1
    return Plan(tuple(reservations), grown, tuple(snapshot.preempted))


Place = tuple[float, bool, int, float, str]
"""Rank, whether it is not the one for which others were stopped, negated priority, time, uid."""


def _popped(engine: OneHeadEngine, lane: Lane) -> Line | None:
    """Return the line whose turn it is and whose head is to be decided about.

    A gang that its queue does not select takes a turn too, once, and nobody else has it: Kueue looks at the namespace
    of a head only. In a BestEffortFIFO queue the one for which others were stopped goes first, so that nobody takes the
    room meanwhile.
    """
    if lane.closed is not None:
        return None
    engine_place = partial(_place, engine)
    awake = [line for line in lane.lines.values() if not line.unschedulable and line.aside is None]
    lines = [line for line in awake if engine.sticky.get(line) in line.gangs]
    first = lane.first()
    head = min(lines if first is None else [*lines, first], key=engine_place, default=None)
    stranger = min(_strangers(engine, lane), default=None, key=lambda found: found[0])
    if stranger is None or (head is not None and engine_place(head) < stranger[0]):
        return head
    (*_, uid), line = stranger
    engine.verdicts.setdefault(line, {})[uid] = line.aside or UNTOLD
    return None


def _place(engine: OneHeadEngine, line: Line) -> Place:
    rank, priority, created, uid = engine.order_key(line)
    return rank, engine.sticky.get(line) not in line.gangs, priority, created, uid


def _strangers(engine: OneHeadEngine, lane: Lane) -> Iterator[tuple[Place, Line]]:
    """Yield the gangs of namespaces that the queue does not select and that have not had their turn."""
    for line in lane.lines.values():
        if line.aside is not None and line.aside.code is Code.MISCONFIGURED:
            for created, uid in line.order:
                if uid not in engine.verdicts.get(line, {}):
                    yield (line.rank, True, -line.sample.priority, created, uid), line
                    break


def _nominate(
    engine: OneHeadEngine,
    line: Line,
    usage: Usage,
    request: Request | None = None,
    gone: frozenset[str] = frozenset(),
) -> Decision:
    state, lane, head = engine._state, line.lane, engine.head(line)
    if line.request.refusal is not None:
        return Decision(head.counts, Assignment(Mode.NO_FIT, 0, {}, {}))
    scan = engine.unfinished(line) if request is None else None
    resume = None if scan is None else scan.flavors
    attempt = _Nomination(
        state.decider, head, request or line.request, lane.queue, lane.node, resume, snapshot=usage, gone=gone
    )
    return state.hunger.judge(line, attempt.best(), state.fences, usage)


def _in_order(offers: dict[Line, Decision], snapshot: _Snapshot) -> Iterator[tuple[Line, Decision]]:
    """Yield the heads in the order in which they are decided about; shares change as others are admitted."""
    engine = snapshot.engine
    if not snapshot.state.settings.fair_sharing:
        yield from sorted(offers.items(), key=lambda item: (item[1].assignment.level, *engine.order_key(item[0])[1:]))
        return
    while offers:
        tree = min(tree_of(line.lane) for line in offers)
        winner = tournament([item for item in offers.items() if tree_of(item[0].lane) == tree], snapshot.usage)
        yield winner, offers.pop(winner)


def _process(snapshot: _Snapshot, line: Line, nominated: Decision) -> None:
    """Act on one nomination: admit, preempt, reserve, or leave it for a later cycle."""
    head, decision, deferred = snapshot.engine.head(line), nominated, False
    _note_scan(snapshot.engine, line, nominated)
    if nominated.assignment.mode is Mode.NO_FIT or nominated.fence is not None:
        _step_aside(snapshot, line, nominated)
        return
    if _overlaps(snapshot, nominated):
        decision = _nominate_again(snapshot, line, nominated)
        _note_scan(snapshot.engine, line, decision)
        deferred = decision.fits
    if deferred:
        _stick(snapshot, line)
        _tell(snapshot, line, _stopped_for(line, nominated))
        snapshot.charge(line, decision.assignment.usage)
    elif not decision.fits and not decision.victims:
        _reserve(snapshot, line, decision)
        _step_aside(snapshot, line, decision)
    elif decision.fits and (short := snapshot.state.fences.shortfall(head, decision.counts)) is not None:
        # An earlier head took the room at a fence. It has its turn again in the next cycle.
        _tell(snapshot, line, short)
    elif (judged := snapshot.state.hunger.judge(line, decision, snapshot.state.fences, snapshot.usage)) is not decision:
        # With what earlier heads took it would keep a hungry gang waiting.
        assert judged.fence is not None
        _tell(snapshot, line, judged.fence)
    elif not _overlaps(snapshot, decision) and snapshot.fits(line, decision):
        snapshot.charge(line, decision.assignment.usage)
        if decision.fits:
            snapshot.admit(line, decision)
        else:
            _stick(snapshot, line)
            _tell(snapshot, line, _stopped_for(line, decision))
            snapshot.victims.update((victim.holding.uid, victim) for victim in decision.victims)
            snapshot.preempted += stop_all(snapshot.state, line.lane, head, decision.victims)
    else:
        _tell(snapshot, line, Reason(Code.WAITING_FOR_QUOTA, OUTRUN, node=str(line.lane.node)))


def _overlaps(snapshot: _Snapshot, decision: Decision) -> bool:
    return any(victim.holding.uid in snapshot.victims for victim in decision.victims)


def _nominate_again(snapshot: _Snapshot, line: Line, nominated: Decision) -> Decision:
    """Decide again with the earlier victims gone, on the flavors that were nominated."""
    for victim in snapshot.victims.values():
        take(snapshot.usage, victim)
    pinned = _pinned(line.request, nominated.assignment.flavors)
    decision = _nominate(snapshot.engine, line, snapshot.usage, pinned, frozenset(snapshot.victims))
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
    why = _why(snapshot, line, decision)
    _tell(snapshot, line, why)
    if line.lane.strict or line in snapshot.engine.scans:
        return
    _park(snapshot.state, line, decision)
    if decision.fence is not None or line.sample.refusal is not None:
        return
    verdicts = snapshot.engine.verdicts
    verdicts[line] = verdicts.get(line, {}) | dict.fromkeys(line.gangs, why)
    for other in line.lane.lines.values():
        if _alike(other, line) and not other.unschedulable:
            told = {} if other.aside is None else verdicts.get(other, {})
            verdicts[other] = dict.fromkeys(other.gangs, why) | told
            _park(snapshot.state, other, decision)


def _park(state: State, line: Line, decision: Decision) -> None:
    """Set a class aside until anything that it asks for is freed in its tree."""
    fenced = decision.fence is not None or (line.elastic and bool(state.fences.fences(line.sample.namespace)))
    wake_on: list[WakeKey] = [NamespaceFences(line.sample.namespace)] if fenced else []
    keys: Iterable[FlavorResource] = short_of(state, line, decision)
    if decision.owed is not None:
        wake_on.append(decision.owed)
        state.hunger.watch(decision.owed)
        keys = decision.assignment.usage
    line.fence = decision.fence
    if line.lane.node is not None:
        wake_on += [Freed(line.lane.node.root.index, key) for key in keys]
    state.room.park(line, wake_on)


def _alike(one: Line, other: Line) -> bool:
    """Return whether the gangs of both ask the same of a queue at the same priority, wherever they come from and
    whatever their fences see in them.
    """
    return one.sample.priority == other.sample.priority and _shapes(one) == _shapes(other)


def _shapes(line: Line) -> list[object]:
    sets = line.key[-1]
    assert isinstance(sets, tuple)
    return [shape for shape, *_ in sets]


def _why(snapshot: _Snapshot, line: Line, decision: Decision) -> Reason:
    if line.request.refusal is not None:
        return line.request.refusal
    if line.lane.node is None:
        return decision.fence or UNTOLD
    return explain(snapshot.engine.head(line), decision, line.lane.node, snapshot.state.holdings)


def _stopped_for(line: Line, decision: Decision) -> Reason:
    assert line.lane.node is not None
    return awaiting([victim.holding for victim in decision.victims], line.lane.node)


def _note_scan(engine: OneHeadEngine, line: Line, decision: Decision) -> None:
    """Keep in mind which flavors the scan for the head left untried; who may stop nobody starts over, as in Kueue."""
    left = None if decision.fence is STOPS_NOBODY else decision.assignment.resume
    engine.scans.pop(line, None)
    if left:
        engine.scans[line] = _Scan(engine.head(line).uid, engine.turn, left)


def _stick(snapshot: _Snapshot, line: Line) -> None:
    """Let the head of a line try again where others are stopped for it, before all others of a BestEffortFIFO queue;
    there is one such gang in a queue.
    """
    engine = snapshot.engine
    engine.scans.pop(line, None)
    if line.lane.strict:
        return
    head = engine.head(line).uid
    for other in line.lane.lines.values():
        engine.sticky.pop(other, None)
    engine.sticky[line] = head
    snapshot.sticking.add(line)


def _tell(snapshot: _Snapshot, line: Line, why: Reason) -> None:
    snapshot.engine.verdicts.setdefault(line, {})[snapshot.engine.head(line).uid] = why
