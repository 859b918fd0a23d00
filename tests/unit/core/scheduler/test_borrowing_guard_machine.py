"""The guard as a state machine: queues of a tree that yield to starved ones, two resources, fences, stops and back-off.

The model beside the engine finds out who is starved, and who would take what they need, by charging and taking out of a
usage of its own what the rule speaks of.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Cohort, Preemption, PreemptionPolicy, Queue, StopPolicy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import Usage, Vertex
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

NAMESPACES = ("red", "blue")
limits = st.sampled_from([None, None, None, None, 2])
cells = st.tuples(st.sampled_from([0, 2, 4, 6]), limits, limits)
RECLAIM = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)


@st.composite
def trees(draw: st.DrawFn) -> list[Queue | Cohort]:
    """A root with queues and up to one cohort of queues below it, of one flavor."""
    found: list[Queue | Cohort] = [cohort("root", cpu=draw(st.sampled_from([None, 2, 6])))]
    parents = ["root", *draw(st.sampled_from([(), ("inner", "inner")]))]
    if "inner" in parents:
        found.append(Cohort("inner", "root", (_quotas(draw),)))
    for index in range(draw(st.sampled_from([2, 3, 4]))):
        found.append(
            queue(
                f"q{index}",
                None,
                _quotas(draw),
                cohort=draw(st.sampled_from(parents)),
                preemption=draw(st.sampled_from([Preemption(), Preemption(), RECLAIM])),
                guards_borrowing=draw(st.sampled_from([True, True, True, False])),
            )
        )
    return found


def _quotas(draw: st.DrawFn) -> Any:
    return group(default={"cpu": draw(cells), "gpu": draw(cells)})


class HungerMachine(RuleBasedStateMachine):
    """A world of queues that yield."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.vertices = data.draw(trees())
        self.world = World(*self.vertices)
        self.known: dict[str, Gang] = {}
        self.running: dict[str, Reservation] = {}
        self.fenced: dict[str, int] = {}

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), number=st.sampled_from([2, 4, 6]))
    def submit(self, data: st.DataObject, number: int) -> None:
        for _ in range(number):
            name, pods = f"g{len(self.known):03}", data.draw(st.sampled_from([1, 1, 1, 3, 5]))
            drawn = gang(
                name,
                data.draw(st.sampled_from(sorted(self.world.policy.queues))),
                data.draw(st.sampled_from([1, 1, 1, 0])),
                pods=pods,
                also={"gpu": data.draw(st.sampled_from([0, 0, 0, 1]))},
                namespace=data.draw(st.sampled_from(NAMESPACES)),
                priority=data.draw(st.sampled_from([0, 0, 1])),
                created=float(data.draw(st.sampled_from(range(5)))),
                quorum=data.draw(st.sampled_from([None, None, None, max(1, pods - 1)])),
                not_before_seconds=float(data.draw(st.sampled_from([0, 0, 0, 0, 9]))),
                evictable=data.draw(st.sampled_from([True, False])),
            )
            self.known[name] = drawn
            self.world.submit(drawn)
        self._cycle()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), number=st.sampled_from([1, 1, 2]))
    def some_end(self, data: st.DataObject, number: int) -> None:
        for _ in range(min(number, len(self.running))):
            self._end(data.draw(st.sampled_from(sorted(self.running))))
        self._cycle()

    more_end = some_end

    @rule(data=st.data())
    def something_else_changes(self, data: st.DataObject) -> None:
        getattr(self, data.draw(st.sampled_from(["_withdraw", "_fence", "_stop_a_queue", "_tick"])))(data)
        self._cycle()

    def _withdraw(self, data: st.DataObject) -> None:
        waiting = sorted(waiting.uid for waiting in self.world.engine.waiting())
        if waiting:
            self.world.engine.withdraw(data.draw(st.sampled_from(waiting)))

    def _fence(self, data: st.DataObject) -> None:
        space, pods = data.draw(st.sampled_from(NAMESPACES)), data.draw(st.sampled_from([None, 0, 4]))
        if pods is None:
            self.world.fences.drop_fence(space, "hard")
        else:
            self.world.fences.put_fence(Fence(space, "hard", {"pods": pods * MILLI}))
        self.world.engine.wake_namespace(space)

    def _stop_a_queue(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.world.policy.queues)))
        for index, vertex in enumerate(self.vertices):
            if isinstance(vertex, Queue) and vertex.name == chosen:
                stop = StopPolicy.HOLD if vertex.stop_policy is StopPolicy.NONE else StopPolicy.NONE
                self.vertices[index] = _stopped(vertex, stop)
        self._tell_policy()

    def _tell_policy(self) -> None:
        self.world.set_policy(*self.vertices)
        spaces = {name: {"kubernetes.io/metadata.name": name} for name in ("team", *NAMESPACES)}
        self.world.engine.set_policy(self.world.policy, spaces, self.world.now)

    def _tick(self, data: st.DataObject) -> None:
        self.world.now += data.draw(st.sampled_from([3, 9]))

    def _end(self, uid: str) -> None:
        space = self.running.pop(uid).namespace
        self.world.engine.release(uid)
        self.world.fences.drop_reservation(space, uid)
        self.world.engine.wake_namespace(space)

    # -- a cycle and the properties ----------------------------------------------------------------------------------

    def _cycle(self) -> None:
        steps = self._single_steps()
        plan = self.world.plan()
        note(f"{self.world.now}: {[r.uid for r in plan.admitted]} stopped {[p.uid for p in plan.preempted]}")
        assert _decided(plan) == steps, "one cycle decides what repeated single admissions would"
        self.running |= {reservation.uid: reservation for reservation in (*plan.admitted, *plan.grown)}
        again = self.world.engine.copy().cycle(self.world.now, _copied(self.world.fences, self.running), 1)
        assert not again, "fixed point"
        self._who_is_held_up_is_so_by_somebody_starved()
        for preempted in plan.preempted:
            self._end(preempted.uid)
            self.world.submit(self.known[preempted.uid])
        if plan.preempted:
            self._cycle()

    def _single_steps(self) -> list[Any]:
        twin, fences, running = self.world.engine.copy(), _copied(self.world.fences, self.running), dict(self.running)
        decided: list[list[Any]] = [[], [], []]
        while True:
            before, earlier = twin.copy(), _copied(self.world.fences, running)
            plan = twin.cycle(self.world.now, fences, 1, most=1)
            if not plan:
                admitted, grown, stopped = decided
                return [admitted, grown, sorted(stopped)]
            for taker in plan.admitted:
                if not before.state.is_claiming(taker.uid):
                    needy = self._keeps_waiting(before, taker.queue, _usage(taker), earlier, taker.uid)
                    assert needy is None, f"{taker.uid} took what {needy} needs"
            running |= {reservation.uid: reservation for reservation in (*plan.admitted, *plan.grown)}
            for whole, part in zip(decided, _decided(plan), strict=True):
                whole.extend(part)

    def _who_is_held_up_is_so_by_somebody_starved(self) -> None:
        engine = self.world.engine
        for waiting in engine.waiting():
            reason = engine.reason(waiting.uid)
            assert reason is not None
            assert reason.code is not Code.PENDING_EVALUATION, f"{waiting.uid} was not woken"
            if reason.code is Code.BEHIND_STARVED:
                assert self._starved(engine, waiting, self.world.fences) is None, "who is starved is held up by nobody"
                assert reason.message.split()[0].partition("/")[2] in self.known

    def teardown(self) -> None:
        """Nobody waits for ever: once all that run have ended, again and again, only what can never start waits."""
        if not hasattr(self, "world"):
            return
        for space in NAMESPACES:
            self.world.fences.drop_fence(space, "hard")
            self.world.engine.wake_namespace(space)
        self.vertices = [_stopped(n, StopPolicy.NONE) if isinstance(n, Queue) else n for n in self.vertices]
        self._tell_policy()
        self.world.now += 100
        self._cycle()
        while self.running:
            for uid in sorted(self.running):
                self._end(uid)
            self._cycle()
        for waiting in self.world.engine.waiting():
            reason = self.world.engine.reason(waiting.uid)
            never = self.world.engine.potential(waiting)
            assert never is not None, f"{waiting.uid} waits for ever: {reason}"
            assert never.is_never

    # -- the model ---------------------------------------------------------------------------------------------------

    def _keeps_waiting(
        self, engine: Engine, name: str | None, taken: dict[FlavorResource, int], fences: Fences, taker: str
    ) -> str | None:
        """Return a starved gang that would not have room because queue ``name`` takes ``taken``."""
        usage, queues = engine.state.allocations.projected.copy(), self.world.policy.queues
        vertex = usage.tree.queues[name or ""]
        owned = [key for key in taken if vertex.subtree.get(key, 0)]
        if not queues[vertex.name].guards_borrowing or (owned and all(_owns_more(usage, vertex, key) for key in owned)):
            return None
        for other in engine.waiting():
            asked = None if other.uid == taker else self._starved(engine, other, fences)
            theirs = usage.tree.queues[other.queue or ""]
            if asked is None or theirs is vertex or theirs.root is not vertex.root:
                continue
            mine, side = _sides(vertex, theirs)
            for key in asked.keys() & taken.keys():
                contested = all(_owns_more(usage, each, key) for each in side)
                contested = contested and not any(_owns_more(usage, each, key) for each in mine)
                usage.add(vertex, taken)
                refused = usage.binding(theirs, key, asked[key])
                usage.remove(vertex, taken)
                if contested and refused is not None and refused[0] not in side:
                    return other.uid
        return None

    def _starved(self, engine: Engine, waiting: Gang, fences: Fences) -> dict[FlavorResource, int] | None:
        """Return what a starved gang asks, or None if it is not starved."""
        allocations, queues = engine.state.allocations, self.world.policy.queues
        found, vertex = queues[waiting.queue or ""], allocations.tree.queues[waiting.queue or ""]
        resting = waiting.not_before_seconds > self.world.now or engine.state.is_claiming(waiting.uid)
        if not found.guards_borrowing or found.stop_policy is not StopPolicy.NONE or resting:
            return None
        if fences.shortfall(waiting, waiting.least_counts) is not None:
            return None
        requests = waiting.requests(waiting.least_counts)
        asked = {FlavorResource("default", name): amount for name, amount in requests.items() if amount}
        owned = [key for key in asked if vertex.subtree.get(key, 0)]
        if not owned or not all(_owns_more(allocations.projected, vertex, key) for key in owned):
            return None
        return (
            asked
            if all(_cut(allocations.projected, vertex, key).available(vertex, key) >= asked[key] for key in asked)
            else None
        )


def _stopped(found: Queue, stop: StopPolicy) -> Queue:
    return replace(found, stop_policy=stop)


def _decided(plan: Plan) -> list[Any]:
    return [
        [(r.uid, r.counts) for r in plan.admitted],
        [(r.uid, r.counts) for r in plan.grown],
        sorted((p.uid, p.by) for p in plan.preempted),
    ]


def _copied(fences: Fences, running: dict[str, Reservation]) -> Fences:
    twin = Fences()
    for space in NAMESPACES:
        for fence in fences.fences(space):
            twin.put_fence(fence)
    for reservation in running.values():
        twin.put_reservation(reservation)
    return twin


def _usage(reservation: Reservation) -> dict[FlavorResource, int]:
    return {key: amount for key, amount in reservation.usage().items() if amount}


def _owns_more(usage: Usage, vertex: Vertex, key: FlavorResource) -> bool:
    return usage.of(vertex, key) < vertex.subtree.get(key, 0)


def _sides(one: Vertex, other: Vertex) -> tuple[list[Vertex], list[Vertex]]:
    mine, theirs = list(one.path()), list(other.path())
    return [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]


def _cut(usage: Usage, vertex: Vertex, key: FlavorResource) -> Usage:
    """Return usage without what each side beside the way up from ``vertex`` took beyond what it owns."""
    cut = usage.copy()
    for child in vertex.path():
        for other in () if child.parent is None else child.parent.children:
            for leaf in () if other is child else _queues(other):
                while cut.of(leaf, key) >= MILLI and cut.of(other, key) > other.subtree.get(key, 0):
                    cut.remove(leaf, {key: MILLI})
    return cut


def _queues(vertex: Vertex) -> Iterable[Vertex]:
    return (each for each in vertex.below() if each.is_queue)


TestHunger = HungerMachine.TestCase
TestHunger.settings = settings(max_examples=30, stateful_step_count=20)
