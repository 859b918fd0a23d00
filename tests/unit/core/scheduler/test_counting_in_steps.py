"""What gangs hold that may be stopped takes several cycles to count, for more kinds of gangs than are kept."""

from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import LABELS, gang, policy, queue
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import Bound, NodeRecord
from webhook.core.placement import ceilings
from webhook.core.quota.fences import Fences
from webhook.core.scheduler import booked_nodes
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

POOLS = 10
NODES = 8
"""Of each pool."""
TAKEN = (0, 1, 2, 5, 6, 7)
"""Of these: pods of somebody else stand there, so that no room is made by stopping the gangs that are there too."""
PREEMPTS = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of a pool's eight gangs are counted at once, and a cycle looks at ten nodes."""
    monkeypatch.setattr(ceilings, "COUNTED_AT_ONCE", 3)
    monkeypatch.setattr(booked_nodes, "LOOKS", 10)


class Pools:
    """A queue for each pool of nodes, with a gang on each node; some queues have quota for more."""

    def __init__(self, roomy: Collection[int] = range(1, POOLS, 2)) -> None:
        self.engine, self.nodes, self.now = Engine(), Capacity(), 0.0
        queues = (queue(f"q{pool}", 100 if pool in roomy else NODES, preemption=PREEMPTS) for pool in range(POOLS))
        self.engine.set_policy(policy(*queues), LABELS, 0.0)
        for pool in range(POOLS):
            for node in range(NODES):
                self.nodes.put_node(NodeRecord(f"n{pool}-{node}", {"cpu": 1000}, {"pool": f"p{pool}"}))
        self.engine.know_nodes(self.nodes)
        for pool in range(POOLS):
            for node in range(NODES):
                self.submit(f"low{pool}-{node}", pool, 1)
        self.cycle()
        for pool in range(POOLS):
            for node in TAKEN:
                self.taken(pool, node)

    def submit(self, name: str, pool: int, pods: int, priority: int = 0) -> None:
        self.engine.submit(wanting(name, pool, pods, priority, self.now), self.now)

    def taken(self, pool: int, node: int) -> None:
        self.nodes.bind(f"pod{pool}-{node}", Bound(f"n{pool}-{node}", {"cpu": 1000}))

    def given(self, pool: int, node: int) -> None:
        self.nodes.unbind(f"pod{pool}-{node}")
        self.engine.wake_nodes()

    def cycle(self) -> tuple[Plan, float | None, frozenset[object]]:
        """Return what is decided, and whether another cycle is due at once."""
        self.now += 1.0
        plan = self.engine.cycle(self.now, Fences(), epoch=1)
        return plan, self.engine.next_wake(self.now), self.engine.undecided()


def wanting(name: str, pool: int, pods: int, priority: int, created: float) -> Gang:
    placement = {"node_selector": {"pool": f"p{pool}"}}
    return gang(name, f"q{pool}", pods=pods, priority=priority, created=created, placement=placement)


POOL, NODE = st.integers(0, POOLS - 1), st.integers(0, NODES - 1)
EVENTS = st.one_of(
    st.tuples(st.just("submit"), POOL, NODE),
    st.tuples(st.just("withdraw"), POOL, NODE),
    st.tuples(st.just("release"), POOL, NODE),
    st.tuples(st.just("taken"), POOL, NODE),
    st.tuples(st.just("given"), POOL, NODE),
    st.tuples(st.just("cycle"), POOL, NODE),
)


def happens(world: Pools, what: str, pool: int, node: int) -> tuple[object, ...] | None:
    match what:
        case "submit":
            world.submit(f"high{pool}-{node}", pool, node + 1, priority=node + 1)
        case "withdraw":
            world.engine.withdraw(f"high{pool}-{node}")
        case "release":
            world.engine.release(f"low{pool}-{node}")
        case "taken":
            world.taken(pool, node)
        case "given":
            world.given(pool, node)
        case _:
            return world.cycle()
    return None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, min_size=5, max_size=40))
def test_whatever_is_asked_the_same_is_decided(events: list[tuple[str, int, int]]) -> None:
    quiet, asked = Pools(), Pools()
    for pool in range(POOLS):
        events = [("submit", pool, 1), *events]
    for event in (*events, *[("cycle", 0, 0)] * 20):
        assert happens(quiet, *event) == happens(asked, *event)
        for each in asked.engine.waiting():
            asked.engine.reason(each.uid)
        assert quiet.engine.next_wake(quiet.now) == asked.engine.next_wake(asked.now)


@pytest.mark.parametrize("changes", [False, True])
def test_each_of_many_kinds_gets_its_room_though_nodes_change_in_every_cycle(changes: bool) -> None:
    world, served = Pools(roomy=()), set[str]()
    for pool in range(POOLS):
        world.submit(f"high{pool}", pool, 2, priority=5)
    for _ in range(3 * POOLS):
        if changes:
            world.engine.wake_nodes()
        served |= {each.by for each in world.cycle()[0].preempted}
    assert served == {f"high{pool}" for pool in range(POOLS)}
    assert world.engine.next_wake(world.now) is None


def test_who_is_asked_in_turn_has_its_own_counted_though_others_are_counted_in_every_cycle() -> None:
    world = Pools(roomy=[0])
    for pool in range(1, POOLS):
        world.submit(f"high{pool}", pool, 3, priority=5)

    def stopped_within(cycles: int) -> set[str]:
        """Two nodes of each pool may be had: gangs of three pods find no third, whoever is stopped."""
        for _ in range(cycles):
            world.engine.wake_nodes()
            plan = world.cycle()[0]
            if plan.preempted:
                return {each.by for each in plan.preempted}
        return set()

    assert not stopped_within(10 * POOLS)
    assert world.engine.state.ceilings.waiting, "more kinds are asked about than are kept"
    world.submit("high0", 0, 2, priority=5)
    assert stopped_within(4 * POOLS) == {"high0"}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, min_size=5, max_size=60))
def test_when_all_is_quiet_nobody_waits_for_whom_others_could_be_stopped(events: list[tuple[str, int, int]]) -> None:
    world = Pools()
    for event in (*[("submit", pool, 1) for pool in range(POOLS)], *events):
        happens(world, *event)
        world.cycle()
    for _ in range(20 * POOLS):
        world.cycle()
    assert world.engine.next_wake(world.now) is None
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(ceilings, "COUNTED_AT_ONCE", 1000)
        at_once.setattr(booked_nodes, "LOOKS", 10_000)
        known = world.engine.copy()
        known.wake_nodes()
        for _ in range(POOLS):
            assert not known.cycle(world.now, Fences(), epoch=1)


def test_who_searches_nothing_takes_no_search_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "COUNTED_AT_ONCE", 1000)
    world = Pools(roomy=[0])
    for pool in range(1, booked_nodes.SEARCHES + 2):
        world.submit(f"high{pool}", pool, 3, priority=5)
    world.cycle()
    world.submit("high0", 0, 2, priority=5)
    world.engine.wake_nodes()
    assert {each.by for each in world.cycle()[0].preempted} == {"high0"}
