"""All waiting gangs of one cluster: which lane and line each stands in, who rests, who is parked, who is woken.

Whatever the policy alone decides is decided once, when a gang comes or the policy changes: which queue it waits in,
whether anything keeps it out (``kept_out``), and which flavors its pod sets may use.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush

from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.assignment.request import compile_request
from webhook.core.model.gang import Gang
from webhook.core.model.policy import FlavorResource, Policy, PreemptionPolicy
from webhook.core.model.reasons import Reason
from webhook.core.model.settings import EngineSettings
from webhook.core.model.wake_keys import Freed, QueueHead, WakeKey
from webhook.core.pending.eligibility import why_aside, why_closed
from webhook.core.pending.gang_state import Event, GangState, allows
from webhook.core.pending.queueing import GangRecord, Lane, Line, line_key
from webhook.core.pending.wake_index import Gate, GateOrder, Need, Parking
from webhook.core.quota.tree import Node, QuotaTree


class WaitingRoom:
    """Everything that waits."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.policy = Policy()
        self.namespaces: Mapping[str, Mapping[str, str]] = {}
        self.records: dict[str, GangRecord] = {}
        """By uid, every gang that waits."""
        self.lanes: dict[str | None, Lane] = {None: Lane(None)}
        self.active: dict[Lane, None] = {}
        """Lanes that may have a line to decide about."""
        self.room_at: Callable[[Node, FlavorResource], int] = lambda node, key: 0
        """How much a node lets through now beyond its private quota."""
        self.backfilling: dict[Node, list[Lane]] = {}
        """Root of a tree to its Backfill queues."""
        self.yielding: dict[Node, list[Lane]] = {}
        """Root of a tree to its queues that hunger and yield to hungry ones."""
        self.changes = 0
        """Grows whenever a gang comes to wait or does so no longer, and when another one heads a queue."""
        self._looks = 0
        self._looked: dict[Node, int] = {}
        """By root of a tree: grows whenever another gang may head one of its queues, and never comes to what it was."""
        self._parking = Parking()
        self._backoff_ends: list[tuple[float, str]] = []
        self._touched: dict[Gate, None] = {}
        """Gates where there may be more room."""
        self._woken_by: dict[Line, Gate] = {}

    def set_policy(self, policy: Policy, tree: QuotaTree, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """Sort by another policy. Lanes whose queue and tree say what they said before stay as they are."""
        before = self.policy
        self.policy, self.namespaces = policy, namespaces
        for name, lane in list(self.lanes.items()):
            if name is not None and (
                tree.queues.get(name) is not lane.node
                or policy.queues.get(name) != lane.queue
                or policy.flavors != before.flavors
            ):
                self._close(lane)
        for name, queue in policy.queues.items():
            if name not in self.lanes:
                self.lanes[name] = Lane(name, queue, tree.queues[name], closed=why_closed(queue))
        self._index_lanes()
        for record in list(self.records.values()):
            if self._lane_of(record.gang) is not record.lane:
                self._move(record)
        for lane in self.lanes.values():
            for gang in [gang for gang in lane.claiming.values() if self._why_aside(gang) is not None]:
                self.unclaim(gang.uid)
            for line in lane.lines.values():
                aside = self._why_aside(line.sample)
                if aside != line.aside:
                    line.aside = aside
                    self.wake_line(line)
                    self.head_changed(lane)

    def heads_version(self, root: Node) -> int:
        """Return a number that grows whenever another gang may head one of the queues of a tree."""
        return self._looked.get(root, 0)

    def _count(self, lane: Lane) -> None:
        """Note that another gang may head a queue."""
        if lane.node is not None:
            self._looks += 1
            self._looked[lane.node.root] = self._looks

    def _index_lanes(self) -> None:
        self.backfilling, self.yielding = {}, {}
        roots = {lane.node.root for lane in self.lanes.values() if lane.node is not None}
        self._looked = {root: number for root, number in self._looked.items() if root in roots}
        for name in sorted(name for name in self.lanes if name is not None):
            lane = self.lanes[name]
            if lane.backfills and lane.node is not None:
                self.backfilling.setdefault(lane.node.root, []).append(lane)
            if lane.yields and lane.node is not None:
                self.yielding.setdefault(lane.node.root, []).append(lane)
            self._count(lane)

    def _close(self, lane: Lane) -> None:
        """Give up a lane whose queue changed; its gangs are moved afterwards."""
        del self.lanes[lane.name]
        self.active.pop(lane, None)
        for line in lane.lines.values():
            self._parking.forget(line)
            self.pass_on(line)
        self._parking.close(lane)
        self.wake(QueueHead(lane.name))

    def _move(self, record: GangRecord) -> None:
        """Let a gang wait where the present policy puts it; a back-off goes on."""
        backs_off = record.state is GangState.BACKOFF
        if record.lane is not None and self.lanes.get(record.lane.name) is record.lane:
            self.withdraw(record.gang.uid)
        else:
            del self.records[record.gang.uid]
        until = record.gang.not_before_seconds
        self.submit(record.gang, until - 1 if backs_off else until)

    def _why_aside(self, gang: Gang) -> Reason | None:
        return why_aside(gang, self.policy, self.namespaces)

    def _lane_of(self, gang: Gang) -> Lane | None:
        """Return the lane a gang belongs into; None while its queue is unknown."""
        name = self.policy.queue_of(gang.namespace, gang.queue)
        return None if name is None and gang.queue is not None else self.lanes.get(name)

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced."""
        known = self.records.get(gang.uid)
        if known is not None:
            if known.gang == gang:
                return
            self.withdraw(gang.uid)
        lane = self._lane_of(gang)
        if lane is None:
            self._note(Event.SUBMITTED, gang, GangState.NO_QUEUE)
        elif gang.not_before_seconds > now:
            lane.backoff[gang.uid] = gang
            heappush(self._backoff_ends, (gang.not_before_seconds, gang.uid))
            self._note(Event.SUBMITTED, gang, GangState.BACKOFF, lane)
        else:
            self._join(Event.SUBMITTED, lane, gang)

    def _note(
        self, event: Event, gang: Gang, apart: GangState | None, lane: Lane | None = None, line: Line | None = None
    ) -> None:
        """Record what became of a gang. Only here a gang comes into another state, or with its whole class."""
        known = self.records.get(gang.uid)
        record = self.records[gang.uid] = GangRecord(gang, lane, line, apart)
        before = GangState.ABSENT if known is None else known.state
        assert allows(event, before, record.state), f"{event}: {before} to {record.state}"

    def state_of(self, uid: str) -> GangState:
        """Return the state of a gang that holds nothing."""
        record = self.records.get(uid)
        return GangState.ABSENT if record is None else record.state

    def withdraw(self, uid: str) -> Gang | None:
        """Forget a waiting gang; None when it did not wait."""
        record = self.records.pop(uid, None)
        if record is None:
            return None
        if record.line is not None:
            self._leave(record.line, uid)
        elif record.lane is not None:
            record.lane.backoff.pop(uid, None)
            if record.lane.claiming.pop(uid, None) is not None:
                self.active[record.lane] = None
        return record.gang

    def claim(self, gang: Gang, line: Line) -> None:
        """Take a gang out of its line and of the order: others are being stopped for it."""
        self._leave(line, gang.uid)
        line.lane.claiming[gang.uid] = gang
        self._note(Event.PREEMPTS, gang, GangState.CLAIMING, line.lane)

    def unclaim(self, uid: str) -> None:
        """Put a claiming gang back into its line."""
        lane = self.records[uid].lane
        assert lane is not None
        self._join(Event.CLAIM_LAPSED, lane, lane.claiming.pop(uid))
        self.active[lane] = None

    def end_backoffs(self, now: float) -> None:
        """Let gangs whose back-off is over join their lines."""
        while self._backoff_ends and self._backoff_ends[0][0] <= now:
            until, uid = heappop(self._backoff_ends)
            record = self._in_backoff(until, uid)
            if record is not None and record.lane is not None:
                self._join(Event.BACKOFF_OVER, record.lane, record.lane.backoff.pop(uid))

    def _in_backoff(self, until: float, uid: str) -> GangRecord | None:
        """Return the record of a gang that is in back-off until that very time, if it still is."""
        record = self.records.get(uid)
        still = record is not None and record.apart is GangState.BACKOFF and record.gang.not_before_seconds == until
        return record if still else None

    def next_backoff_end(self) -> float | None:
        """Return when the earliest back-off ends."""
        while self._backoff_ends and self._in_backoff(*self._backoff_ends[0]) is None:
            heappop(self._backoff_ends)
        return self._backoff_ends[0][0] if self._backoff_ends else None

    def park(
        self,
        line: Line,
        wake_on: Iterable[WakeKey],
        gate: tuple[Need, GateOrder] | None = None,
        marks: Iterable[Need] = (),
    ) -> None:
        """Set a blocked line aside until what blocks it changes."""
        line.move(Event.BLOCKED)
        line.level = 0 if gate is None else gate[1][0]
        self._parking.park(line, wake_on, gate, marks)
        self.pass_on(line)
        self._move_on(line.lane)

    def wake(self, key: WakeKey, unless: Callable[[Line], bool] | None = None) -> None:
        """Wake the lines that the change ``key`` could help, but for those of which ``unless`` says so."""
        for line in self._parking.helped_by(key):
            if unless is None or not unless(line):
                self.wake_line(line)

    def head_changed(self, lane: Lane) -> None:
        """Have those decided about again whom the former head of a queue held up, and the new one of a Backfill queue,
        which has the rights of a head now.
        """
        self.changes += 1
        self._count(lane)
        self.wake(QueueHead(lane.name))
        head = lane.head() if lane.backfills else None
        if head is not None and head.unschedulable:
            self.wake_line(head)
        self._move_on(lane)

    def touch(self, node: Node, key: FlavorResource, own_room: int) -> None:
        """Take note that ``node`` uses less of ``key``: of what its subtree owns ``own_room`` is unused now."""
        spot = Freed(node.index, key)
        self.wake(spot)
        for line in self._parking.passed(spot, own_room):
            self.wake_line(line)
        gate = self._parking.gates.get(spot)
        if gate is not None:
            self._touched[gate] = None

    def wake_line(self, line: Line, level: int = 0) -> None:
        """Have a line decided about again; ``level`` is the lowest at which it could start, if known.

        The level counts only while nobody stands behind the line: else it is to be looked at soon, so that it does not
        keep others waiting if it turns out to be blocked.
        """
        if line.hopeless:
            self._count(line.lane)
        if line.unschedulable:
            line.move(Event.WOKEN)
        line.hopeless = False
        self._parking.forget(line)
        before = line.lane.first()
        line.lane.offer(line)
        self.active[line.lane] = None
        line.level = level if before is None else 0
        if before is not None:
            before.level = 0
            if line.lane.first() is not before:
                self.pass_on(before)
        self._wake_ahead(line.lane)

    def _wake_ahead(self, lane: Lane) -> None:
        """Wake the first line that goes before the one a lane offers and may have room by now: it must not be overtaken
        while it waits for its turn at a gate.
        """
        first = lane.first()
        ahead = None if first is None else self._parking.ahead_of(first, self.room_at)
        if ahead is not None:
            self.wake_line(ahead, ahead.level)

    def _move_on(self, lane: Lane) -> None:
        """Let those have a try who stood back behind the line that the lane offered until now."""
        for gate in self._parking.resume(lane):
            # Who has the turn there may come after them.
            if gate.woken is not None:
                self.pass_on(gate.woken)
            self._touched[gate] = None
        self._wake_ahead(lane)

    def _stands_back(self, line: Line) -> bool:
        """Return whether the lane of a parked line has another one to be decided about first."""
        first = line.lane.first()
        if first is None or first.order_key > line.order_key:
            return False
        first.level = 0
        self.active[line.lane] = None
        return True

    def pass_on(self, line: Line) -> None:
        """Let the next line at the gate that woke ``line`` have a try: this one has had its turn, or has to stand back
        behind another of its lane.
        """
        gate = self._woken_by.pop(line, None)
        if gate is not None:
            gate.woken = None
            self._touched[gate] = None

    def open_gates(self) -> None:
        """At each gate that changed, wake the first line for which there is room, unless one is awake already."""
        while self._touched:
            gate, _ = self._touched.popitem()
            if gate.woken is not None:
                continue
            line = self._parking.first(gate, self.room_at(gate.node, gate.key), self._stands_back)
            if line is None:
                continue
            gate.woken, self._woken_by[line] = line, gate
            self.wake_line(line, line.level)
            if line.lane.first() is not line:
                self.pass_on(line)

    def admitted_beside(self, lane: Lane, priority: int) -> None:
        """Have the parked lines of a lane above ``priority``, which might now stop a gang of their own queue, decided
        about whenever anything in the tree is freed.
        """
        rules = None if lane.queue is None else lane.queue.preemption
        if lane.node is None or rules is None or rules.within_queue is PreemptionPolicy.NEVER:
            return
        root = lane.node.root.index
        for line in lane.lines.values():
            if line.unschedulable and rules.may_stop_own(line.sample.priority, priority):
                for key in line.request.keys:
                    self._parking.also_on(line, Freed(root, key))

    def copy(self) -> "WaitingRoom":
        """Return an independent room in the same state: what is parked stays parked."""
        twin = WaitingRoom(self.settings)
        twin.policy, twin.namespaces = self.policy, self.namespaces
        lines: dict[Line, Line] = {}
        twin.lanes = {name: lane.copy(lines) for name, lane in self.lanes.items()}
        twin.active = {twin.lanes[lane.name]: None for lane in self.active}
        twin._index_lanes()
        twin.records = {
            uid: replace(each, lane=each.lane and twin.lanes[each.lane.name], line=each.line and lines[each.line])
            for uid, each in self.records.items()
        }
        twin._parking = self._parking.copy(lines)
        twin._touched = {twin._parking.gates[spot]: None for spot in self._open_spots() if spot in twin._parking.gates}
        twin._backoff_ends = list(self._backoff_ends)
        return twin

    def _open_spots(self) -> list[Freed]:
        gates = (*self._touched, *self._woken_by.values(), *self._parking.standing_back())
        return [Freed(gate.node.index, gate.key) for gate in gates]

    def in_order(self, lane: Lane) -> Iterator[Gang]:
        """Yield the gangs of a lane in queue order."""
        for _, gang in sorted(lane.waiting(), key=lambda item: item[0]):
            yield gang

    def _join(self, event: Event, lane: Lane, gang: Gang) -> None:
        self.changes += 1
        self._count(lane)
        key = line_key(gang)
        line = lane.lines.get(key)
        if line is None:
            line = lane.lines[key] = Line(lane, key, gang)
            line.aside = self._why_aside(gang)
            line.elastic = gang.least_pods < gang.pods
            if lane.queue is not None:
                line.request = compile_request(gang, lane.queue, self.policy.flavors, self.settings)
            if line.request.has_one_way:
                line.smallest = line.request.amounts(gang.least_counts)
            line.shifting = line.elastic or line.request.has_alternatives
            line.never = lane.backfills and not _could_ever_start(line)
        line.put(gang)
        self._note(event, gang, None, lane, line)
        if line.order[0][1] == gang.uid:
            self.wake_line(line)
            if lane.backfills and lane.head() is line:
                # Those that an earlier head held up may go before this one does.
                self.head_changed(lane)

    def _leave(self, line: Line, uid: str) -> None:
        self.changes += 1
        self._count(line.lane)
        was_head = line.order[0][1] == uid
        led = was_head and (not line.lane.backfills or line.lane.head() is line)
        line.drop(uid)
        if not line.order:
            self._parking.forget(line)
            self.pass_on(line)
            del line.lane.lines[line.key]
        elif was_head:
            self.wake_line(line)
        if was_head:
            self.active[line.lane] = None
        if led:
            self.head_changed(line.lane)
        elif was_head:
            self._move_on(line.lane)


def _could_ever_start(line: Line) -> bool:
    """Return whether the smallest start of a line would fit an idle tree."""
    queue, node = line.lane.queue, line.lane.node
    assert queue is not None
    assert node is not None

    def judge(key: FlavorResource, amount: int) -> Verdict:
        return Verdict(Mode.FIT if amount <= node.potential(key) else Mode.NO_FIT, 0)

    if line.request.refusal is not None:
        return False
    return assign(line.request, line.sample.least_counts, queue.fungibility, Judge(judge)).mode is Mode.FIT
