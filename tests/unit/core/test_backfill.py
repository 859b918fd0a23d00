"""Backfill: small gangs use the gaps before a large head, and never delay it."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.worlds import World, gang, queue
from webhook.core.backfill import earliest_start
from webhook.core.fences import Fence
from webhook.core.policy import Strategy
from webhook.core.reasons import Code

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


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_earliest_start_of_the_head_never_moves_later(data: st.DataObject) -> None:
    world = World(queue("a", 8, strategy=BACKFILL))
    ends: dict[str, float] = {}
    promised: tuple[str, float] | None = None
    for number in range(data.draw(st.integers(4, 25))):
        limit = data.draw(st.none() | st.integers(1, 20)) if number > 3 else 10
        world.submit(gang(f"g{number:02}", "a", data.draw(st.integers(1, 8)), created=number, max_run_seconds=limit))
        for reservation in world.plan().admitted:
            known = world.engine._state.holdings.by_uid[reservation.uid].gang
            assert known is not None
            if known.max_run_seconds is not None:
                ends[reservation.uid] = world.now + known.max_run_seconds
        lane = world.engine._state.room.lanes["a"]
        head = lane.head()
        if head is not None:
            state = world.engine._state
            state.holdings.withdraw_promise("head of a")
            start = earliest_start(state.holdings, head, world.now)
            if promised is not None and promised[0] == head.head.uid:
                assert start is not None
                assert start[0] <= promised[1]
            promised = None if start is None else (head.head.uid, start[0])
        world.now += data.draw(st.integers(0, 4))
        for uid in sorted(uid for uid, end in ends.items() if end <= world.now):
            del ends[uid]
            world.end(uid)
