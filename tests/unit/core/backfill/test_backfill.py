"""Backfill: small gangs use the gaps before a large head, and never delay it."""

from collections import Counter
from typing import Any

import pytest

from tests.unit.core.leaders import next_leader
from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.assignment.decision import Decider, Decision
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Cohort, Preemption, PreemptionPolicy, Strategy
from webhook.core.model.settings import EngineSettings
from webhook.core.quota.fence import Fence
from webhook.core.reasons.reasons import Code

BACKFILL = Strategy.BACKFILL


def busy(limit: int | None = 100) -> World:
    """4 of 6 cpu in use until second 100; the head of the queue wants all 6."""
    world = World(queue("a", 6, strategy=BACKFILL)).submit(gang("runs", "a", 4, max_run_seconds=limit))
    world.cycle()
    return world.submit(gang("head", "a", 6, priority=1))


def test_a_gang_that_ends_before_the_head_can_start_passes() -> None:
    world = busy().submit(gang("short", "a", 2, max_run_seconds=100), gang("long", "a", 1, max_run_seconds=101))
    assert world.cycle() == ["short"]
    reason = world.engine.reason("long")
    assert reason is not None
    assert "cpu" in str(reason)
    assert world.end("short").cycle() == []
    assert world.engine.reason("long").code is Code.BEHIND_HEAD
    assert "may start in 100 s" in str(world.engine.reason("long"))


def test_a_gang_without_a_limit_never_passes() -> None:
    world = busy().submit(gang("endless", "a", 1))
    assert world.cycle() == []
    assert world.engine.reason("endless").code is Code.BEHIND_HEAD


def test_nobody_passes_a_head_that_waits_for_an_endless_gang() -> None:
    assert busy(limit=None).submit(gang("short", "a", 1, max_run_seconds=1)).cycle() == []


def test_a_gang_that_fits_beside_the_head_passes_whatever_its_limit() -> None:
    world = World(queue("a", 6, strategy=BACKFILL)).submit(gang("runs", "a", 4, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 5, priority=1), gang("beside", "a", 1, max_run_seconds=1000))
    assert world.cycle() == ["beside"]
    assert world.submit(gang("too-much", "a", 1, max_run_seconds=1000)).cycle() == []


def test_the_head_goes_as_soon_as_it_can_and_the_others_after_it() -> None:
    world = busy().submit(gang("next", "a", 1))
    assert world.cycle() == []
    assert world.end("runs").cycle() == ["head"]
    assert world.end("head").cycle() == ["next"]


def test_a_head_that_can_never_start_is_passed_by_all() -> None:
    world = World(queue("a", 4, strategy=BACKFILL)).submit(gang("giant", "a", 9, priority=1), gang("small", "a", 1))
    assert world.cycle() == ["small"]


def test_a_withdrawn_head_frees_those_that_stood_behind_it() -> None:
    world = busy().submit(gang("endless", "a", 1))
    assert world.cycle() == []
    world.engine.withdraw("head")
    assert world.cycle() == ["endless"]


def test_the_gap_behind_a_fence_is_not_used_up_in_front_of_the_head() -> None:
    world = World(queue("a", 6, strategy=BACKFILL))
    world.fences.put_fence(Fence("team", "hard", {"pods": 2000}))
    world.submit(gang("head", "a", 1, pods=3, priority=1), gang("small", "a", 1, max_run_seconds=5))
    assert world.cycle() == []


def shared(**others: Any) -> World:
    """Queue a owns 2 of 8 cpu and borrows; 6 are in use until second 100 and a's head wants 7."""
    world = World(
        queue("a", 2, cohort="c", strategy=BACKFILL),
        queue("b", 0, cohort="c", **others),
        cohort("c", None, 6),
    )
    world.submit(gang("runs", "b", 6, max_run_seconds=100)).cycle()
    return world.submit(gang("head", "a", 7, priority=1))


def test_nobody_of_another_queue_takes_what_the_head_is_to_borrow() -> None:
    world = shared().submit(
        gang("short", "b", 1, max_run_seconds=100, created=1), gang("long", "b", 2, max_run_seconds=101)
    )
    assert world.cycle() == ["short"]
    assert world.cycle() == []
    world.end("short").submit(gang("endless", "b", 2, created=2))
    assert world.cycle() == []
    for name in ("long", "endless"):
        assert world.engine.reason(name).code is Code.BEHIND_HEAD
        assert "would delay team/head, head of queue a" in world.why(name)
    assert world.end("runs").cycle() == ["head"]
    assert world.end("head").cycle() == ["long", "endless"]


def test_one_that_fits_beside_the_borrowing_head_may_start_for_ever() -> None:
    world = shared()
    world.engine.withdraw("head")
    world.submit(gang("smaller", "a", 5, priority=1), gang("beside", "b", 1), gang("more", "b", 3))
    assert world.cycle() == ["beside"]


def test_who_takes_what_its_own_side_owns_does_not_wait_for_a_borrower() -> None:
    world = World(
        queue("a", 2, cohort="c", strategy=BACKFILL), queue("b", 4, cohort="c"), queue("d", 2, cohort="c")
    ).submit(gang("runs", "d", 4, max_run_seconds=100))
    world.cycle()
    assert world.submit(gang("head", "a", 6, priority=1), gang("owner", "b", 4)).cycle() == ["owner"]


def test_who_goes_before_the_head_does_not_wait_for_it() -> None:
    assert shared().submit(gang("urgent", "b", 2, priority=2)).cycle() == ["urgent"]


def two_heads(**others: Any) -> World:
    """6 of 8 cpu are in use until second 100. Queue b's first gang wants 7 for 50 s, queue a's younger head all 8."""
    world = World(
        queue("a", 2, cohort="c", strategy=BACKFILL), queue("b", 0, cohort="c", **others), cohort("c", None, 6)
    )
    world.submit(gang("runs", "b", 6, max_run_seconds=100)).cycle()
    older = gang("older", "b", 7, priority=1, max_run_seconds=50)
    return world.submit(older, gang("head", "a", 8, priority=1, created=2))


def test_a_gang_that_passes_its_own_head_does_not_delay_the_younger_head_of_another_queue() -> None:
    world = two_heads(strategy=BACKFILL).submit(gang("passer", "b", 1, max_run_seconds=151, priority=1, created=1))
    assert world.cycle() == []
    assert "would delay team/head, head of queue a: which may start in 150 s" in world.why("passer")
    world.submit(gang("short", "b", 1, max_run_seconds=100, priority=1, created=1))
    assert world.cycle() == ["short"]
    world.engine.withdraw("head")
    assert world.cycle() == ["passer"]


def test_who_passes_in_a_best_effort_queue_has_no_right_before_a_younger_head_either() -> None:
    world = two_heads().submit(gang("passer", "b", 1, priority=1, created=1))
    assert world.cycle() == []
    assert "would delay team/head, head of queue a" in world.why("passer")


def test_an_older_head_goes_before_a_younger_one_of_another_queue() -> None:
    world = two_heads(strategy=BACKFILL)
    assert world.end("runs").cycle() == ["older"]


def test_a_gang_that_passes_a_more_urgent_one_goes_before_a_head_of_lower_priority_than_its_own() -> None:
    world = two_heads().submit(gang("urgent", "b", 1, priority=2, created=3), gang("most", "b", 8, priority=3))
    assert world.cycle() == ["urgent"]


def test_who_would_have_others_stopped_and_starts_at_an_unknown_time_has_to_fit_beside_the_head() -> None:
    stops = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    world = World(
        queue("a", 2, cohort="c", strategy=BACKFILL),
        queue("b", 0, cohort="c"),
        queue("d", 1, cohort="c", preemption=stops),
        cohort("c", None, 5),
    )
    world.submit(
        gang("runs", "b", 6, max_run_seconds=100), gang("low", "b", 2, priority=-1, max_run_seconds=900)
    ).cycle()
    world.submit(gang("head", "a", 7, priority=1), gang("stops", "d", 2, max_run_seconds=100, created=1))
    assert not world.plan().preempted


def test_a_head_that_a_fence_holds_up_holds_up_no_other_queue() -> None:
    world = shared()
    world.fences.put_fence(Fence("team", "hard", {"pods": 1000}))
    world.engine.wake_namespace("team")
    assert world.submit(gang("long", "b", 2, namespace="other")).cycle() == ["long"]


def test_a_gang_that_grows_does_not_delay_the_head_either() -> None:
    world = World(queue("a", 6, strategy=BACKFILL))
    world.submit(gang("runs", "a", 1, max_run_seconds=100), gang("grows", "a", 1, pods=5, quorum=3, created=1))
    other = gang("goes", "a", 2)
    world.submit(other)
    assert world.cycle() == ["goes", "runs", "grows"]
    world.submit(gang("head", "a", 3, priority=1))
    assert world.cycle() == []
    assert world.end("goes").plan().grown == ()


def test_under_fair_sharing_shares_decide_between_queues() -> None:
    rules = EngineSettings(fair_sharing=("LessThanOrEqualToFinalShare",))
    nodes = (queue("a", 2, cohort="c", strategy=BACKFILL), queue("b", 2, cohort="c"), cohort("c", None, 4))
    world = World(*nodes, settings=rules).submit(gang("runs", "b", 6, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 7, priority=1), gang("long", "b", 2, max_run_seconds=101))
    assert world.cycle() == ["long"]


def test_a_gang_that_becomes_the_head_keeps_its_queues_own_quota_at_once() -> None:
    world = World(queue("a", 4, cohort="c", strategy=BACKFILL), queue("b", 0, cohort="c"), cohort("c", None, 4))
    world.fences.put_fence(Fence("team", "hard", {"pods": 0}))
    world.submit(gang("endless", "b", 5, namespace="other"), gang("fenced", "a", 1, priority=1))
    assert world.submit(gang("wide", "a", 4, namespace="other")).cycle() == ["endless"]
    world.fences.drop_fence("team", "hard")
    world.engine.wake_namespace("team")
    assert world.submit(gang("borrower", "b", 1, created=1)).cycle() == ["fenced"]


def pool(*queues: str, cpu: int = 8) -> World:
    """Backfill queues that own nothing and borrow ``cpu`` of one cohort."""
    return World(*(queue(name, 0, cohort="c", strategy=BACKFILL) for name in queues), cohort("c", None, cpu))


def test_an_older_gang_that_becomes_the_head_of_its_queue_does_not_put_off_the_head_of_another() -> None:
    world = pool("a", "b").submit(gang("runs", "b", 6, max_run_seconds=100))
    world.cycle()
    world.submit(gang("short", "b", 2, max_run_seconds=50), gang("second", "b", 2, created=1))
    world.submit(gang("head", "a", 8, created=2, max_run_seconds=10))
    assert world.cycle() == ["short"]
    world.now = 50
    assert world.end("short").cycle() == []
    assert "would delay team/head, head of queue a: which may start in 50 s" in world.why("second")
    world.now = 100
    assert world.end("runs").cycle() == ["head"]
    world.now = 110
    assert world.end("head").cycle() == ["second"]


def test_an_older_head_that_could_start_earlier_than_promised_leaves_a_younger_one_its_gap() -> None:
    world = pool("a", "b", cpu=10)
    world.submit(gang("brief", "a", 3, max_run_seconds=20), gang("lasting", "b", 4, max_run_seconds=100)).cycle()
    world.submit(gang("older", "a", 10, created=1, max_run_seconds=40))
    assert world.cycle() == []
    world.submit(gang("younger", "b", 6, created=2, max_run_seconds=50))
    assert world.cycle() == []
    world.now = 10
    # Older could start at 20 now, and younger, which was promised that time, would have to wait for its end.
    assert world.end("lasting").cycle() == ["younger"]
    world.now = 60
    assert world.end("brief", "younger").cycle() == ["older"]


def test_a_newcomer_that_fits_at_once_does_not_put_off_a_head_unless_its_queue_owns_what_it_takes() -> None:
    world = World(
        queue("a", 0, cohort="c", strategy=BACKFILL),
        queue("b", 2, cohort="c", strategy=BACKFILL),
        queue("d", 0, cohort="c", strategy=BACKFILL),
        cohort("c", None, 6),
    ).submit(gang("runs", "a", 4, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 8, created=1, max_run_seconds=10))
    assert world.cycle() == []
    assert world.submit(gang("guest", "d", 2, created=2, max_run_seconds=150)).cycle() == []
    assert "would delay team/head" in world.why("guest")
    assert world.submit(gang("owner", "b", 2, created=3, max_run_seconds=101)).cycle() == ["owner"]


def test_a_head_starts_with_fewer_pods_where_more_would_put_off_another_head() -> None:
    world = pool("a", "b").submit(gang("runs", "a", 4, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 6, created=1), gang("grows", "b", 1, pods=4, quorum=2, created=2))
    assert [r.counts for r in world.plan().admitted] == [{"main": 2}]
    assert world.plan().grown == ()


def test_a_gang_turns_to_another_flavor_where_the_first_one_is_booked() -> None:
    two = group(one={"cpu": 4}, two={"cpu": 4})
    world = World(
        queue("a", None, group(one={"cpu": 0}), cohort="c", strategy=BACKFILL),
        queue("b", None, group(one={"cpu": 0}, two={"cpu": 0}), cohort="c", strategy=BACKFILL),
        Cohort("c", None, (two,)),
    ).submit(gang("runs", "a", 2, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 4, created=1), gang("other", "b", 2, created=2))
    [admitted] = world.plan().admitted
    assert [key.flavor for key in admitted.usage()] == ["two"]


def test_a_gang_that_can_never_start_takes_no_promise_away_though_it_is_more_urgent() -> None:
    world = pool("a", "b").submit(gang("runs", "a", 6, max_run_seconds=100))
    world.cycle()
    assert world.submit(gang("head", "a", 8, created=1, max_run_seconds=10)).cycle() == []
    assert world.submit(gang("other", "b", 7, created=2, max_run_seconds=10)).cycle() == []
    assert world.submit(gang("giant", "a", 9, created=3, priority=5)).cycle() == []
    world.now = 100
    assert world.end("runs").cycle() == ["head"]


def test_a_head_of_higher_priority_is_booked_before_one_that_was_there_first() -> None:
    world = pool("a", "b").submit(gang("runs", "a", 6, max_run_seconds=100))
    world.cycle()
    assert world.submit(gang("head", "a", 8, created=1, max_run_seconds=10)).cycle() == []
    assert world.submit(gang("urgent", "b", 7, created=2, priority=1, max_run_seconds=10)).cycle() == []
    world.now = 100
    assert world.end("runs").cycle() == ["urgent"]


def test_a_head_that_is_late_because_somebody_overstays_still_goes_before_those_booked_after_it() -> None:
    world = pool("a", "b").submit(gang("runs", "a", 6, max_run_seconds=100))
    world.cycle()
    world.submit(gang("head", "a", 8, created=1, max_run_seconds=10), gang("next", "b", 8, created=2))
    assert world.cycle() == []
    world.now = 103
    assert world.cycle() == []
    assert world.end("runs").cycle() == ["head"]


def test_what_is_booked_follows_a_copy_of_the_engine() -> None:
    world = pool("a", "b").submit(gang("runs", "b", 6, max_run_seconds=100))
    world.cycle()
    assert world.submit(gang("head", "a", 8, created=2, max_run_seconds=10)).cycle() == []
    assert world.submit(gang("older", "b", 8, created=1, max_run_seconds=10)).cycle() == []
    world.engine = world.engine.copy()
    world.now = 100
    assert world.end("runs").cycle() == ["head"]


def test_a_head_that_asks_more_than_was_booked_when_another_led_is_booked_anew() -> None:
    known = {"runs": gang("runs", "a", 4, max_run_seconds=100), "head": gang("head", "a", 3, priority=1)}
    world = World(queue("a", 6, strategy=BACKFILL)).submit(known["runs"])
    world.cycle()
    world.submit(known["head"]).cycle()
    known["head"] = gang("head", "a", 6, priority=1)
    world.engine = next_leader(world, known)
    assert world.submit(gang("long", "a", 1, max_run_seconds=1000)).cycle() == []
    assert world.end("runs").cycle() == ["head"]


def test_a_head_that_another_leader_reads_last_keeps_its_turn_and_shares_it_with_nobody() -> None:
    known = {name: gang(name, name, 2, max_run_seconds=9) for name in ("runs", "b", "c", "d")}
    queues = [queue(name, 0, cohort="all", strategy=BACKFILL) for name in sorted(known)]
    world = World(*queues, cohort("all", cpu=2)).submit(known["runs"])
    world.cycle()
    for name in "bc":
        world.submit(known[name]).cycle()
    before = world.engine.bookings()
    world.engine = next_leader(world, known, unread=["c"])
    world.submit(known["d"]).cycle()
    world.submit(known["c"]).cycle()
    after = world.engine.bookings()
    assert {name: after[name] for name in before} == before
    assert after["d"].turn > before["c"].turn > before["b"].turn


def crowd(number: int) -> World:
    """8 cpu of a cohort in use, 7 of them until second 1000; two heads that want more than the eighth, and behind each
    ``number`` gangs of one, each of which asks something else.
    """
    blocked = [queue(name, 0, cohort="all", strategy=BACKFILL) for name in ("a", "b")]
    world = World(cohort("all", cpu=8), queue("others", 0, cohort="all"), *blocked)
    world.submit(gang("long", "others", 7, max_run_seconds=1000), gang("short", "others", 1, max_run_seconds=1000))
    world.cycle()
    world.submit(gang("head-b", "b", 6, created=1.0, max_run_seconds=10))
    world.submit(gang("head-a", "a", 5, created=2.0, max_run_seconds=10))
    for each in range(number):
        world.submit(gang(f"a{each:02}", "a", 1, created=3.0 + each, max_run_seconds=50 + each))
        world.submit(gang(f"b{each:02}", "b", 1, created=3.5 + each, max_run_seconds=50 + each))
    assert world.cycle() == []
    return world


def test_those_behind_several_blocked_heads_go_in_their_order_whichever_head_is_decided_about_first() -> None:
    world = crowd(2)
    assert world.end("short").cycle() == ["a00"]
    assert world.end("a00").cycle() == ["b00"]
    assert world.end("b00").cycle() == ["a01"]
    assert world.end("a01").cycle() == ["b01"]


def test_what_is_freed_is_offered_to_as_many_as_can_use_it_and_not_to_all_behind_a_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, asked = crowd(40), decisions(monkeypatch)
    assert world.end("short").cycle() == ["a00"]
    assert asked.total() < 10


def decisions(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """From now on, how often each gang is decided about."""
    decide, asked = Decider.decide, Counter[str]()

    def count(self: Decider, gang: Gang, *more: Any, **named: Any) -> Decision:
        asked[gang.uid] += 1
        return decide(self, gang, *more, **named)

    monkeypatch.setattr(Decider, "decide", count)
    return asked


def kept_out(number: int) -> World:
    """A head that takes all but one of 10 cpu from second 1000 on, until when 6 are used; the one until second 2000.
    There is room for ``number`` others now and not then.
    """
    queues = [queue("a", 0, cohort="all", strategy=BACKFILL), queue("b", 0, cohort="all"), queue("c", 0, cohort="all")]
    world = World(cohort("all", cpu=10), *queues)
    world.submit(gang("long", "c", 6, max_run_seconds=1000), gang("late", "c", 1, max_run_seconds=2000))
    world.submit(gang("short", "c", 1, max_run_seconds=20)).cycle()
    world.submit(gang("head", "a", 9, created=1.0, max_run_seconds=10))
    for each in range(number):
        world.submit(gang(f"b{each:02}", "b", 1, created=2.0 + each, max_run_seconds=5000 + each))
    assert world.cycle() == []
    return world


def test_those_without_room_beside_a_booking_are_not_asked_again_when_one_ends_that_had_gone_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, asked = kept_out(40), decisions(monkeypatch)
    assert world.end("short").cycle() == []
    assert set(asked) == {"head"}


def test_those_without_room_beside_a_booking_are_not_asked_again_when_there_is_more_room_then_and_not_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = kept_out(0)
    for each in range(40):
        world.submit(gang(f"b{each:02}", "b", 2, created=2.0 + each, max_run_seconds=5000 + each))
    assert world.end("short").cycle() == []
    asked = decisions(monkeypatch)
    assert world.end("late").cycle() == []
    assert set(asked) <= {"head"}


def test_those_without_room_beside_a_booking_are_asked_again_only_when_their_queue_owns_what_they_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(cohort("all", cpu=7), queue("a", 0, cohort="all", strategy=BACKFILL), queue("b", 3, cohort="all"))
    world.submit(*(gang(f"b{each}", "b", 1, max_run_seconds=100) for each in range(4)))
    world.submit(gang("long", "a", 4, max_run_seconds=1000)).cycle()
    world.submit(gang("head", "a", 10, created=1.0, max_run_seconds=10)).cycle()
    world.submit(gang("owner", "b", 2, created=2.0, max_run_seconds=5000))
    assert world.cycle() == []
    asked = decisions(monkeypatch)
    assert world.end("b0").cycle() == []
    assert world.end("b1").cycle() == []
    assert "owner" not in asked
    assert world.end("b2").cycle() == ["owner"]


@pytest.mark.parametrize("strategy", [BACKFILL, Strategy.STRICT_FIFO])
def test_a_head_that_takes_back_what_its_queue_owns_is_decided_about_when_there_is_room_and_not_before(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy
) -> None:
    takes_back = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = World(
        cohort("all", cpu=8),
        queue("a", 2, cohort="all", strategy=strategy, preemption=takes_back),
        queue("b", 0, cohort="all"),
    )
    world.submit(*(gang(f"b{each}", "b", 1) for each in range(10))).cycle()
    world.submit(gang("head", "a", 5, created=1.0))
    assert world.cycle() == []
    asked = decisions(monkeypatch)
    for each in range(4):
        assert world.end(f"b{each}").cycle() == []
    assert not asked
    assert world.end("b4").cycle() == ["head"]


@pytest.mark.parametrize("copied", [False, True])
def test_those_without_room_beside_a_booking_start_when_there_is_more_room_then(copied: bool) -> None:
    world = kept_out(3)
    if copied:
        world.engine = world.engine.copy()
    assert world.end("late").cycle() == ["b00"]
    assert world.engine.reason("b01").code is Code.BEHIND_HEAD


def test_those_without_room_beside_a_booking_start_when_its_queue_does_not_backfill_any_more() -> None:
    world = kept_out(3)
    world.set_policy(cohort("all", cpu=10), *(queue(name, 0, cohort="all") for name in "abc"))
    assert world.cycle() == ["b00", "b01"]


def test_those_without_room_beside_a_booking_start_when_they_may_put_off_another_head_that_takes_it() -> None:
    queues = [queue(name, 0, cohort="all", strategy=BACKFILL) for name in ("a", "c")]
    world = World(cohort("all", cpu=10), queue("b", 0, cohort="all"), queue("d", 0, cohort="all"), *queues)
    world.submit(gang("long", "d", 6, max_run_seconds=1000)).cycle()
    world.submit(gang("head-a", "a", 5, created=1.0, max_run_seconds=10))
    world.submit(gang("head-c", "c", 5, created=2.0, max_run_seconds=10))
    world.submit(gang("small", "b", 1, created=3.0, max_run_seconds=5000))
    assert world.cycle() == []
    world.engine.withdraw("head-c")
    assert world.submit(gang("weak", "c", 5, priority=-1, created=4.0, max_run_seconds=10)).cycle() == ["small"]
