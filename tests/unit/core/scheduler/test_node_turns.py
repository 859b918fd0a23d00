"""More shapes wait for nodes than are looked at in one round, or than are kept: who may start does so all the same."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import LABELS, gang, group, policy, queue
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.policy import Flavor, NodeFit, Preemption, PreemptionPolicy
from webhook.core.model.settings import EngineSettings
from webhook.core.nodes import capacity, turns
from webhook.core.nodes.capacity import Capacity
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import shape_of
from webhook.core.placement.fit import place
from webhook.core.placement.misplaced import Misplaced
from webhook.core.placement.overlay import Asked
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan

OWN, RENTED = Flavor("own", {"kind": "own"}), Flavor("rented", {"kind": "rented"}, node_fit=NodeFit.OBSERVE)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round looks at four new shapes at ten nodes, and eight are kept."""
    monkeypatch.setattr(turns, "ROUND_VISITS", 40)
    monkeypatch.setattr(turns, "ROUND_SHAPES", 4)
    monkeypatch.setattr(capacity, "SHAPES_MAX", 8)


class Crowd:
    """An engine and ten nodes, beside many gangs of another tenant that no node is large enough for."""

    def __init__(self, crowd: int) -> None:
        self.engine, self.nodes, self.now = Engine(EngineSettings()), Capacity(), 0.0
        preemption = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
        both = queue("both", None, group(own={"cpu": 100}, rented={"cpu": 8}), preemption=preemption)
        queues = (queue("crowd", 10**6), queue("q", 1000), both)
        self.engine.set_policy(policy(*queues, flavors=(OWN, RENTED)), LABELS, 0.0)
        for number in range(10):
            self.nodes.put_node(NodeRecord(f"n{number}", {"cpu": 4000}, {"kind": "own"}))
        self.engine.know_nodes(self.nodes)
        for number in range(crowd):
            self.engine.submit(gang(f"big{number}", "crowd", cpu=5 + number, created=float(number)), 0.0)

    def cycle(self) -> Plan:
        self.now += 1.0
        return self.engine.cycle(self.now, Fences(), epoch=1)

    def starts_within(self, rounds: int) -> list[str]:
        return [each.name for _ in range(rounds) for each in self.cycle().admitted]


AMOUNTS = st.integers(1, 60)
GANGS = st.lists(AMOUNTS, min_size=1, max_size=3, unique=True)
EVENTS = st.one_of(
    st.tuples(st.just("submit"), GANGS), st.tuples(st.just("withdraw"), AMOUNTS), st.tuples(st.just("cycle"), AMOUNTS)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, min_size=10, max_size=60))
def test_when_all_is_quiet_nobody_waits_who_fits(events: list[tuple[str, int | list[int]]]) -> None:
    """Each gang asks one to three shapes, in tenths of a node and up to six nodes' worth."""
    world, there = Crowd(0), list[str]()
    for event, chosen in events:
        if isinstance(chosen, list):
            there.append(f"gang{len(there)}")
            sets = tuple(PodSet(f"s{cpu}", 1, PodPrice({"cpu": 400 * cpu})) for cpu in chosen)
            world.engine.submit(gang(there[-1], "q", pod_sets=sets, created=world.now), world.now)
        elif event == "withdraw" and there:
            world.engine.withdraw(there[chosen % len(there)])
            world.engine.release(there[chosen % len(there)])
        else:
            world.cycle()
    for _ in range(3 * len(events)):
        world.cycle()
    assert world.engine.next_wake(world.now) is None
    for waiting in world.engine.waiting():
        asked = [Asked(each.name, shape_of(each, ()), each.count) for each in waiting.pod_sets]
        assert isinstance(place(world.nodes.copy(), asked), Misplaced), waiting.name


def two_shapes(name: str) -> PodSet:
    return PodSet(name, 1, PodPrice({"cpu": 1000}), node_selector={"kind": "own"} if name == "worker" else {})


@pytest.mark.parametrize("crowd", [6, 8, 9, 20, 60])
def test_a_gang_of_two_shapes_has_its_turn_among_any_number_of_others(crowd: int) -> None:
    world = Crowd(crowd)
    for _ in range(crowd):
        world.cycle()
    sets = (two_shapes("leader"), two_shapes("worker"))
    world.engine.submit(gang("wide", "q", pod_sets=sets, created=100.0), world.now)
    assert world.starts_within(3) == ["wide"]


@pytest.mark.parametrize("freed", [False, True])
def test_its_turn_comes_also_while_nodes_become_free_all_the_time(freed: bool) -> None:
    world = Crowd(60)
    sets = tuple(
        PodSet(f"s{number}", 1, PodPrice({"cpu": 100 * (1 + number)}), node_selector={"kind": "own"})
        for number in range(7)
    )
    world.engine.submit(gang("wide", "q", pod_sets=sets, created=-1.0), world.now)
    started: list[str] = []
    for _ in range(40):
        if freed:
            world.engine.wake_nodes()
        started += world.starts_within(1)
    assert started == ["wide"]


@pytest.mark.parametrize("crowd", [3, 8, 9, 60])
def test_cycles_end_when_all_were_looked_at_though_not_all_are_kept(crowd: int) -> None:
    world = Crowd(crowd)
    for _ in range(crowd):
        world.cycle()
    assert world.engine.next_wake(world.now) is None


def test_what_is_freed_is_given_to_those_that_are_not_kept() -> None:
    world = Crowd(30)
    world.engine.submit(gang("waits", "q", cpu=40, created=-1.0), 0.0)
    for _ in range(30):
        world.cycle()
    world.nodes.put_node(NodeRecord("large", {"cpu": 64_000}))
    world.engine.wake_nodes()
    assert "waits" in world.starts_within(15)


def test_no_turn_is_kept_for_gangs_that_are_gone() -> None:
    world = Crowd(60)
    world.cycle()
    for number in range(60):
        world.engine.withdraw(f"big{number}")
    world.engine.submit(gang("small", "q", cpu=1), world.now)
    assert world.starts_within(1) == ["small"]
    assert not world.nodes.has_due


def test_a_look_that_is_put_off_sends_no_gang_to_another_flavor() -> None:
    world = Crowd(12)
    world.engine.submit(gang("train", "both", cpu=4, pods=2, created=50.0), 0.0)
    plans = [world.cycle() for _ in range(6)]
    found = [each for plan in plans for each in plan.admitted]
    assert [(each.name, each.flavors) for each in found] == [("train", {"main": {"cpu": "own"}})]


def test_a_look_that_is_put_off_stops_nobody_on_another_flavor() -> None:
    world = Crowd(0)
    rented = gang("low", "both", cpu=4, pods=2, priority=-1, placement={"node_selector": {"kind": "rented"}})
    world.engine.submit(rented, 0.0)
    assert world.starts_within(1) == ["low"]
    for number in range(12):
        world.engine.submit(gang(f"big{number}", "crowd", cpu=5 + number, priority=5), world.now)
    world.engine.submit(gang("train", "both", cpu=4, pods=2, created=50.0), world.now)
    plans = [world.cycle() for _ in range(6)]
    assert [each.name for plan in plans for each in plan.admitted] == ["train"]
    assert not any(plan.preempted for plan in plans)


def test_a_smaller_size_does_not_win_because_a_larger_one_was_put_off() -> None:
    world = Crowd(12)
    elastic = gang("train", "both", cpu=4, pods=4, min_count=1, created=50.0)
    # Two pods fit the quota of the rented flavor, whose nodes nobody asks about.
    world.engine.submit(replace(elastic), 0.0)
    found = [each for _ in range(8) for each in world.cycle().admitted]
    assert [(each.name, each.counts, each.flavors) for each in found] == [
        ("train", {"main": 4}, {"main": {"cpu": "own"}})
    ]


def test_a_copy_goes_on_with_those_whose_turn_is_to_come() -> None:
    world = Crowd(12)
    world.engine.submit(gang("small", "q", cpu=1, created=50.0), 0.0)
    world.cycle()
    twin = world.engine.copy()
    found = [each.name for number in range(6) for each in twin.cycle(2.0 + number, Fences(), epoch=1).admitted]
    assert found == ["small"]
