"""Backfill as a state machine: several Backfill queues in nested cohorts with borrowing and lending limits, run-time
limits that are enforced, and what was promised to the head of each.

After each cycle no head's earliest start is later than it was, unless somebody intervened who may: a gang of higher
priority, one that takes what its own side of the tree owns, or the head of another queue that would be one of these.
And a head whose time has come has started. Whatever is booked fits at all times beside what runs, counted by hand.
"""

from math import inf

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.core.leaders import next_leader
from tests.unit.core.random_worlds import vertices
from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.backfill.timetable import Booking
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Cohort, Queue, Strategy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.quantity import MILLI
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.quota.tree import Usage, Vertex
from webhook.core.scheduler.plan import Plan

BACKFILL = Strategy.BACKFILL
MOSTLY_BACKFILL = (BACKFILL, BACKFILL, BACKFILL, Strategy.BEST_EFFORT_FIFO, Strategy.STRICT_FIFO)


@st.composite
def crowded(draw: st.DrawFn) -> list[Queue | Cohort]:
    """Two or three Backfill queues that own little and borrow most of what they use from the same cohorts."""
    limits = st.sampled_from([None, None, None, 2, 4])
    upper = cohort("upper", None, draw(st.sampled_from([4, 6, 8])))
    lower = cohort("lower", "upper", (draw(st.sampled_from([0, 0, 2])), draw(limits), draw(limits)))
    names = [f"q{i}" for i in range(draw(st.sampled_from([2, 3])))]
    return [
        upper,
        lower,
        *(
            queue(
                name,
                (draw(st.sampled_from([0, 0, 1, 2])), draw(limits), draw(limits)),
                cohort=draw(st.sampled_from(["upper", "lower"])),
                strategy=BACKFILL,
            )
            for name in names
        ),
    ]


class BackfillMachine(RuleBasedStateMachine):
    """A world in which nobody is stopped but at the run-time limit."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        alone = [queue("q0", 8, strategy=BACKFILL)]
        mixed = vertices(preempting=False, strategies=MOSTLY_BACKFILL, starved=False)
        several = vertices(preempting=False, strategies=(BACKFILL,), queues=(3, 4, 5), starved=False)
        self.world = World(*data.draw(st.one_of(st.just(alone), mixed, several, crowded(), crowded())))
        self.running: dict[str, Gang] = {}
        self.ends: dict[str, float] = {}
        self.known: dict[str, Gang] = {}
        self.promised: dict[str, Booking] = {}
        """By uid, for each head whose start was bounded."""

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), number=st.sampled_from([2, 4, 6]))
    def submit(self, data: st.DataObject, number: int) -> None:
        for _ in range(number):
            name = f"g{len(self.known):02}"
            pods = data.draw(st.sampled_from([1, 2, 3, 4, 6]))
            drawn = gang(
                name,
                data.draw(st.sampled_from(sorted(self.world.policy.queues))),
                1,
                pods=pods,
                created=self.world.now,
                priority=data.draw(st.sampled_from([0, 0, 0, 0, 0, 1])),
                quorum=data.draw(st.sampled_from([None, None, max(1, pods // 2)])),
                max_run_seconds=data.draw(st.sampled_from([2, 5, 9, 20, 6, None])),
            )
            self.known[name] = drawn
            self.world.submit(drawn)
        self._cycle()

    @rule(seconds=st.sampled_from([1, 1, 2, 4]))
    def time_passes(self, seconds: int) -> None:
        """Who has reached the limit ends, exactly then: that is what enforcing it means."""
        until = self.world.now + seconds
        # Those that start on the way may reach their limit on the way too.
        while (end := min(self.ends.values(), default=until + 1)) <= until:
            self.world.now = end
            for uid in sorted(uid for uid, at in self.ends.items() if at == end):
                self._end(uid)
            self._cycle()
        self.world.now = until
        self._cycle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def one_ends_early(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.running))))
        self._cycle()

    @rule(data=st.data())
    def one_goes_away(self, data: st.DataObject) -> None:
        waiting = sorted(waiting.uid for waiting in self.world.engine.waiting())
        if waiting:
            self.world.engine.withdraw(data.draw(st.sampled_from(waiting)))
            self._cycle()

    @rule()
    def another_leads(self) -> None:
        self.world.engine = next_leader(self.world, self.known)
        self._cycle()

    def _end(self, uid: str) -> None:
        del self.running[uid]
        self.ends.pop(uid, None)
        self.world.end(uid)

    # -- a cycle and the properties ----------------------------------------------------------------------------------

    def _cycle(self) -> None:
        steps, allocations = self._single_steps(), self.world.engine.state.allocations
        self.before = allocations.usage.copy()
        self.held = {uid: dict(allocation.amounts) for uid, allocation in allocations.by_uid.items()}
        self.kept_back = {head: dict(amounts) for head, (_, amounts) in allocations.promises.items()}
        plan = self.world.plan()
        note(f"{self.world.now}: {[r.uid for r in plan.admitted]} grown {[r.uid for r in plan.grown]}")
        assert [r.uid for r in plan.admitted] == steps, "one cycle decides what repeated single admissions would"
        for reservation in plan.admitted:
            admitted = self.running[reservation.uid] = self.known[reservation.uid]
            if admitted.max_run_seconds is not None:
                self.ends[admitted.uid] = self.world.now + admitted.max_run_seconds
        self._without_a_limit_nobody_passes(plan)
        self._no_heads_earliest_start_moves_later_unless_somebody_intervenes(plan)
        assert not self.world.engine.copy().cycle(self.world.now, self.world.fences, 1), "fixed point"

    def _single_steps(self) -> list[str]:
        twin, admitted = self.world.engine.copy(), []
        while plan := twin.cycle(self.world.now, type(self.world.fences)(), 1, most=1):
            admitted += [reservation.uid for reservation in plan.admitted]
        return admitted

    def _without_a_limit_nobody_passes(self, plan: Plan) -> None:
        for reservation in plan.admitted:
            one, queue = self.known[reservation.uid], self.world.policy.queues[reservation.queue or ""]
            if queue.strategy is BACKFILL and one.max_run_seconds is None:
                for other in self.world.engine.waiting(queue.name):
                    assert _place(one) < _place(other) or self.world.engine.potential(other) is not None

    def _no_heads_earliest_start_moves_later_unless_somebody_intervenes(self, plan: Plan) -> None:
        state, now = self.world.engine.state, self.world.now
        heads = {head.head.uid: head for queue in state.pending.queues.values() if (head := queue.head()) is not None}
        promised = dict(state.backfill.booked)
        assert promised.keys() <= heads.keys()
        note(f"promised { ({uid: (booking.at_seconds, booking.end_seconds) for uid, booking in promised.items()}) }")
        before, self.promised = self.promised, promised
        for uid, booking in promised.items():
            assert booking.at_seconds > now, f"{uid} was to have started"
        for uid in before.keys() & heads.keys():
            after = promised[uid].at_seconds if uid in promised else inf
            later = after > before[uid].at_seconds
            assert not later or self._intervened(plan, before, heads, uid), f"{uid} starts later than it was to"
        self._all_that_is_booked_fits()

    def _all_that_is_booked_fits(self) -> None:
        """Let gangs end and come in a world of our own, from one moment at which somebody comes to the next."""
        allocations, booked = self.world.engine.state.allocations, self.promised.values()
        for at in {booking.at_seconds for booking in booked}:
            usage = Usage(allocations.tree)
            for allocation in allocations.by_uid.values():
                vertex = allocations.vertex_of(allocation)
                if vertex is not None and self.ends.get(allocation.uid, inf) > at:
                    usage.add(vertex, allocation.amounts)
            for each in booked:
                if each.at_seconds <= at < each.end_seconds:
                    assert usage.fits(each.vertex, each.amounts), f"{each.uid} is booked where there is no room"
                    usage.add(each.vertex, each.amounts)

    def _intervened(self, plan: Plan, before: dict[str, Booking], heads: dict[str, EquivalenceClass], uid: str) -> bool:
        """Return whether the plan lets somebody start who may put off a head, gives the head of another queue that may
        another booking, or has a queue keep what it owns.
        """
        head = heads[uid]
        for name, (vertex, amounts) in self.world.engine.state.allocations.promises.items():
            kept = self.kept_back.get(name, {})
            if vertex is not head.queue.vertex and any(
                amounts.get(key, 0) > kept.get(key, 0) for key in head.request.keys
            ):
                return True
        moved = [
            heads[other] for other, booking in self.promised.items() if other != uid and booking != before.get(other)
        ]
        usage, held = self.before.copy(), dict(self.held)
        if any(self._goes_before(other, head, usage) for other in moved):
            return True
        for reservation in (*plan.admitted, *plan.grown):
            other, vertex = self.known[reservation.uid], usage.tree.queues[reservation.queue or ""]
            charged = held.get(reservation.uid, {})
            extra = {key: amount - charged.get(key, 0) for key, amount in reservation.usage().items()}
            elsewhere, keys = reservation.queue != head.queue.name, {key for key, amount in extra.items() if amount}
            if not charged:
                # It was booked as an owner first, if its smallest start is owned.
                usage.add(
                    vertex, least := {key: min(amount, other.least_pods * MILLI) for key, amount in extra.items()}
                )
                if other.priority > head.head.priority or (elsewhere and _side_owns(usage, vertex, head, keys)):
                    return True
                usage.remove(vertex, least)
            usage.add(vertex, extra)
            held[reservation.uid] = reservation.usage()
            if elsewhere and _side_owns(usage, vertex, head, keys):
                return True
            if any(self._goes_before(other, head, usage) for other in moved):
                return True
        return False

    def _goes_before(self, other: EquivalenceClass, head: EquivalenceClass, usage: Usage) -> bool:
        booking = self.promised[other.head.uid]
        usage.add(booking.vertex, booking.amounts)
        owner = _side_owns(usage, booking.vertex, head, set(booking.amounts))
        usage.remove(booking.vertex, booking.amounts)
        return owner or other.head.priority > head.head.priority

    def teardown(self) -> None:
        """Nobody starves: once nobody new comes, time alone starts every gang whose way is bounded."""
        if not hasattr(self, "world"):
            return
        for uid in [uid for uid in self.running if uid not in self.ends]:
            self._end(uid)
        for _ in range(len(self.known) + 1):
            self._cycle()
            for uid in [uid for uid in self.running if uid not in self.ends]:
                self._end(uid)
            if self.ends:
                self.world.now = min(self.ends.values())
                for uid in sorted(uid for uid, at in self.ends.items() if at <= self.world.now):
                    self._end(uid)
        self._cycle()
        for left in self.world.engine.waiting():
            queue = self.world.policy.queues[left.queue or ""]
            strict = queue.strategy is Strategy.STRICT_FIFO
            assert strict or self.world.engine.potential(left) is not None, f"{left.uid} starves"


def _side_owns(usage: Usage, vertex: Vertex, head: EquivalenceClass, keys: set[FlavorResource]) -> bool:
    """Return whether the side of queue ``vertex``, below the cohort that it shares with the head, owns all it uses."""
    assert head.queue.vertex is not None
    shared, side = set(map(id, head.queue.vertex.path())), vertex
    if side.root is not head.queue.vertex.root:
        return False
    while side.parent is not None and id(side.parent) not in shared:
        side = side.parent
    return all(usage.of(side, key) <= side.subtree.get(key, 0) for key in keys & head.request.keys)


def _place(one: Gang) -> tuple[int, float, str]:
    return (-one.priority, one.created_seconds, one.uid)


TestBackfill = BackfillMachine.TestCase
TestBackfill.settings = settings(max_examples=60, stateful_step_count=20)
