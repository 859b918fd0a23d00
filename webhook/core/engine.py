"""The engine: a deterministic state machine that decides which gangs start, over one quota tree and two fences.

Commands tell it what exists (``set_policy``, ``submit``, ``withdraw``, ``restore``, ``release``, ``wake_namespace``);
``cycle`` returns a plan and assumes that it will be carried out. A cycle admits everything that fits, in the order in
which repeated single admissions would: each queue offers its first gang that is not parked; among the offers the lowest
borrow level goes first, then priority, time, uid. What does not fit is parked with what blocks it, and only a change
there has it decided about again: a cycle costs what changed, not what waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from webhook.core.decision import Decision, decide, judge_of
from webhook.core.explain import explain, never
from webhook.core.fences import Fences
from webhook.core.flavors import Assignment, Mode, compile_request
from webhook.core.gang import Gang
from webhook.core.growth import grow
from webhook.core.holdings import Holding, Holdings
from webhook.core.ledger import Reservation, reserve
from webhook.core.parking import Point
from webhook.core.policy import FlavorResource, Policy, StopPolicy
from webhook.core.queueing import Lane, Line
from webhook.core.quota_tree import QuotaTree
from webhook.core.reasons import Code, Reason
from webhook.core.settings import EngineSettings
from webhook.core.waiting_room import WaitingRoom

__all__ = ["Engine", "EngineSettings", "Plan", "Preempted"]


@dataclass(frozen=True, slots=True)
class Preempted:
    """One admitted gang that must be stopped to make room."""

    uid: str
    by: str
    """Uid of the gang that gets the room."""
    reason: str
    """Kueue's: InClusterQueue, InCohortReclamation, InCohortFairSharing, InCohortReclaimWhileBorrowing."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one cycle decided. The engine already counts on it."""

    admitted: tuple[Reservation, ...] = ()
    grown: tuple[Reservation, ...] = ()
    """Reservations of gangs that started below full size and may now have more pods."""
    preempted: tuple[Preempted, ...] = ()
    """They keep their usage until ``release``."""
    stopped: tuple[tuple[str, str], ...] = ()
    """(uid, why) of gangs whose queue drains."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.grown or self.preempted or self.stopped)


class Engine:
    """Decides which gangs start. Not safe for concurrent use; ``copy`` it for forecasts."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self._settings = settings or EngineSettings()
        self._policy = Policy()
        self._room = WaitingRoom(self._settings)
        self._holdings = Holdings(QuotaTree(self._policy))
        self._fences = Fences()
        self._after: dict[str, Gang] = {}
        """Gangs that are to wait as soon as their old reservation is released."""
        self._growing: dict[str, None] = {}
        """Gangs admitted below full size for which something changed."""
        self._draining: dict[str, None] = {}
        """Gangs whose stop was planned and is not yet in the ledger."""

    # -- what exists ------------------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy, namespaces: Mapping[str, Mapping[str, str]], now: float) -> None:
        """Decide by ``policy`` from now on; ``namespaces`` are labels by name."""
        if policy == self._policy and namespaces == self._room.namespaces:
            return
        self._policy = policy
        tree = QuotaTree(policy)
        self._holdings.rebase(tree)
        self._room.set_policy(policy, tree, dict(namespaces))
        self._room.end_rests(now)
        self._growing = dict.fromkeys(self._holdings.by_uid)

    def submit(self, gang: Gang, now: float) -> None:
        """Let a gang wait; one of the same uid is replaced. While it holds a reservation it does not."""
        if gang.uid in self._holdings.by_uid:
            self._after[gang.uid] = gang
        else:
            self._room.submit(gang, now)

    def withdraw(self, uid: str) -> None:
        """Forget a waiting gang; an unknown one is fine."""
        self._after.pop(uid, None)
        self._room.withdraw(uid)

    def restore(
        self, reservation: Reservation, gang: Gang | None = None, reclaimed: Mapping[str, int] | None = None
    ) -> None:
        """Charge what the ledger says, replacing what was known of the gang; ``reclaimed`` pods will not run again."""
        uid = reservation.uid
        known = self._holdings.by_uid.get(uid)
        waiting = self._room.withdraw(uid)
        gang = gang or waiting or (None if known is None else known.gang)
        holding = Holding(reservation, reservation.usage(reclaimed), gang, reclaimed)
        self._draining.pop(uid, None)
        if known is not None:
            self._let_go(known)
        self._holdings.put(holding)
        self._growing[uid] = None

    def release(self, uid: str) -> None:
        """End a reservation and wake what it could help; an unknown uid is fine."""
        holding = self._holdings.by_uid.get(uid)
        if holding is None:
            return
        self._let_go(holding)
        for table in (self._growing, self._draining):
            table.pop(uid, None)
        after = self._after.pop(uid, None)
        if after is not None:
            self._room.submit(after, after.not_before_seconds - 1)

    def wake_namespace(self, namespace: str) -> None:
        """Decide again about gangs that fences of ``namespace`` blocked: one changed, or a pod went away."""
        self._room.wake([namespace])
        self._growing.update((u, None) for u, h in self._partial().items() if h.reservation.namespace == namespace)

    # -- decisions --------------------------------------------------------------------------------------------------

    def cycle(self, now: float, fences: Fences, epoch: int, admit: bool = True, most: int | None = None) -> Plan:
        """Decide about everything that changed and return the plan; with ``admit`` false nothing starts.

        ``most`` ends the cycle after so many admissions; the next cycle goes on where this one stopped.
        """
        self._fences = fences
        self._room.end_rests(now)
        stopped = self._drain()
        if not admit:
            return Plan(stopped=stopped)
        admitted = self._admit_all(now, epoch, most)
        grown = () if most is not None and len(admitted) >= most else self._grow()
        return Plan(admitted=tuple(admitted), grown=grown, stopped=stopped)

    def _admit_all(self, now: float, epoch: int, most: int | None) -> list[Reservation]:
        agenda: list[tuple[int, int, float, str, int, Lane]] = []

        def enter(lane: Lane, level: int) -> None:
            line = lane.first()
            lane.stamp += 1
            if line is not None:
                created, uid = line.order[0]
                heappush(agenda, (level, -line.sample.priority, created, uid, lane.stamp, lane))

        for lane in self._room.awake:
            enter(lane, 0)
        admitted: list[Reservation] = []
        self._room.awake = {}
        while agenda and (most is None or len(admitted) < most):
            level, _, _, _, stamp, lane = heappop(agenda)
            line = lane.first()
            if stamp != lane.stamp or line is None:
                continue
            decision = self._decide(line)
            if decision.assignment.level > level:
                enter(lane, decision.assignment.level)
                continue
            if decision.fits:
                admitted.append(self._admit(line, decision, now, epoch))
            else:
                self._park(line, decision)
            enter(lane, 0)
        self._room.awake.update((item[-1], None) for item in agenda)
        return admitted

    def _decide(self, line: Line) -> Decision:
        gang, lane = line.head, line.lane
        if line.request.refusal is not None:
            return Decision(gang.counts, Assignment(Mode.NO_FIT, 0, {}, {}))
        judge = None if lane.node is None else judge_of(self._holdings.usage, lane.node)
        return decide(gang, line.request, lane.queue, judge, self._fences)

    def _admit(self, line: Line, decision: Decision, now: float, epoch: int) -> Reservation:
        gang = line.head
        reservation = reserve(
            gang, line.lane.name, decision.counts, decision.assignment.flavors, epoch, now, line.request.charges
        )
        self._room.withdraw(gang.uid)
        self._holdings.put(Holding(reservation, decision.assignment.usage, gang))
        self._fences.put_reservation(reservation)
        return reservation

    def _park(self, line: Line, decision: Decision) -> None:
        line.blocks, line.fence = decision.assignment.decisive, decision.fence
        points: list[Point] = [] if decision.fence is None else [line.sample.namespace]
        if line.lane.node is not None:
            root = line.lane.node.root.index
            points += dict.fromkeys(
                (root, b.key) for b in decision.assignment.blocks if b.code is Code.WAITING_FOR_QUOTA
            )
        if decision.fence is None and line.sample.least_pods < line.sample.pods:
            points.append(line.sample.namespace)
        self._room.park(line, points)

    def _grow(self) -> tuple[Reservation, ...]:
        grown = []
        partial = self._partial()
        for uid in sorted(self._growing):
            holding = partial.get(uid)
            larger = None if holding is None else grow(holding, self._holdings, self._fences)
            if larger is not None:
                self._holdings.put(larger)
                self._fences.put_reservation(larger.reservation, larger.reclaimed)
                grown.append(larger.reservation)
        self._growing = {}
        return tuple(grown)

    def _partial(self) -> dict[str, Holding]:
        """Return the admitted gangs that may still grow to full size."""
        return {
            uid: holding
            for uid, holding in self._holdings.by_uid.items()
            if holding.gang is not None and holding.gang.quorum is not None and holding.reservation.stopping is None
            if holding.reservation.counts != holding.gang.counts
        }

    def _drain(self) -> tuple[tuple[str, str], ...]:
        stopped = []
        for uid in sorted(self._holdings.by_uid):
            holding = self._holdings.by_uid[uid]
            why = None if uid in self._draining or holding.reservation.stopping else self._drained_by(holding)
            if why is not None:
                self._draining[uid] = None
                stopped.append((uid, why))
        return tuple(stopped)

    def _drained_by(self, holding: Holding) -> str | None:
        queue = self._policy.queues.get(holding.reservation.queue or "")
        if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return f"queue {queue.name} drains"
        label = None if holding.gang is None else holding.gang.queue
        local = self._policy.local_queues.get((holding.reservation.namespace, label or ""))
        if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return f"LocalQueue {local.namespace}/{local.name} drains"
        return None

    def _let_go(self, holding: Holding) -> None:
        """Return what a holding charges and wake what that could help."""
        node = self._holdings.node_of(holding)
        self._holdings.drop(holding.uid)
        points: list[Point] = [holding.reservation.namespace]
        if node is not None:
            root = node.root.index
            points += [(root, key) for key in holding.amounts]
        self._room.wake(points)

    # -- questions --------------------------------------------------------------------------------------------------

    def next_wake(self, now: float) -> float | None:
        """Return when a cycle is due though nothing else changes: the earliest end of a back-off."""
        end = self._room.next_rest_end()
        return None if end is None else max(end, now)

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, with the numbers of this moment; None when it does not wait."""
        ticket = self._room.tickets.get(uid)
        if ticket is None:
            return None
        if ticket.lane is None:
            return Reason(
                Code.QUEUE_NOT_FOUND,
                f"no queue {ticket.gang.queue!r} in namespace {ticket.gang.namespace}",
                help="create the queue or correct the label",
            )
        line = ticket.line
        if line is None:
            return Reason(
                Code.BACKING_OFF, f"waits until {ticket.gang.not_before_seconds:.0f} (Unix time) to try again"
            )
        for known in (ticket.lane.closed, line.aside, line.request.refusal):
            if known is not None:
                return known
        head = ticket.lane.strict_head()
        if head is not None and head.head.uid != uid:
            return Reason(
                Code.BEHIND_HEAD,
                f"queue {ticket.lane.name} is StrictFIFO and its head is "
                f"{head.head.namespace}/{head.head.name}, which waits: {self._why(head)}",
            )
        return self._why(line)

    def _why(self, line: Line) -> Reason:
        if line.request.refusal is not None:
            return line.request.refusal
        if line.lane.node is None:
            return line.fence or Reason(Code.PENDING_EVALUATION)
        return explain(line.head, self._decide(line), line.lane.node, self._holdings)

    def waiting(self, queue: str | None = None) -> list[Gang]:
        """Return the waiting gangs of one queue in its order, or all of them, queue by queue."""
        if queue is not None:
            lane = self._room.lanes.get(queue)
            return [] if lane is None else list(self._room.in_order(lane))
        lanes = sorted(self._room.lanes.values(), key=lambda lane: lane.name or "")
        lost = [t.gang for t in self._room.tickets.values() if t.lane is None]
        lost.sort(key=lambda gang: (-gang.priority, gang.created_seconds, gang.uid))
        return [gang for lane in lanes for gang in self._room.in_order(lane)] + lost

    def position(self, uid: str) -> int | None:
        """Return the 0-based place of a waiting gang in its queue; None when it does not wait in one."""
        ticket = self._room.tickets.get(uid)
        if ticket is None or ticket.lane is None:
            return None
        return next(i for i, gang in enumerate(self._room.in_order(ticket.lane)) if gang.uid == uid)

    def queue_of(self, uid: str) -> str | None:
        """Return the queue that a waiting gang waits in or an admitted one is charged to."""
        ticket = self._room.tickets.get(uid)
        if ticket is not None:
            return None if ticket.lane is None else ticket.lane.name
        holding = self._holdings.by_uid.get(uid)
        return None if holding is None else holding.reservation.queue

    def usage(self, node: str) -> Mapping[FlavorResource, int]:
        """Return what a queue or cohort uses; empty when there is none of that name."""
        found = self._holdings.usage.tree.find(node)
        return {} if found is None else self._holdings.usage.all_of(found)

    def potential(self, gang: Gang) -> Reason | None:
        """Return why ``gang`` could never start under the present policy, or None when it could."""
        queue = self._policy.queues.get(self._policy.queue_of(gang.namespace, gang.queue) or "")
        if queue is None:
            return None
        request = compile_request(gang, queue, self._policy.flavors, self._settings)
        return never(gang, request, queue, self._holdings.usage.tree.queues[queue.name])

    def copy(self) -> "Engine":
        """Return an independent engine in the same state."""
        twin = Engine(self._settings)
        twin._policy, twin._fences = self._policy, self._fences
        twin._holdings = self._holdings.copy()
        twin._after, twin._growing, twin._draining = dict(self._after), dict(self._growing), dict(self._draining)
        twin._room.set_policy(self._policy, self._holdings.usage.tree, self._room.namespaces)
        for ticket in self._room.tickets.values():
            twin._room.submit(ticket.gang, ticket.gang.not_before_seconds - (ticket.line is None))
        return twin
