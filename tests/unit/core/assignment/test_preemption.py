"""Which gang is stopped for which: Kueue's policies, whole gangs, minimal sets, claims that no other may take."""

from typing import Any

import pytest

from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.policy import Preemption, PreemptionPolicy, StopPolicy, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.reasons.reasons import Code

LOWER = PreemptionPolicy.LOWER_PRIORITY
NEWER = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
ANY = PreemptionPolicy.ANY
WITHIN = Preemption(within_queue=LOWER)
RECLAIM = Preemption(reclaim_within_cohort=ANY)
FAIR = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))


def stopped(world: World) -> dict[str, tuple[str, str]]:
    """Run a cycle; return which gangs are stopped, for which and why. Nothing may be admitted."""
    plan = world.plan()
    assert plan.admitted == ()
    return {p.uid: (p.by, p.reason) for p in plan.preempted}


def test_a_higher_priority_stops_a_lower_one_of_its_own_queue() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 4))
    world.cycle()
    world.submit(gang("high", "a", 3, priority=1))
    assert stopped(world) == {"low": ("high", "InClusterQueue")}
    assert world.engine.reason("high").code is Code.WAITING_FOR_PREEMPTED
    assert world.cycle() == []
    assert world.used("a") == 4
    assert world.end("low").cycle() == ["high"]


def test_without_a_policy_nobody_is_stopped() -> None:
    world = World(queue("a", 4)).submit(gang("low", "a", 4))
    world.cycle()
    assert stopped(world.submit(gang("high", "a", 3, priority=1))) == {}


@pytest.mark.parametrize(("policy", "expected"), [(LOWER, {}), (NEWER, {"old": ("older", "InClusterQueue")})])
def test_equal_priority_is_stopped_only_if_newer_and_allowed(
    policy: PreemptionPolicy, expected: dict[str, object]
) -> None:
    world = World(queue("a", 1, preemption=Preemption(within_queue=policy))).submit(gang("old", "a", created=5))
    world.cycle()
    assert stopped(world.submit(gang("older", "a", created=4))) == expected


def test_the_lowest_priority_and_the_latest_start_go_first_and_no_more_than_needed() -> None:
    world = World(queue("a", 6, preemption=WITHIN))
    for name, priority in (("mid", 2), ("early", 1), ("late", 1)):
        world.now += 1
        world.submit(gang(name, "a", 2, priority=priority)).cycle()
    assert set(stopped(world.submit(gang("high", "a", 2, priority=9)))) == {"late"}
    assert set(stopped(world.submit(gang("higher", "a", 2, priority=10)))) == {"early"}


def test_victims_that_turn_out_not_to_be_needed_are_spared() -> None:
    world = World(queue("a", 5, preemption=WITHIN))
    world.submit(gang("small", "a", 1)).cycle()
    world.submit(gang("big", "a", 4, priority=1)).cycle()
    assert set(stopped(world.submit(gang("high", "a", 4, priority=9)))) == {"big"}


def test_a_gang_that_cannot_fit_even_so_stops_nobody() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 2), gang("peer", "a", 2, priority=9))
    world.cycle()
    assert stopped(world.submit(gang("high", "a", 3, priority=9, created=1))) == {}


def test_an_owner_takes_back_what_others_borrow_and_no_more() -> None:
    world = World(queue("owner", 4, cohort="c", preemption=RECLAIM), queue("other", 4, cohort="c"))
    world.submit(*(gang(f"g{i}", "other", 2, created=i, priority=i) for i in range(4)))
    assert len(world.cycle()) == 4
    assert stopped(world.submit(gang("mine", "owner", 4))) == {
        "g0": ("mine", "InCohortReclamation"),
        "g1": ("mine", "InCohortReclamation"),
    }
    assert world.end("g0").cycle() == []
    assert world.end("g1").cycle() == ["mine"]


def test_a_queue_within_its_own_quota_is_never_reclaimed_from() -> None:
    world = World(queue("owner", 4, cohort="c", preemption=RECLAIM), queue("other", 4, cohort="c"))
    world.submit(gang("theirs", "other", 4), gang("first", "owner", 4)).cycle()
    assert stopped(world.submit(gang("more", "owner", 2, priority=99, created=1))) == {}


def test_a_queue_is_not_reclaimed_from_once_it_is_within_its_own_quota() -> None:
    rules = Preemption(reclaim_within_cohort=LOWER, borrow_within_cohort=LOWER)
    world = World(queue("a", 2, cohort="c", preemption=rules), queue("b", 4, cohort="c"))
    world.submit(gang("b1", "b", 1), gang("b2", "b", 2), gang("b3", "b", 2)).cycle()
    assert stopped(world.submit(gang("big", "a", 4, priority=5))) == {}, "b1 going leaves b what it owns"


def test_reclaiming_by_lower_priority_spares_equals() -> None:
    lower = Preemption(reclaim_within_cohort=LOWER)
    world = World(queue("owner", 4, cohort="c", preemption=lower), queue("other", 4, cohort="c"))
    world.submit(gang("peer", "other", 5, priority=1), gang("low", "other", 3, priority=0, created=1)).cycle()
    assert stopped(world.submit(gang("mine", "owner", 4, priority=1))) == {}
    assert set(stopped(world.submit(gang("modest", "owner", 3, priority=1)))) == {"low"}


def test_borrowing_while_preempting_spares_priorities_above_the_threshold() -> None:
    rules = Preemption(reclaim_within_cohort=LOWER, borrow_within_cohort=LOWER, max_priority_threshold=5)
    world = World(queue("a", 2, cohort="c", preemption=rules), queue("b", 2, cohort="c"), cohort("c", cpu=4))
    world.submit(gang("six", "b", 4, priority=6), gang("five", "b", 4, priority=5, created=1)).cycle()
    assert stopped(world.submit(gang("mine", "a", 4, priority=9))) == {
        "five": ("mine", "InCohortReclaimWhileBorrowing")
    }


def test_what_is_freed_for_a_preemptor_is_its_own() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 4))
    world.cycle()
    world.submit(gang("high", "a", 4, priority=5)).cycle()
    world.submit(gang("thief", "a", 1, priority=1))
    assert world.cycle() == []
    assert world.end("low").cycle() == ["high"]
    assert world.engine.reason("thief").code is Code.WAITING_FOR_QUOTA


def test_room_left_beside_a_claim_is_used() -> None:
    world = World(queue("a", 5, preemption=WITHIN)).submit(gang("low", "a", 4))
    world.cycle()
    world.submit(gang("high", "a", 3, priority=5)).cycle()
    assert world.submit(gang("small", "a", 1, priority=1)).cycle() == ["small"]
    assert world.used("a") == 5


def test_a_preemptor_that_goes_away_leaves_the_room_to_others() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 4))
    world.cycle()
    world.submit(gang("high", "a", 4, priority=5), gang("next", "a", 1, created=1)).cycle()
    world.engine.withdraw("high")
    assert world.end("low").cycle() == ["next"]


def test_a_second_preemptor_counts_on_room_that_the_first_leaves() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 4))
    world.cycle()
    world.submit(gang("high", "a", 2, priority=5), gang("also", "a", 2, priority=4))
    assert set(stopped(world)) == {"low"}
    assert world.engine.reason("also").code is Code.WAITING_FOR_PREEMPTED
    assert world.end("low").cycle() == ["high", "also"]


def test_a_victim_keeps_its_place_and_does_not_come_back_at_its_preemptors_cost() -> None:
    world = World(queue("owner", 4, cohort="c", preemption=RECLAIM), queue("other", 4, cohort="c", preemption=RECLAIM))
    world.submit(gang("big", "other", 8)).cycle()
    world.submit(gang("mine", "owner", 4))
    assert set(stopped(world)) == {"big"}
    world.submit(gang("big", "other", 8))
    assert world.end("big").cycle() == ["mine"]
    assert not world.plan()
    assert world.engine.position("big") == 0


def test_the_ledger_may_deny_that_a_victim_is_stopping() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 4))
    reservation = world.plan().admitted[0]
    world.submit(gang("high", "a", 4, priority=5))
    assert set(stopped(world)) == {"low"}
    assert not world.plan()
    world.engine.restore(reservation)
    assert set(stopped(world)) == {"low"}


def test_hierarchical_reclaim_reaches_beyond_the_own_cohort() -> None:
    world = World(
        cohort("root"),
        cohort("left", "root", cpu=4),
        cohort("right", "root"),
        queue("a", 0, cohort="left", preemption=RECLAIM),
        queue("b", 0, cohort="right"),
    )
    world.submit(gang("guest", "b", 4)).cycle()
    assert stopped(world.submit(gang("mine", "a", 4))) == {"guest": ("mine", "InCohortReclamation")}


def test_a_strict_head_that_finds_nobody_to_stop_keeps_its_own_quota_but_no_more() -> None:
    rules = Preemption(reclaim_within_cohort=LOWER)
    world = World(
        queue("s", 6, cohort="c", strategy=Strategy.STRICT_FIFO, preemption=rules),
        queue("b", 2, cohort="c"),
        queue("idle", 4, cohort="c"),
    )
    world.submit(gang("runs", "b", 7, priority=9)).cycle()
    assert world.submit(gang("head", "s", 6)).cycle() == []
    assert world.submit(gang("greedy", "b", 5)).cycle() == []
    assert world.submit(gang("modest", "idle", 4, created=1)).cycle() == ["modest"]
    assert world.submit(gang("last", "b", 1, created=1)).cycle() == []
    assert world.end("runs").cycle() == ["head", "last"]
    assert world.engine.reason("greedy").code is Code.WAITING_FOR_QUOTA


def test_a_blocked_strict_head_holds_back_its_own_queue_and_its_own_nominal_quota_never_idle_quota_of_others() -> None:
    world = World(
        queue("s", 4, cohort="c", strategy=Strategy.STRICT_FIFO, preemption=Preemption(reclaim_within_cohort=LOWER)),
        queue("b", 2, cohort="c"),
        queue("idle", 6, cohort="c"),
    )
    world.submit(gang("runs", "s", 2), gang("head", "s", 11, created=1), gang("behind", "s", 1, created=2))
    assert world.cycle() == ["runs"]
    assert world.engine.reason("behind").code is Code.BEHIND_HEAD
    world.submit(*(gang(f"b{number}", "b", 2, created=number) for number in range(6)))
    assert world.cycle() == ["b0", "b1", "b2", "b3", "b4"], "all that is idle"


def test_partial_admission_shrinks_only_when_stopping_others_does_not_help() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low", "a", 2))
    world.cycle()
    world.submit(gang("elastic", "a", 1, pods=4, priority=1, min_count=1))
    assert set(stopped(world)) == {"low"}
    peaceful = World(queue("a", 4)).submit(gang("low", "a", 2), gang("elastic", "a", 1, pods=4, min_count=1, created=1))
    plan = peaceful.plan()
    assert plan.admitted[1].counts == {"main": 2}
    peaceful.end("low")
    assert not peaceful.plan().grown


def test_a_policy_change_elsewhere_leaves_a_claim_alone_and_one_at_hand_decides_it_anew() -> None:
    mine, other = queue("a", 4, preemption=WITHIN), queue("z", 1)
    world = World(mine, other).submit(gang("low", "a", 4))
    world.cycle()
    assert set(stopped(world.submit(gang("high", "a", 4, priority=1)))) == {"low"}
    world.set_policy(mine, queue("z", 2))
    assert not world.plan()
    assert world.engine.reason("high").code is Code.WAITING_FOR_PREEMPTED
    world.set_policy(queue("a", 8, preemption=WITHIN), queue("z", 2))
    assert world.cycle() == ["high"]


STAYS: dict[str, Any] = {"evictable": False}
"""A kind whose pods stay when it is stopped."""


def test_a_gang_whose_pods_would_stay_is_never_chosen() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("stays", "a", 2, **STAYS), gang("goes", "a", 2))
    world.cycle()
    assert stopped(world.submit(gang("high", "a", 2, priority=1))) == {"goes": ("high", "InClusterQueue")}
    assert stopped(world.submit(gang("higher", "a", 2, priority=2))) == {}
    assert world.engine.reason("higher").code is Code.WAITING_FOR_QUOTA


@pytest.mark.parametrize("rules", [EngineSettings(), FAIR], ids=["classical", "fair"])
def test_nor_is_it_reclaimed_from_so_that_nobody_claims_what_will_not_be_free(rules: EngineSettings) -> None:
    world = World(queue("a", 4, cohort="c", preemption=RECLAIM), queue("b", 0, cohort="c"), settings=rules)
    world.submit(gang("stays", "b", 3, **STAYS), gang("goes", "b", 1)).cycle()
    assert stopped(world.submit(gang("mine", "a", 4))) == {}
    assert world.cycle() == []
    assert set(stopped(world.submit(gang("small", "a", 1, created=1)))) == {"goes"}


def test_a_queue_that_drains_keeps_what_cannot_be_stopped_and_promises_its_room_to_nobody() -> None:
    world = World(queue("a", 4), queue("b", 4, cohort="c"))
    world.submit(gang("stays", "a", 4, **STAYS), gang("goes", "b", 4)).cycle()
    drains: dict[str, Any] = {"stop_policy": StopPolicy.HOLD_AND_DRAIN}
    world.set_policy(queue("a", 4, **drains), queue("b", 4, cohort="c", **drains))
    assert [each.uid for each in world.plan().stopped] == ["goes"]


@pytest.mark.parametrize("rules", [EngineSettings(), FAIR], ids=["classical", "fair"])
def test_nothing_is_taken_back_from_a_queue_that_is_not_reclaimable(rules: EngineSettings) -> None:
    own = Preemption(within_queue=LOWER)
    world = World(
        queue("a", 4, cohort="c", preemption=RECLAIM),
        queue("b", 2, cohort="c", preemption=own, reclaimable=False),
        settings=rules,
    )
    world.submit(gang("guest", "b", 6)).cycle()
    assert stopped(world.submit(gang("mine", "a", 4))) == {}
    assert set(stopped(world.submit(gang("better", "b", 2, priority=1)))) == {"guest"}


def test_an_answer_from_before_a_head_held_back_its_own_is_not_used_again_in_the_cycle() -> None:
    world = World(queue("s", 4, cohort="c", strategy=Strategy.STRICT_FIFO), queue("b", 0, cohort="c"))
    world.submit(gang("runs", "b", 2)).cycle()
    assert world.submit(gang("eager", "b", 2, priority=1), gang("head", "s", 4)).cycle() == []
    assert world.end("runs").cycle() == ["head"]


def test_an_answer_from_before_room_was_claimed_is_not_used_again_in_the_cycle() -> None:
    world = World(queue("s", 4, cohort="c", preemption=RECLAIM), queue("b", 0, cohort="c"))
    world.submit(gang("runs", "b", 2)).cycle()
    world.submit(gang("eager", "b", 2, priority=1), gang("owner", "s", 4))
    assert stopped(world) == {"runs": ("owner", "InCohortReclamation")}
    assert world.end("runs").cycle() == ["owner"]


def test_what_a_head_held_back_and_did_not_need_is_free_once_it_starts() -> None:
    world = World(queue("s", 5, cohort="c", strategy=Strategy.STRICT_FIFO), queue("b", 0, cohort="c"))
    world.submit(gang("runs", "s", 2)).cycle()
    assert world.submit(gang("head", "s", 4), gang("other", "b", 1)).cycle() == []
    assert world.end("runs").cycle() == ["head", "other"]


def test_nobody_grows_into_room_that_is_claimed() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("first", "a", 2), gang("second", "a", 1))
    world.cycle()
    assert world.submit(gang("grows", "a", 1, pods=3, quorum=1, evictable=False)).cycle() == ["grows"]
    world.submit(gang("urgent", "a", 3, priority=1))
    assert set(stopped(world)) == {"first", "second"}
    assert not world.end("first").plan(), "2 are free, and promised"
    assert world.end("second").cycle() == ["urgent"]


def test_what_is_free_goes_to_the_more_urgent_of_two_claims_whoever_came_first() -> None:
    world = World(queue("a", 4, preemption=WITHIN)).submit(gang("low1", "a", 2), gang("low2", "a", 2))
    world.cycle()
    (first,) = stopped(world.submit(gang("high", "a", 2, priority=1)))
    (second,) = stopped(world.submit(gang("higher", "a", 2, priority=2)))
    assert world.end(first).cycle() == ["higher"]
    assert world.end(second).cycle() == ["high"]


def test_those_that_may_grow_do_so_one_after_the_other_in_whatever_order_they_came() -> None:
    world = World()
    for cpu, name in enumerate(("g4", "g1", "g5", "g0", "g3", "g2"), start=1):
        world.set_policy(queue("a", cpu))
        assert world.submit(gang(name, "a", 1, pods=2, quorum=1)).cycle() == [name]
    world.set_policy(queue("a", 9))
    assert [(grown.uid, grown.counts) for grown in world.plan().grown] == [(f"g{i}", {"main": 2}) for i in range(3)]


@pytest.mark.parametrize("rules", [EngineSettings(), FAIR], ids=["classical", "fair"])
def test_as_many_are_stopped_as_an_owner_needs(rules: EngineSettings) -> None:
    world = World(queue("a", 5, cohort="c", preemption=RECLAIM), queue("b", 0, cohort="c"), settings=rules)
    world.submit(*(gang(f"b{number}", "b", 1) for number in range(5))).cycle()
    assert len(stopped(world.submit(gang("owner", "a", 5)))) == 5


def test_who_starts_first_and_is_in_an_owners_way_is_admitted_and_stopped_in_one_plan() -> None:
    world = World(queue("a", 2, cohort="c", preemption=RECLAIM), queue("b", 2, cohort="c"))
    plan = world.submit(gang("borrows", "b", 3), gang("large", "a", 4), gang("owner", "a", 2, created=1)).plan()
    assert [reservation.uid for reservation in plan.admitted] == ["borrows"], "while the head of the other queue waits"
    assert [(p.uid, p.by) for p in plan.preempted] == [("borrows", "owner")]
    assert not world.plan(), "its quota is free when it is released, not before"
    assert world.used("c") == 3
    assert world.end("borrows").cycle() == ["owner"]


def test_room_made_in_its_own_queue_lets_a_gang_go_before_those_that_borrow() -> None:
    world = World(
        queue("a", 2, cohort="c", preemption=RECLAIM), queue("b", 2, cohort="c"), queue("d", 0, cohort="c")
    ).submit(gang("runs", "b", 3))
    world.cycle()
    plan = world.submit(gang("borrows", "d", priority=2), gang("own", "b", priority=1), gang("owner", "a", 2)).plan()
    assert [(p.uid, p.by) for p in plan.preempted] == [("runs", "owner")]
    assert [reservation.uid for reservation in plan.admitted] == ["own"]


def test_a_gang_behind_a_preemption_gate_stops_nobody_and_starts_when_there_is_room() -> None:
    world = World(queue("a", 4, preemption=WITHIN), queue("b", 4))
    world.submit(gang("low", "a", 4)).cycle()
    world.submit(gang("gated", "a", 2, priority=9, stops_nobody=True), gang("small", "b"))
    plan = world.plan()
    assert [r.uid for r in plan.admitted] == ["small"]
    assert plan.preempted == ()
    assert world.engine.reason("gated").code is Code.ADMISSION_GATED
    assert world.end("low").cycle() == ["gated"]


def test_a_gang_may_stop_others_as_soon_as_it_need_not_borrow_anything_else() -> None:
    flavor = group(only={"cpu": 2, "memory": 4})
    world = World(queue("a", None, flavor, cohort="c", preemption=RECLAIM), queue("b", None, flavor, cohort="c"))
    memory = PodSet("main", 1, PodPrice({"memory": 4000}))
    world.submit(gang("full", "a", pod_sets=(memory,)), gang("guest", "b", 3)).cycle()
    assert not world.submit(gang("owner", "a", 2, also={"memory": 2})).plan()
    assert [(p.uid, p.by) for p in world.end("full").plan().preempted] == [("guest", "owner")]


def test_what_a_head_held_back_in_a_flavor_that_it_does_not_take_goes_to_others() -> None:
    world = World(
        queue(
            "strict",
            None,
            group(one={"cpu": 4}, two={"cpu": 4}),
            cohort="c",
            strategy=Strategy.STRICT_FIFO,
            preemption=WITHIN,
        ),
        queue("guest", None, group(one={"cpu": 0}), cohort="c"),
    )
    world.submit(gang("first", "strict", 2), gang("second", "strict", 4, created=1)).cycle()
    world.submit(gang("head", "strict", 4, created=2), gang("borrows", "guest", 2, created=3))
    assert world.cycle() == []
    assert sorted(world.end("second").cycle()) == ["borrows", "head"]


def test_who_could_stop_others_that_came_to_borrow_later_is_told_when_its_turn_comes() -> None:
    back = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    owns = {"mine": 4, "other": 4, "third": 0}
    world = World(*(queue(name, n, cohort="all", preemption=back) for name, n in owns.items()), cohort("all"))
    stays = gang("stays", "third", 2, evictable=False)
    world.submit(gang("runs", "mine", 1), gang("large", "other", 4, priority=-1), stays)
    assert sorted(world.cycle()) == ["large", "runs", "stays"]
    world.submit(gang("waits", "mine", 3, priority=9))
    assert world.cycle() == []
    world.submit(gang("borrows", "other", 1))
    assert world.cycle() == ["borrows"]
    assert not world.plan(), "nothing became free"
    reason = world.engine.reason("waits")
    assert reason is not None
    assert reason.code is Code.PENDING_EVALUATION
    assert "could stop team/large" in reason.message
    assert [p.uid for p in world.end("runs").plan().preempted] == ["large"]
