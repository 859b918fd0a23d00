"""Who is stopped for whom: Kueue's policies, whole gangs, minimal sets, and claims that nobody else may take."""

import pytest

from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.policy import Preemption, PreemptionPolicy, Strategy
from webhook.core.reasons import Code

LOWER = PreemptionPolicy.LOWER_PRIORITY
NEWER = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
ANY = PreemptionPolicy.ANY
WITHIN = Preemption(within_queue=LOWER)
RECLAIM = Preemption(reclaim_within_cohort=ANY)


def stopped(world: World) -> dict[str, tuple[str, str]]:
    """Run a cycle; return who is stopped, by whom and why. Nothing may be admitted."""
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
