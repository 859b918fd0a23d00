"""A follower answers as the leader would, from the ledger and what waits: it decides nothing and sets no gang aside."""

from tests.unit.core.leaders import next_leader, stored
from tests.unit.core.worlds import World, cohort, gang, queue
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Preemption, PreemptionPolicy, Strategy
from webhook.core.quota.fence import Fence
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine


def follower(world: World, *known: Gang) -> Engine:
    """Return the engine of a replica that has read the ledger of ``world`` and all jobs, and does not lead."""
    engine = next_leader(world, {each.uid: each for each in known})
    engine.follow(world.now, world.fences, stored(world.engine).claims)
    return engine


def test_a_follower_names_the_resource_quota_that_is_full() -> None:
    running, late = gang("running", "a", pods=3), gang("late", "a", pods=2, created=1)
    world = World(queue("a", 10))
    world.fences.put_fence(Fence("team", "rq", {"pods": 4000}))
    assert world.submit(running, late).cycle() == ["running"]
    reason = follower(world, running, late).reason("late")
    assert reason is not None
    assert (reason.code, reason.where, reason.used) == (Code.FENCED, "ResourceQuota team/rq", 3000)
    assert reason == world.engine.reason("late")


def test_a_follower_names_the_head_of_a_strict_queue() -> None:
    first, big, small = gang("first", "a", 3), gang("big", "a", 4, created=1), gang("small", "a", 1, created=2)
    world = World(queue("a", 4, strategy=Strategy.STRICT_FIFO))
    assert world.submit(first, big, small).cycle() == ["first"]
    follows = follower(world, first, big, small)
    for name in ("big", "small"):
        assert follows.reason(name) == world.engine.reason(name)
    assert "its head is team/big" in str(follows.reason("small"))


def test_a_follower_names_who_is_being_stopped_for_a_claim() -> None:
    owner = queue("owner", 4, cohort="all", preemption=Preemption(reclaim_within_cohort=PreemptionPolicy.ANY))
    world = World(cohort("all"), owner, queue("guest", 4, cohort="all"))
    guest, claims = gang("guest", "guest", 8), gang("claims", "owner", 4, created=1)
    assert world.submit(guest).cycle() == ["guest"]
    assert world.submit(claims).cycle() == []
    reason = follower(world, guest, claims).reason("claims")
    assert reason is not None
    assert reason.code is Code.WAITING_FOR_PREEMPTED
    assert reason == world.engine.reason("claims")


def test_a_follower_notices_that_a_back_off_is_over() -> None:
    running, failed = gang("running", "a", 4), gang("failed", "a", 4, created=1, not_before_seconds=50.0)
    world = World(queue("a", 4))
    assert world.submit(running, failed).cycle() == ["running"]
    follows = follower(world, running, failed)
    assert (reason := follows.reason("failed")) is not None
    assert reason.code is Code.BACKING_OFF
    follows.follow(50, world.fences, {})
    assert (reason := follows.reason("failed")) is not None
    assert reason.code is Code.WAITING_FOR_QUOTA


def test_a_follower_does_not_remember_who_might_have_put_off_a_head() -> None:
    world = World(cohort("all"), queue("b", 4, cohort="all", strategy=Strategy.BACKFILL), queue("o", 4, cohort="all"))
    run, head = gang("run", "b", 7, max_run_seconds=1000), gang("head", "b", 8, created=1, max_run_seconds=100)
    assert world.submit(run).cycle() == ["run"]
    assert world.submit(head).cycle() == []
    follows = world.engine
    for number in range(10):
        asks = gang(f"g{number}", "o", created=2.0 + number)
        follows.submit(asks, world.now)
        follows.follow(world.now, world.fences, {})
        assert str(follows.reason(asks.uid)) == "has room; the next cycle decides"
        assert follows.state.backfill.put_off.keys() <= {asks.uid}
        follows.withdraw(asks.uid)
