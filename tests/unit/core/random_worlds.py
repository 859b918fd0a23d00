"""Small policies drawn at random, an engine driven at random under them, and what must hold after each step."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import (
    Cohort,
    Fungibility,
    Preemption,
    PreemptionPolicy,
    Queue,
    SearchPolicy,
    StopPolicy,
    Strategy,
)
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence
from webhook.core.quota.tree import Usage
from webhook.core.scheduler.plan import Plan

NEVER = PreemptionPolicy.NEVER
# Sampled rather than drawn as integers: small numbers only would leave most worlds empty.
limits = st.sampled_from([None, None, 0, 1, 2, 4])
cells = st.tuples(st.sampled_from([0, 2, 4, 5, 8, 10]), limits, limits)


@st.composite
def preemptions(draw: st.DrawFn) -> Preemption:
    anyone, lower = PreemptionPolicy.ANY, PreemptionPolicy.LOWER_PRIORITY
    reclaim = draw(st.sampled_from([anyone, anyone, lower, NEVER]))
    borrow = NEVER if reclaim is NEVER else draw(st.sampled_from([NEVER, PreemptionPolicy.LOWER_PRIORITY]))
    within = draw(st.sampled_from([p for p in PreemptionPolicy if p is not PreemptionPolicy.ANY]))
    return Preemption(within, reclaim, borrow, draw(st.none() | st.integers(0, 2)))


@st.composite
def vertices(
    draw: st.DrawFn,
    *,
    preempting: bool = True,
    strategies: tuple[Strategy, ...] = tuple(Strategy)[:2],
    draining: bool = False,
    queues: tuple[int, ...] = (1, 2, 3, 4, 5),
    resources: tuple[str, ...] = ("cpu",),
    starved: bool = True,
) -> Any:
    """A root cohort, up to two below it, as many ``queues`` anywhere, of one or two flavors."""
    flavors = draw(st.sampled_from([("one",), ("one", "two")]))
    yields = draw(st.sampled_from([(False,), (True,), (False, True)])) if starved else (False,)
    stops = [*[StopPolicy.NONE] * 6, *(StopPolicy if draining else ())]
    lower = [f"c{i}" for i in range(draw(st.integers(0, 2)))]

    def quotas() -> Any:
        return group(**{flavor: {resource: draw(cells) for resource in resources} for flavor in flavors})

    found: list[Queue | Cohort] = [
        Cohort(name, draw(st.sampled_from(["root", *lower[:i]])), (quotas(),) if draw(st.booleans()) else ())
        for i, name in enumerate(lower)
    ]
    found.append(cohort("root"))
    for i in range(draw(st.sampled_from(queues))):
        found.append(
            queue(
                f"q{i}",
                None,
                quotas(),
                cohort=draw(st.sampled_from(["root", "root", *lower, None])),
                strategy=draw(st.sampled_from(strategies)),
                preemption=draw(preemptions()) if preempting else Preemption(),
                fungibility=Fungibility(
                    draw(st.sampled_from(list(SearchPolicy))), draw(st.sampled_from(list(SearchPolicy)))
                ),
                weight_millis=draw(st.sampled_from([0, 500, 1000, 2000])),
                stop_policy=draw(st.sampled_from(stops)),
                reclaimable=draw(st.sampled_from([True, True, True, False])),
                guards_borrowing=draw(st.sampled_from(yields)),
            )
        )
    return found


@st.composite
def gangs(draw: st.DrawFn, uid: str, queues: list[str]) -> Gang:
    pods = draw(st.sampled_from([1, 1, 2, 2, 3, 5]))
    return gang(
        uid,
        draw(st.sampled_from(queues)),
        draw(st.sampled_from([1, 1, 1, 2, 3, 0])),
        pods=pods,
        priority=draw(st.sampled_from([0, 1, 2, 3])),
        created=float(draw(st.sampled_from(range(6)))),
        min_count=draw(st.sampled_from([None, None, 1])),
        quorum=draw(st.sampled_from([None, None, max(1, pods - 1)])),
        not_before_seconds=float(draw(st.sampled_from([0, 0, 0, 3]))),
        max_run_seconds=draw(st.none() | st.integers(1, 9)),
        evictable=draw(st.sampled_from([True, True, True, False])),
    )


def in_parts(data: st.DataObject, whole: Gang, other: str) -> Gang:
    """Let a gang have two pod sets, or ask ``other`` besides cpu, or both."""
    main = whole.pod_sets[0]
    asked = data.draw(st.sampled_from([0, 0, 1, 2]))
    if asked:
        main = replace(main, price=PodPrice({**main.price.requests, other: asked * MILLI}))
    second = PodSet("second", 1, PodPrice({data.draw(st.sampled_from(["cpu", other])): MILLI}))
    return replace(whole, pod_sets=(main, second) if data.draw(st.booleans()) else (main,))


@dataclass
class Run:
    """A world being driven at random, with a record of its plans."""

    world: World
    queues: list[str]
    data: st.DataObject
    other: str | None = None
    """A second resource, which some gangs ask too."""
    count: int = 0
    admitted: dict[str, Gang] = field(default_factory=dict)
    known: dict[str, Gang] = field(default_factory=dict)

    @classmethod
    def start(cls, data: st.DataObject, settings: EngineSettings | None = None, **shape: Any) -> "Run":
        drawn = data.draw(vertices(**shape))
        other = next(iter(shape.get("resources", ())[1:]), None)
        return cls(World(*drawn, settings=settings), [n.name for n in drawn if isinstance(n, Queue)], data, other)

    def events(self) -> None:
        """Let a few things happen."""
        for _ in range(self.data.draw(st.integers(1, 6))):
            getattr(self, self.data.draw(st.sampled_from(["submit"] * 5 + ["end"] * 2 + ["drop", "fence", "tick"])))()

    def submit(self) -> None:
        self.count += 1
        drawn = self.data.draw(gangs(f"g{self.count}", self.queues))
        if self.other is not None:
            drawn = in_parts(self.data, drawn, self.other)
        self.known[drawn.uid] = drawn
        self.world.submit(drawn)

    def end(self) -> None:
        if self.admitted:
            uid = self.data.draw(st.sampled_from(sorted(self.admitted)))
            del self.admitted[uid]
            self.world.end(uid)

    def drop(self) -> None:
        waiting = sorted(g.uid for g in self.world.engine.waiting())
        if waiting:
            self.world.engine.withdraw(self.data.draw(st.sampled_from(waiting)))

    def fence(self) -> None:
        pods = self.data.draw(st.sampled_from([None, 3, 8]))
        if pods is None:
            self.world.fences.drop_fence("team", "hard")
        else:
            self.world.fences.put_fence(Fence("team", "hard", {"pods": pods * MILLI}))
        self.world.engine.wake_namespace("team")

    def tick(self) -> None:
        self.world.now += self.data.draw(st.integers(1, 3))

    def cycle(self, **options: Any) -> Plan:
        plan = self.world.plan(**options)
        for reservation in plan.admitted:
            assert reservation.uid not in self.admitted
            self.admitted[reservation.uid] = self.known[reservation.uid]
        return plan

    def stop_preempted(self, plan: Plan, *, again: bool = True) -> None:
        """What a plan stops ends, and waits again at its old place."""
        for preempted in plan.preempted:
            stopped = self.admitted.pop(preempted.uid)
            self.world.end(preempted.uid)
            if again:
                self.world.submit(stopped)


def recount(run: Run) -> Usage:
    """Usage from scratch: the sum of what is admitted."""
    allocations = run.world.engine.state.allocations
    usage = Usage(allocations.tree)
    for allocation in allocations.by_uid.values():
        vertex = allocations.vertex_of(allocation)
        assert vertex is not None
        usage.add(vertex, allocation.reservation.usage(allocation.reclaimed))
    return usage


def assert_sound(run: Run) -> None:
    """No vertex is oversubscribed, and usage is the sum of reservations."""
    allocations = run.world.engine.state.allocations
    usage, fresh = allocations.usage, recount(run)
    for vertex in allocations.tree.vertices:
        taken = {key: amount for key, amount in usage.all_of(vertex).items() if amount}
        assert taken == {key: amount for key, amount in fresh.all_of(vertex).items() if amount}
        for key, amount in taken.items():
            subtree, local = vertex.subtree.get(key, 0), vertex.local.get(key, 0)
            if vertex.parent is None:
                assert amount <= subtree, f"{vertex} oversubscribed"
            elif key in vertex.borrowing:
                assert max(0, amount - local) <= subtree - local + vertex.borrowing[key], f"{vertex} beyond its limit"
