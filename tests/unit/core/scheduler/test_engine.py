"""The engine on the simplest policies: who starts, who waits, and why."""

from dataclasses import replace

import pytest

from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.policy import LabelSelector, LocalQueue, Preemption, PreemptionPolicy, StopPolicy, Strategy
from webhook.core.notation.names import MAX_JOBS
from webhook.core.quota.fence import Fence
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler import cycle
from webhook.core.scheduler.plan import Stopped

STRICT = Strategy.STRICT_FIFO


def test_a_cycle_admits_everything_that_fits() -> None:
    world = World(queue("a", 10)).submit(*(gang(f"g{i}", "a", 2, created=i) for i in range(7)))
    assert world.cycle() == ["g0", "g1", "g2", "g3", "g4"]
    assert world.cycle() == []
    assert world.used("a") == 10


def test_a_gang_that_does_not_fit_whole_takes_nothing() -> None:
    world = World(queue("a", 3)).submit(gang("four", "a", 1, pods=4))
    assert world.cycle() == []
    assert world.used("a") == 0
    assert world.why("four") == (
        "asks for 4 cpu; queue a has 3; it can never start: ask for at most what queue a can hold, or raise its quota"
    )


def test_higher_priority_goes_first_then_earlier_then_smaller_uid() -> None:
    world = World(queue("a", 3)).submit(
        gang("late", "a", created=2), gang("b", "a", created=1), gang("a", "a", created=1), gang("vip", "a", priority=9)
    )
    assert world.cycle() == ["vip", "a", "b"]
    assert [g.name for g in world.engine.waiting("a")] == ["late"]
    assert world.engine.position("late") == 0


def test_the_reason_names_node_numbers_and_holders() -> None:
    world = World(queue("a", 4)).submit(gang("first", "a", 3), gang("second", "a", 2, created=1))
    world.cycle()
    reason = world.engine.reason("second")
    assert reason is not None
    assert (reason.code, reason.where, reason.resource, reason.flavor) == (
        Code.WAITING_FOR_QUOTA,
        "queue a",
        "cpu",
        "default",
    )
    assert (reason.asked, reason.used, reason.limit) == (2000, 3000, 4000)
    assert [(h.gang, h.amount) for h in reason.holders] == [("team/first", 3000)]
    assert "1 more cpu" in reason.help
    assert world.engine.reason("first") is None


def test_best_effort_lets_later_gangs_pass_and_strict_does_not() -> None:
    gangs = (gang("big", "a", 5), gang("small", "a", 1, created=1))
    assert World(queue("a", 4)).submit(*gangs).cycle() == ["small"]
    strict = World(queue("a", 4, strategy=STRICT)).submit(*gangs)
    assert strict.cycle() == []
    reason = strict.engine.reason("small")
    assert reason is not None
    assert reason.code is Code.BEHIND_HEAD
    assert "team/big" in str(reason)


def test_a_withdrawn_strict_head_lets_the_next_go() -> None:
    world = World(queue("a", 4, strategy=STRICT)).submit(gang("big", "a", 5), gang("small", "a", 1, created=1))
    assert world.cycle() == []
    world.engine.withdraw("big")
    assert world.cycle() == ["small"]


def test_a_blocked_strict_head_does_not_hold_back_other_queues() -> None:
    world = World(queue("a", 4, cohort="c", strategy=STRICT), queue("b", 4, cohort="c"))
    world.submit(gang("big", "a", 9), gang("other", "b", 8))
    assert world.cycle() == ["other"]


def test_a_queue_borrows_idle_quota_of_its_cohort_up_to_its_limit() -> None:
    world = World(queue("a", (4, 2), cohort="c"), queue("b", 4, cohort="c"))
    world.submit(*(gang(f"g{i}", "a", 1, created=i) for i in range(8)))
    assert len(world.cycle()) == 6
    assert world.used("c") == 6
    assert world.engine.reason("g6").where == "queue a"


def test_lending_limits_keep_quota_private() -> None:
    world = World(queue("a", 4, cohort="c"), queue("b", (4, None, 1), cohort="c"))
    world.submit(gang("six", "a", 6))
    assert world.cycle() == []
    world.submit(gang("five", "a", 5))
    assert world.cycle() == ["five"]
    assert world.submit(gang("own", "b", 3)).cycle() == ["own"]


def test_cohort_limits_bind_the_whole_subtree() -> None:
    world = World(
        cohort("root", cpu=10),
        cohort("left", "root", cpu=(0, 3)),
        queue("a", 1, cohort="left"),
        queue("b", 1, cohort="left"),
        queue("c", 1, cohort="root"),
    )
    world.submit(gang("six", "a", 6))
    assert world.cycle() == []
    assert world.engine.reason("six").where == "cohort left"
    assert world.submit(gang("five", "b", 5)).cycle() == ["five"]


def test_gangs_that_need_not_borrow_go_before_those_that_must() -> None:
    world = World(queue("a", 2, cohort="c"), queue("b", 4, cohort="c"))
    world.submit(gang("borrower", "a", 3, priority=100), gang("owner", "b", 4))
    assert world.cycle() == ["owner"]


def test_a_gang_that_can_only_be_smaller_now_and_need_not_borrow_any_more_goes_before_those_that_must() -> None:
    world = World(queue("a", 2, cohort="c"), queue("b", 1, cohort="c"), queue("d", 0, cohort="c"))
    world.submit(gang("shrinks", "a", pods=3, min_count=1), gang("owner", "b", created=1), gang("y", "d", priority=1))
    assert [(r.uid, r.counts["main"]) for r in world.plan().admitted] == [("owner", 1), ("shrinks", 2)]


def test_a_freed_queue_wakes_what_waits_in_the_cohort() -> None:
    world = World(queue("a", 2, cohort="c"), queue("b", 2, cohort="c"))
    world.submit(gang("all", "a", 4))
    assert world.cycle() == ["all"]
    world.submit(gang("b1", "b", 2), gang("a1", "a", 2, created=1))
    assert world.cycle() == []
    assert world.end("all").cycle() == ["b1", "a1"]


def test_a_second_flavor_is_taken_when_the_first_is_full() -> None:
    world = World(queue("a", None, group(spot={"cpu": 2}, reserved={"cpu": 4})))
    world.submit(gang("one", "a", 2), gang("two", "a", 3, created=1), gang("three", "a", 2, created=2))
    plan = world.plan()
    assert [(r.name, r.pod_sets[0].flavors["cpu"]) for r in plan.admitted] == [("one", "spot"), ("two", "reserved")]


def test_resource_groups_are_decided_apart_and_each_as_a_whole() -> None:
    world = World(
        queue(
            "a",
            None,
            group(x={"cpu": 2, "memory": 8}, y={"cpu": 8, "memory": 2}),
            group(v100={"gpu": 1}, a100={"gpu": 4}),
        )
    )
    world.submit(gang("g", "a", 2, also={"memory": 4, "gpu": 2}), gang("h", "a", 4, also={"memory": 4}))
    plan = world.plan()
    assert dict(plan.admitted[0].pod_sets[0].flavors) == {"cpu": "x", "memory": "x", "gpu": "a100"}
    assert len(plan.admitted) == 1


def test_a_resource_that_no_group_covers_blocks_unless_the_queue_ignores_it() -> None:
    ask = gang("g", "a", 1, also={"gpu": 1})
    world = World(queue("a", 4)).submit(ask)
    assert world.cycle() == []
    assert world.engine.reason("g").code is Code.NO_MATCHING_FLAVOR
    assert World(queue("a", 4, ignores_undeclared=True)).submit(ask).cycle() == ["g"]


def test_what_only_a_controller_adds_counts_where_it_is_covered_and_blocks_nobody_elsewhere() -> None:
    asks = gang("g", "a", 1, pods=2, also={"memory": 1}, placement={"added": frozenset({"memory"})})
    assert World(queue("a", 4)).submit(asks).cycle() == ["g"]
    world = World(queue("a", 4, group(any={"memory": 1}))).submit(asks)
    assert world.cycle() == []
    assert "2 memory" in world.why("g")


def test_pods_and_max_jobs_are_counted_where_the_queue_limits_them() -> None:
    world = World(queue("a", 100, group(default={"pods": 5}), group(jobs={MAX_JOBS: 2})))
    world.submit(*(gang(f"g{i}", "a", 1, pods=2, created=i) for i in range(3)))
    assert world.cycle() == ["g0", "g1"]
    assert world.used("a", "pods") == 4
    assert world.used("a", MAX_JOBS) == 2
    assert world.engine.reason("g2").resource in ("pods", MAX_JOBS)


def test_fractions_of_gpus_add_up_exactly() -> None:
    def ask(name: str, millis: int) -> Gang:
        return gang(name, "a", pod_sets=(PodSet("main", 1, PodPrice({"gpu": millis})),))

    world = World(queue("a", None, group(default={"gpu": 8})))
    world.submit(ask("a", 4800), ask("b", 2400), ask("c", 800))
    assert world.cycle() == ["a", "b", "c"]
    assert world.used("a", "gpu") == 8
    assert world.submit(ask("d", 1)).cycle() == []


def test_a_fence_holds_a_gang_back_until_it_is_raised() -> None:
    world = World(queue("a", 100))
    world.fences.put_fence(Fence("team", "hard", {"pods": 2000}))
    world.submit(gang("four", "a", 1, pods=4))
    assert world.cycle() == []
    assert world.engine.reason("four").code is Code.FENCED
    world.fences.drop_fence("team", "hard")
    assert world.cycle() == []
    world.engine.wake_namespace("team")
    assert world.cycle() == ["four"]


def test_a_quorum_starts_and_the_rest_follows_when_it_may() -> None:
    world = World(queue("a", 100))
    world.fences.put_fence(Fence("team", "hard", {"pods": 3000}))
    world.submit(gang("four", "a", 1, pods=4, quorum=2))
    plan = world.plan()
    assert plan.admitted[0].counts == {"main": 3}
    assert world.used("a") == 3
    world.fences.put_fence(Fence("team", "hard", {"pods": 9000}))
    world.engine.wake_namespace("team")
    assert world.plan().grown[0].counts == {"main": 4}
    assert world.used("a") == 4
    assert not world.plan()


def test_pods_that_no_fence_holds_back_do_not_wait_in_line_behind_a_gang_that_it_does() -> None:
    """They ask the same of the queue; but a fence meets them one by one, and gets no claim from their gang."""
    world = World(queue("a", 10))
    world.fences.put_fence(Fence("team", "hard", {"pods": 0}))
    world.submit(gang("whole", "a", created=1), gang("loose", "a", created=2, loose_pods=True))
    assert world.cycle() == ["loose"]


def two_sets(needed: int | None, spare: int | None) -> tuple[PodSet, ...]:
    return (PodSet("spare", 2, PodPrice({"cpu": 1000}), spare), PodSet("needed", 3, PodPrice({"cpu": 1000}), needed))


@pytest.mark.parametrize(
    ("sets", "quorum", "least"),
    [
        (two_sets(1, 0), None, {"spare": 0, "needed": 1}),
        (two_sets(0, 0), None, {"spare": 1, "needed": 0}),
        (two_sets(1, 1), 4, {"spare": 2, "needed": 2}),
        (two_sets(1, 1), 5, {"spare": 2, "needed": 3}),
        (two_sets(None, None), 3, {"spare": 2, "needed": 1}),
    ],
)
def test_the_smallest_start_has_what_each_set_and_the_whole_gang_need(
    sets: tuple[PodSet, ...], quorum: int | None, least: dict[str, int]
) -> None:
    assert gang("two", "a", pod_sets=sets, quorum=quorum).least_counts == least


def test_a_set_that_needs_no_pods_grows_when_there_is_room() -> None:
    world = World(queue("a", 3)).submit(gang("two", "a", pod_sets=two_sets(None, 0), quorum=3))
    assert world.plan().admitted[0].counts["needed"] == 3
    world.set_policy(queue("a", 5))
    assert world.plan().grown[0].counts == {"spare": 2, "needed": 3}


def test_a_quorum_that_does_not_fit_starts_nothing() -> None:
    world = World(queue("a", 1)).submit(gang("four", "a", 1, pods=4, quorum=2))
    assert world.cycle() == []


@pytest.mark.parametrize("name", ["a", None])
def test_the_reason_of_a_gang_with_a_quorum_tells_what_its_smallest_start_lacks(name: str | None) -> None:
    world = World(queue("a", 100))
    world.fences.put_fence(Fence("team", "hard", {"pods": 2000}))
    world.submit(gang("four", name, 1, pods=4, quorum=3))
    assert not world.plan()
    reason = world.engine.reason("four")
    assert (reason.code, reason.asked, reason.limit) == (Code.FENCED, 3000, 2000)


def test_a_gang_without_queue_is_bound_by_fences_only() -> None:
    world = World()
    world.fences.put_fence(Fence("team", "hard", {"pods": 2000}))
    assert world.submit(gang("two", None, 99, pods=2), gang("one", None, created=1)).cycle() == ["two"]
    assert world.engine.reason("one").code is Code.FENCED


def test_an_unknown_queue_is_waited_for() -> None:
    world = World().submit(gang("g", "nowhere"))
    assert world.cycle() == []
    assert world.engine.reason("g").code is Code.QUEUE_NOT_FOUND
    world.set_policy(queue("nowhere", 1))
    assert world.cycle() == ["g"]


def test_back_off_is_waited_out_and_blocks_nobody() -> None:
    world = World(queue("a", 1, strategy=STRICT)).submit(
        gang("tired", "a", not_before_seconds=30.0), gang("next", "a", created=1)
    )
    assert world.engine.next_wake(0) == 30
    assert world.cycle() == ["next"]
    reason = world.engine.reason("tired")
    assert (reason.code, reason.message) == (Code.BACKING_OFF, "tries again at 1970-01-01T00:00:30Z")
    world.end("next").now = 30
    assert world.cycle() == ["tired"]
    assert world.engine.next_wake(30) is None


def test_a_queue_drains_in_one_order_however_its_gangs_were_told() -> None:
    def drained(*names: str) -> list[str]:
        before, world = World(queue("a", 4)), World(queue("a", 4))
        admitted = {r.uid: r for r in before.submit(*(gang(name, "a") for name in names)).plan().admitted}
        for name in names:
            world.engine.restore(admitted[name])
        world.set_policy(queue("a", 4, stop_policy=StopPolicy.HOLD_AND_DRAIN))
        return [each.uid for each in world.plan().stopped]

    names = ["3", "1", "4", "2"]
    assert drained(*names) == drained(*reversed(names)) == sorted(names)


def test_a_large_queue_drains_over_several_cycles_which_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "DRAINED_MAX", 2)
    world = World(queue("a", 5)).submit(*(gang(str(number), "a") for number in range(5)))
    assert len(world.cycle()) == 5
    world.set_policy(queue("a", 5, stop_policy=StopPolicy.HOLD_AND_DRAIN))
    for stopped, due in (["0", "1"], 7.0), (["2", "3"], 7.0), (["4"], None), ([], None):
        assert [each.uid for each in world.plan().stopped] == stopped
        assert world.engine.next_wake(7.0) == due


def test_stopped_queues_admit_nothing_and_drain_when_told() -> None:
    world = World(queue("a", 2)).submit(gang("runs", "a"))
    world.cycle()
    world.set_policy(queue("a", 2, stop_policy=StopPolicy.HOLD))
    assert not world.submit(gang("waits", "a")).plan()
    assert world.engine.reason("waits").code is Code.SUSPENDED
    world.set_policy(queue("a", 2, stop_policy=StopPolicy.HOLD_AND_DRAIN))
    assert world.plan().stopped == (Stopped("runs", "ClusterQueueStopped", "queue a is stopped (HoldAndDrain)"),)
    assert not world.plan()


def test_a_stopped_local_queue_or_unselected_namespace_blocks_only_its_own() -> None:
    stopped = LocalQueue("team", "lq", "a", StopPolicy.HOLD)
    world = World(queue("a", 2, strategy=STRICT), local_queues={("team", "lq"): stopped})
    world.submit(gang("held", "lq"), gang("goes", "a", created=1))
    assert world.cycle() == ["goes"]
    picky = World(queue("a", 2, strategy=STRICT, namespace_selector=LabelSelector({"x": "y"})))
    assert picky.submit(gang("g", "a")).cycle() == []
    assert picky.engine.reason("g").code is Code.MISCONFIGURED


def test_nothing_starts_while_admission_is_off() -> None:
    world = World(queue("a", 2)).submit(gang("g", "a"))
    assert world.cycle(admit=False) == []
    assert world.engine.reason("g").code is Code.PENDING_EVALUATION
    assert world.cycle() == ["g"]


def test_a_restored_reservation_is_charged_and_ends_the_wait() -> None:
    world = World(queue("a", 2)).submit(gang("g", "a", 2))
    reservation = world.plan().admitted[0]
    other = World(queue("a", 2)).submit(gang("g", "a", 2), gang("h", "a", 1))
    other.engine.restore(reservation)
    assert other.cycle() == []
    assert other.engine.queue_of("g") == "a"
    assert other.end("g").cycle() == ["h"]


def test_pods_that_will_not_run_again_give_their_quota_back() -> None:
    world = World(queue("a", 4)).submit(gang("g", "a", 1, pods=4), gang("h", "a", 1, created=1))
    reservation = world.plan().admitted[0]
    world.engine.restore(reservation, reclaimed={"main": 1})
    assert world.used("a") == 3
    assert world.cycle() == ["h"]


def test_a_gang_submitted_while_it_still_holds_quota_waits_for_its_release() -> None:
    world = World(queue("a", 1)).submit(gang("g", "a"))
    world.cycle()
    world.submit(gang("g", "a"))
    assert world.cycle() == []
    assert world.end("g").cycle() == ["g"]


def test_what_can_never_fit_is_known_beforehand() -> None:
    world = World(queue("a", (4, 2), cohort="c"), queue("b", 4, cohort="c"))
    assert world.engine.potential(gang("g", "a", 6)) is None
    reason = world.engine.potential(gang("g", "a", 7))
    assert reason is not None
    assert (reason.where, reason.asked, reason.limit) == ("queue a", 7000, 6000)
    assert world.engine.potential(gang("g", "b", 9)).where == "cohort c"


def test_what_can_never_fit_is_asked_of_the_present_policy_and_of_each_shape() -> None:
    asked = [gang(f"{name}-{cpu}-{pods}", name, cpu, pods=pods) for name in "ab" for cpu in (1, 3) for pods in (1, 4)]
    world = World(queue("a", 4), queue("b", 8))
    for nodes in ((queue("a", 12), queue("b", 2)), (queue("a", 2), queue("b", 12)), (queue("b", 6),)):
        for _ in range(2):
            others = World(*world.policy.queues.values())
            assert [world.engine.potential(each) for each in asked] == [others.engine.potential(each) for each in asked]
        world.set_policy(*nodes)


def test_a_node_selector_that_is_no_text_is_asked_about_all_the_same() -> None:
    odd = PodSet("main", 1, PodPrice({"cpu": 1000}), node_selector={"zone": ["a"]})  # type: ignore[dict-item]
    world = World(queue("a", 4))
    asked = replace(gang("g", "a"), pod_sets=(odd,))
    assert world.engine.potential(asked) == world.engine.potential(asked)


def test_a_copy_decides_alike_and_apart() -> None:
    world = World(queue("a", 2)).submit(gang("g", "a"), gang("h", "a", 2, created=1), gang("i", "a", created=2))
    world.cycle()
    twin = world.engine.copy()
    twin.release("g")
    plan = twin.cycle(0, world.fences, 1)
    assert [r.name for r in plan.admitted] == []
    assert twin.usage("a") != world.engine.usage("a")


def test_a_policy_change_decides_anew_only_where_something_changed() -> None:
    nodes = [queue("a", 1, cohort="c"), queue("b", 1, cohort="d")]
    world = World(*nodes).submit(gang("ga", "a", 2), gang("gb", "b", 2))
    assert world.cycle() == []
    rooms = dict(world.engine.state.pending.queues)
    world.set_policy(queue("a", 2, cohort="c"), nodes[1])
    assert world.engine.state.pending.queues["b"] is rooms["b"]
    assert world.engine.state.pending.queues["a"] is not rooms["a"]
    assert world.cycle() == ["ga"]
    world.set_policy(queue("a", 2, cohort="d"), nodes[1])
    assert world.used("d") == 2
    assert world.end("ga").cycle() == ["gb"]


def test_a_lowered_quota_stops_admission_in_the_whole_cohort_until_it_is_paid_back() -> None:
    world = World(queue("a", 4, cohort="c"), queue("b", 2, cohort="c")).submit(gang("big", "a", 4))
    world.cycle()
    world.set_policy(queue("a", 1, cohort="c"), queue("b", 2, cohort="c"))
    assert world.submit(gang("small", "b", 1)).cycle() == []
    assert world.engine.reason("small").where == "cohort c"
    assert world.end("big").cycle() == ["small"]


def test_a_namespace_may_be_selected_later() -> None:
    picky = queue("a", 1, namespace_selector=LabelSelector({"team": "blue"}))
    world = World(picky).submit(gang("g", "a"))
    assert world.cycle() == []
    world.engine.set_policy(world.policy, {"team": {"team": "blue"}}, world.now)
    assert world.cycle() == ["g"]


def test_gangs_follow_their_local_queue_to_another_queue() -> None:
    def lq(target: str) -> dict[tuple[str, str], LocalQueue]:
        return {("team", "lq"): LocalQueue("team", "lq", target)}

    world = World(queue("a", 0), queue("b", 1), local_queues=lq("a")).submit(gang("g", "lq"))
    assert world.cycle() == []
    assert world.engine.queue_of("g") == "a"
    world.set_policy(queue("a", 0), queue("b", 1), local_queues=lq("b"))
    assert world.cycle() == ["g"]
    assert world.engine.queue_of("g") == "b"


def test_a_gang_whose_quorum_fits_is_woken_though_all_of_it_never_will() -> None:
    world = World(queue("a", 4)).submit(gang("runs", "a", 4, namespace="other"))
    world.cycle()
    world.submit(gang("large", "a", 1, pods=6, quorum=3))
    assert world.cycle() == []
    world.engine.release("runs")
    assert world.cycle() == ["large"]
    assert world.used("a") == 4


def test_the_reason_names_the_node_where_most_is_missing() -> None:
    """What the queue itself could still borrow is no use while the cohort has nothing left to lend."""
    world = World(cohort("org"), queue("a", (10, 5), cohort="org"), queue("b", (10, None, 4), cohort="org"))
    world.submit(gang("own", "b", 8), gang("runs", "a", 12), gang("late", "a", 7, created=1))
    assert world.cycle() == ["own", "runs"]
    reason = world.engine.reason("late")
    assert reason is not None
    assert (reason.where, reason.used, reason.limit) == ("cohort org", 14_000, 14_000)
    assert "7 more cpu" in reason.help


def test_room_that_is_free_and_kept_is_said_to_be_kept() -> None:
    lower = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("a", 8, preemption=lower)).submit(gang("low", "a", 5))
    assert world.cycle() == ["low"]
    world.submit(gang("high", "a", 8, priority=1, created=1), gang("small", "a", 1, created=2))
    assert world.cycle() == []
    reason = world.engine.reason("small")
    assert reason is not None
    assert "what is free is kept for gangs ahead of it" in reason.help
