"""Kueue's cycle: one head of each queue, all nominated against one state, decided about one after the other."""

from tests.unit.core.worlds import World, gang, group, queue
from webhook.core.model.policy import Fungibility, Preemption, PreemptionPolicy, SearchPolicy, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.laboratory.dry_run.one_head import OneHeadEngine

FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
LOWER, ANY = PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY
STRICT = Strategy.STRICT_FIFO


def test_a_cycle_admits_one_gang_of_each_queue() -> None:
    world = World(queue("a", 4), queue("b", 4), engine=OneHeadEngine())
    world.submit(*(gang(f"{name}{i}", name, created=i) for name in "ab" for i in range(2)))
    assert world.cycle() == ["a0", "b0"]
    assert world.cycle() == ["a1", "b1"]
    assert world.cycle() == []


def test_of_two_heads_that_fit_alone_only_the_first_is_admitted() -> None:
    world = World(queue("a", 2, cohort="c"), queue("b", 2, cohort="c"), engine=OneHeadEngine())
    world.submit(gang("borrows", "a", 3, priority=9), gang("owns", "b", 2))
    assert world.cycle() == ["owns"]
    assert world.cycle() == []


def test_a_best_effort_head_steps_aside_and_a_strict_one_does_not() -> None:
    for strategy, expected in ((Strategy.BEST_EFFORT_FIFO, ["small"]), (STRICT, [])):
        world = World(queue("a", 2, strategy=strategy), engine=OneHeadEngine())
        world.submit(gang("big", "a", 3), gang("small", "a", created=1))
        assert world.cycle() == []
        assert world.cycle() == expected


def test_a_preemptor_waits_for_a_later_cycle_and_its_victims_keep_their_quota_until_then() -> None:
    world = World(queue("a", 2, preemption=Preemption(within_queue=LOWER)), engine=OneHeadEngine())
    world.submit(gang("low", "a", 2)).cycle()
    plan = world.submit(gang("high", "a", 2, priority=1)).plan()
    assert [(p.uid, p.by, p.reason) for p in plan.preempted] == [("low", "high", "InClusterQueue")]
    assert not world.plan()
    assert world.end("low").cycle() == ["high"]


def test_two_heads_do_not_count_on_the_same_victim() -> None:
    rules = Preemption(reclaim_within_cohort=ANY)
    world = World(
        queue("a", 2, cohort="c", preemption=rules),
        queue("b", 2, cohort="c", preemption=rules),
        queue("guest", 0, cohort="c"),
        engine=OneHeadEngine(),
    )
    world.submit(gang("g1", "guest", 4)).cycle()
    world.submit(gang("mine", "a", 2), gang("yours", "b", 2, created=1))
    assert [(p.uid, p.by) for p in world.plan().preempted] == [("g1", "mine")]
    assert world.end("g1").cycle() == ["mine", "yours"]


def test_a_head_that_finds_nobody_to_stop_reserves_its_quota_within_the_cycle() -> None:
    def world(reclaim: PreemptionPolicy) -> World:
        made = World(
            queue("a", 4, cohort="c", preemption=Preemption(reclaim_within_cohort=reclaim)),
            queue("b", 0, cohort="c"),
            queue("d", 2, cohort="c"),
            engine=OneHeadEngine(),
        )
        made.submit(gang("held", "d", 4, priority=5)).cycle()
        return made.submit(gang("waits", "a", 4, priority=2), gang("borrows", "b", 2))

    assert world(LOWER).cycle() == []
    held = world(LOWER)
    held.cycle()
    assert held.cycle() == ["borrows"]


def test_flavors_that_were_not_tried_are_tried_in_the_next_cycle() -> None:
    rules = Preemption(within_queue=LOWER)
    fungibility = Fungibility(when_can_preempt=SearchPolicy.MAY_STOP_SEARCH)
    world = World(
        queue("a", None, group(one={"cpu": 4}, two={"cpu": 4}), cohort="c", fungibility=fungibility, preemption=rules),
        queue("b", None, group(one={"cpu": 0}), cohort="c", preemption=Preemption(reclaim_within_cohort=ANY)),
        engine=OneHeadEngine(),
    )
    world.submit(gang("low", "a", 4)).cycle()
    plan = world.submit(gang("high", "a", 2, priority=1)).plan()
    assert {p.uid for p in plan.preempted} == {"low"}


def test_shares_decide_the_order_under_fair_sharing() -> None:
    queues = queue("a", 1, cohort="c"), queue("b", 1, cohort="c"), queue("pool", 2, cohort="c")
    world = World(*queues, engine=OneHeadEngine(FAIR))
    world.submit(gang("a1", "a", 2)).cycle()
    world.submit(gang("a2", "a", 2, priority=9), gang("b1", "b", 2))
    assert world.cycle() == ["b1"]


def test_both_kinds_of_cycle_end_alike_where_nobody_is_stopped() -> None:
    nodes = (queue("a", 4, cohort="c"), queue("b", (2, 1), cohort="c"), queue("d", 2, cohort="c", strategy=STRICT))
    gangs = [gang(f"{q}{i}", q, 1 + i % 3, priority=i % 2, created=i) for q in "abd" for i in range(4)]
    single, full = World(*nodes, engine=OneHeadEngine()).submit(*gangs), World(*nodes).submit(*gangs)
    admitted: set[str] = set()
    while step := single.cycle():
        admitted |= set(step)
    assert sum(g.requests()["cpu"] for g in gangs if g.uid in admitted) == 8000
    together = set(full.cycle())
    assert sum(g.requests()["cpu"] for g in gangs if g.uid in together) == 8000
