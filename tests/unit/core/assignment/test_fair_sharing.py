"""Fair sharing: who goes first, and who is stopped, so that borrowed quota is spread by share."""

import pytest

from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.model.policy import Preemption, PreemptionPolicy, Queue
from webhook.core.model.settings import EngineSettings

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
FAIR = EngineSettings(fair_sharing=(FINAL, INITIAL))
RULES = Preemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)


def third(name: str, **settings: object) -> Queue:
    return queue(name, 3, cohort="all", preemption=RULES, **settings)


def world_of(
    *nodes: Queue, rules: EngineSettings = FAIR, running: dict[str, list[int]] | None = None, priority: int = 0
) -> World:
    """Queues with gangs that run: ``{"a": [1, 2]}`` is a1 of 1 cpu and a2 of 2."""
    world = World(*nodes, settings=rules)
    for name, sizes in (running or {}).items():
        for i, cpu in enumerate(sizes, start=1):
            world.now += 1
            world.submit(gang(f"{name}{i}", name, cpu, priority=priority)).cycle()
    held = set(world.engine.state.allocations.by_uid)
    assert held == {f"{name}{i}" for name, sizes in (running or {}).items() for i in range(1, len(sizes) + 1)}
    return world


def preempted(world: World) -> dict[str, str]:
    return {p.uid: p.reason for p in world.plan().preempted}


def test_own_quota_is_taken_back_from_whoever_borrows_most() -> None:
    world = world_of(third("a"), third("b"), third("c"), running={"a": [1] * 3, "b": [1] * 5, "c": [1]})
    assert preempted(world.submit(gang("mine", "c"))) == {"b5": "InCohortReclamation"}


def test_borrowed_quota_is_taken_from_whoever_borrows_most() -> None:
    world = world_of(third("a"), third("b"), third("c"), running={"a": [1] * 3, "b": [1] * 6})
    assert preempted(world.submit(gang("mine", "a"))) == {"b6": "InCohortFairSharing"}


def test_nobody_is_stopped_when_that_would_only_turn_the_imbalance_around() -> None:
    world = world_of(third("a"), third("b"), third("c"), running={"a": [1] * 4, "b": [1] * 5})
    assert preempted(world.submit(gang("mine", "a"))) == {}
    assert preempted(world.submit(gang("large", "a", 2, priority=-1))) == {}


B1 = {"b1": "InCohortFairSharing"}


@pytest.mark.parametrize(("rules", "expected"), [((FINAL,), {}), ((FINAL, INITIAL), B1), ((INITIAL,), B1)])
def test_a_large_victim_goes_only_by_the_weaker_strategy(rules: tuple[str, ...], expected: dict[str, str]) -> None:
    world = world_of(third("a"), third("b"), third("c"), rules=EngineSettings(rules), running={"a": [2, 1], "b": [6]})
    assert preempted(world.submit(gang("mine", "a", 2))) == expected


def test_nobody_within_its_own_quota_is_stopped_by_others() -> None:
    world = world_of(third("a"), third("b"), third("c"), running={"a": [3], "b": [3], "c": [3]})
    assert preempted(world.submit(gang("mine", "a", 1, priority=9))) == {"a1": "InClusterQueue"}
    assert preempted(world.submit(gang("same", "b", 1))) == {}


def test_a_heavier_weight_may_borrow_more() -> None:
    light, heavy = third("a"), third("b", weight_millis=2000)
    world = world_of(light, heavy, third("c"), running={"a": [1] * 4, "b": [1] * 5})
    assert preempted(world.submit(gang("mine", "b"))) == {}
    other = world_of(third("a"), third("b", weight_millis=4000), third("c"), running={"a": [1] * 5, "b": [1] * 4})
    assert preempted(other.submit(gang("mine", "b"))) == {"a5": "InCohortFairSharing"}


def test_the_weightless_are_stopped_first() -> None:
    world = world_of(
        third("a"),
        third("b"),
        queue("none", 0, cohort="all", weight_millis=0),
        queue("lender", 3, cohort="all"),
        running={"b": [1] * 4, "none": [1, 1], "a": [1] * 3},
    )
    assert preempted(world.submit(gang("mine", "a"))) == {"none2": "InCohortFairSharing"}


def test_shares_are_compared_where_the_branches_part() -> None:
    world = World(
        cohort("root"),
        cohort("left", "root"),
        cohort("right", "root"),
        queue("a", 1, cohort="left", preemption=RULES),
        queue("b", 1, cohort="left", preemption=RULES),
        queue("c", 1, cohort="right", preemption=RULES),
        queue("pool", 6, cohort="root"),
        settings=FAIR,
    )
    for i in range(3):
        world.submit(gang(f"a{i}", "a", created=i)).cycle()
    for i in range(6):
        world.now += 1
        world.submit(gang(f"c{i}", "c", created=i)).cycle()
    assert world.used("root") == 9
    assert set(preempted(world.submit(gang("mine", "b")))) == {"c5"}


def test_admission_goes_to_the_smallest_share_first() -> None:
    world = World(third("a"), third("b"), queue("lender", 4, cohort="all"), settings=FAIR)
    world.submit(*(gang(f"a{i}", "a", created=i, priority=9) for i in range(8)))
    world.submit(*(gang(f"b{i}", "b", created=10 + i) for i in range(8)))
    admitted = world.cycle()
    assert admitted[:6] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert admitted[6:] == ["a3", "b3", "a4", "b4"]


def test_of_equal_shares_priority_then_time_then_uid_decide() -> None:
    world = World(*(third(name) for name in "abcd"), settings=FAIR)
    world.submit(gang("2", "a"), gang("1", "b"), gang("3", "c", created=-1), gang("4", "d", priority=1))
    assert world.cycle() == ["4", "3", "1", "2"]


@pytest.mark.parametrize("names", ["bc", "cb"])
def test_of_two_that_borrow_alike_the_one_with_the_newest_gang_gives(names: str) -> None:
    world = world_of(*map(third, "abc"), running={name: [1, 1, 1, 1] for name in names})
    assert set(preempted(world.submit(gang("mine", "a", 2)))) == {f"{names[1]}4"}


def test_the_newest_of_the_lowest_priority_is_the_one_to_go() -> None:
    world = World(third("a"), third("b"), third("c"), settings=FAIR)
    for i, priority in enumerate((0, 5, 0, 5, 0, 5)):
        world.now += 1
        world.submit(gang(f"b{i}", "b", priority=priority)).cycle()
    world.submit(gang("a", "a", 3)).cycle()
    assert preempted(world.submit(gang("mine", "a", priority=-1))) == {"b4": "InCohortFairSharing"}
