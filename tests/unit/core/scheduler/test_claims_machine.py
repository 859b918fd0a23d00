"""Claims as a state machine: gangs come, are stopped for others, end late and start again, while leaders follow each
other that read some jobs long after the ledger.

Whoever leads, a claim stands until it is taken up as planned, and no longer than somebody is being stopped for it; no
room is given away twice.
"""

from dataclasses import replace

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.core.leaders import next_leader
from tests.unit.core.random_worlds import gangs, vertices
from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.ledger.record import Claim, Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Cohort, Preemption, PreemptionPolicy, Queue, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.quota.tree import Usage
from webhook.core.reasons.wake_keys import QueueHead
from webhook.core.scheduler.plan import Plan

FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
STRATEGIES = (Strategy.BEST_EFFORT_FIFO, Strategy.BACKFILL)
"""In StrictFIFO queues claims lapse for more reasons."""


@st.composite
def crowded(draw: st.DrawFn) -> list[Queue | Cohort]:
    """One queue or two, where somebody is stopped for nearly everybody who comes."""
    rights = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
    return [
        cohort("all"),
        *(
            queue(f"q{i}", draw(st.sampled_from([4, 6])), cohort="all", preemption=rights)
            for i in range(draw(st.sampled_from([1, 1, 2])))
        ),
    ]


@st.composite
def small(draw: st.DrawFn, uid: str, queues: list[str]) -> Gang:
    """A gang of which a crowded queue holds two or three, or the whole queue."""
    size, priority = draw(st.sampled_from([1, 2, 2, 2, 4])), draw(st.sampled_from([0, 0, 1, 2, 3]))
    return gang(uid, draw(st.sampled_from(queues)), pods=size, priority=priority, created=float(uid[1:]))


class ClaimsMachine(RuleBasedStateMachine):
    """One cluster and its leaders."""

    engine_settings = EngineSettings()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.small = data.draw(st.sampled_from([True, True, False]))
        drawn = data.draw(crowded() if self.small else vertices(strategies=STRATEGIES))
        self.world = World(*drawn, settings=self.engine_settings)
        self.queues = [vertex.name for vertex in drawn if isinstance(vertex, Queue)]
        self.known: dict[str, Gang] = {}
        self.unread: set[str] = set()
        """Gangs that wait and that the present leader does not know yet."""
        self.admitted: dict[str, Reservation] = {}
        self.claims: dict[str, Claim] = {}
        """As of the last cycle."""
        self.excused: set[str] = set()
        """Whose claims may lapse: they, their queues or their victims are others than they were."""
        for _ in range(data.draw(st.sampled_from([4, 6, 8]))):
            self._submit(data)
            self._cycle(data)

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), number=st.sampled_from([1, 2, 3]))
    def submit(self, data: st.DataObject, number: int) -> None:
        for _ in range(number):
            self._submit(data)
        self._cycle(data)

    def _submit(self, data: st.DataObject) -> None:
        uid = f"g{len(self.known):02}"
        self.known[uid] = data.draw((small if self.small else gangs)(uid, self.queues))
        self.world.submit(self.known[uid])

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        """One that was stopped waits again, perhaps in another queue."""
        going = [uid for uid, entry in self.admitted.items() if entry.stopping is not None]
        uid = data.draw(st.sampled_from(sorted(going or self.admitted)))
        stopped = self.admitted.pop(uid).stopping is not None
        self.world.end(uid)
        if stopped:
            self.known[uid] = replace(self.known[uid], queue=data.draw(st.sampled_from(self.queues)))
            self.world.submit(self.known[uid])
        self._cycle(data)

    @rule(data=st.data())
    def one_changes_or_goes_away(self, data: st.DataObject) -> None:
        waiting = sorted(waiting.uid for waiting in self.world.engine.waiting())
        if waiting:
            uid = data.draw(st.sampled_from(waiting))
            self.excused.add(uid)
            if data.draw(st.booleans()):
                self.known[uid] = replace(self.known[uid], priority=data.draw(st.sampled_from(range(4))))
                self.world.submit(self.known[uid])
            else:
                self.world.engine.withdraw(uid)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def another_leads(self, data: st.DataObject) -> None:
        waiting = {waiting.uid for waiting in self.world.engine.waiting()} | self.unread
        self.unread = {uid for uid in sorted(waiting) if data.draw(st.booleans())}
        engine = next_leader(self.world, self.known, self.unread)
        for uid in sorted(waiting - self.unread):
            engine.submit(self.known[uid], self.world.now)
        assert engine.claims() == self.world.engine.claims()
        self.world.engine = engine
        if data.draw(st.booleans()):
            self._cycle(data)

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def jobs_are_read(self, data: st.DataObject) -> None:
        for uid in data.draw(st.lists(st.sampled_from(sorted(self.unread)), min_size=1, unique=True)):
            self.unread.remove(uid)
            self.world.submit(self.known[uid])
        self._cycle(data)

    @rule(data=st.data())
    def the_policy_changes(self, data: st.DataObject) -> None:
        if data.draw(st.sampled_from([False, False, True])):
            drawn = data.draw(vertices(strategies=STRATEGIES, queues=(3, 4, 5)))
            if {vertex.name for vertex in drawn} >= set(self.queues):
                self.world.set_policy(*drawn)
                self.excused |= self.claims.keys()
        self.world.now += 1

    @rule(data=st.data())
    def the_fence_changes(self, data: st.DataObject) -> None:
        pods = data.draw(st.sampled_from([None, None, 3, 6]))
        if pods is None:
            self.world.fences.drop_fence("team", "hard")
        else:
            self.world.fences.put_fence(Fence("team", "hard", {"pods": pods * MILLI}))
        self.world.engine.wake_namespace("team")

    # -- a cycle and the properties ----------------------------------------------------------------------------------

    def _cycle(self, data: st.DataObject) -> None:
        before = self._projected(self.claims)
        plan = self.world.plan()
        note(f"admitted {[r.uid for r in plan.admitted]}, preempted {[(p.uid, p.by) for p in plan.preempted]}")
        for reservation in (*plan.admitted, *plan.grown):
            self.admitted[reservation.uid] = reservation
        self._write(plan, data)
        claims = self.world.engine.claims()
        self._claims_stand_until_they_are_taken_up(claims, plan)
        self._somebody_is_being_stopped_for_each(claims)
        if all(self.admitted[preempted.uid].stopping for preempted in plan.preempted):
            self._nobody_takes_the_room(before, self._projected(claims))
        self._nothing_is_kept_but_for_claims_and_heads(claims)
        self.claims, self.excused = claims, self.excused & claims.keys()

    def _write(self, plan: Plan, data: st.DataObject) -> None:
        """Write the stops in the ledger, or hardly ever not: then they do not happen."""
        for uid in [preempted.uid for preempted in plan.preempted]:
            if data.draw(st.sampled_from([True] * 9 + [False])):
                self.admitted[uid] = replace(self.admitted[uid], stopping="Preempted")
            else:
                self.excused |= {by for by, claim in self.world.engine.claims().items() if uid in claim.awaits}
            self.world.engine.restore(self.admitted[uid], self.known[uid])

    def _claims_stand_until_they_are_taken_up(self, claims: dict[str, Claim], plan: Plan) -> None:
        started = {reservation.uid: reservation for reservation in plan.admitted}
        for uid, claim in self.claims.items():
            fenced = bool(self.world.fences.fences("team"))
            if uid in self.excused or ((fenced or uid in self.unread) and not self._going(claim)):
                continue
            if uid in started:
                assert started[uid].pod_sets == claim.planned.pod_sets, f"{uid} did not get what it claimed"
            else:
                assert uid in claims, f"{uid} lost its claim"
                assert claims[uid].planned == claim.planned

    def _somebody_is_being_stopped_for_each(self, claims: dict[str, Claim]) -> None:
        for uid, claim in claims.items():
            assert self._going(claim), f"{uid} waits for nobody"

    def _nobody_takes_the_room(self, before: Usage, after: Usage) -> None:
        """With what everybody holds and claims once those being stopped are gone, no vertex is beyond its limits."""
        for vertex in after.tree.vertices:
            for key, taken in after.all_of(vertex).items():
                limit = vertex.borrowing.get(key)
                most = vertex.subtree.get(key, 0) + (limit or 0)
                if vertex.parent is None or limit is not None:
                    assert taken <= max(most, before.of(vertex, key)), f"{vertex}: {key} is given away twice"

    def _nothing_is_kept_but_for_claims_and_heads(self, claims: dict[str, Claim]) -> None:
        state = self.world.engine.state
        heads = {QueueHead(queue.name) for queue in state.pending.queues.values()}
        kept = {to: amounts for to, (_, amounts) in state.allocations.promises.items() if to not in heads}
        assert kept == {uid: claim.planned.usage() for uid, claim in claims.items()}

    def _going(self, claim: Claim) -> bool:
        return any(uid in self.admitted and self.admitted[uid].stopping is not None for uid in claim.awaits)

    def _projected(self, claims: dict[str, Claim]) -> Usage:
        usage = Usage(self.world.engine.state.allocations.tree)
        planned = [claim.planned for claim in claims.values()]
        for entry in (*(entry for entry in self.admitted.values() if entry.stopping is None), *planned):
            vertex = usage.tree.queues.get(entry.queue or "")
            if vertex is not None:
                usage.add(vertex, entry.usage())
        return usage


class FairClaimsMachine(ClaimsMachine):
    """The same under fair sharing."""

    engine_settings = FAIR


HOW = settings(max_examples=60, stateful_step_count=50)
TestClaims = ClaimsMachine.TestCase
TestClaims.settings = HOW
TestFairClaims = FairClaimsMachine.TestCase
TestFairClaims.settings = HOW
