"""A queue that has all it owns leaves room to a gang of another queue that is still below its own, and to none else."""

from tests.unit.core.worlds import World, cohort, gang, group, queue
from webhook.core.model.policy import StopPolicy
from webhook.core.quota.fence import Fence
from webhook.core.reasons.reasons import Code
from webhook.core.scheduler.engine import Engine
from webhook.laboratory.dry_run.one_head import OneHeadEngine


def tree(engine: Engine | None = None, **second: object) -> World:
    """Ten cpu: ``full`` owns 4 and uses 6, ``starved`` owns 4 and uses none, 2 belong to nobody."""
    world = World(
        cohort("root", cpu=2),
        queue("full", 4, cohort="root", guards_borrowing=True),
        queue("starved", 4, cohort="root", guards_borrowing=True, **second),
        engine=engine,
    )
    world.submit(*(gang(f"runs{number}", "full") for number in range(6)))
    while world.cycle():
        pass
    return world


def test_room_gathers_for_the_starved_and_goes_to_others_only_afterwards() -> None:
    world = tree().submit(gang("large", "starved", 5), gang("small", "full"))
    assert world.cycle() == []
    assert world.engine.reason("small").code is Code.BEHIND_STARVED
    assert world.why("small") == (
        "team/large waits in queue starved, which uses 0 of its own 4 cpu, and needs the room; asks for 1 cpu; "
        "queue full has 4, 6 used; it starts after team/large, or once queue full uses less than its own"
    )
    assert world.end("runs0").cycle() == ["large"]
    assert world.end("runs1").cycle() == ["small"]


def test_all_starved_gangs_that_need_the_room_are_named_and_all_that_they_need() -> None:
    """Who ends the one, or adds what it lacks, would be told of the next."""
    owned = group(default={"cpu": 4, "gpu": 4})
    queues = [queue(name, None, owned, cohort="root", guards_borrowing=True) for name in ("a", "b", "full")]
    world = World(cohort("root"), *queues)
    world.submit(*(gang(f"runs{number}", "full", also={"gpu": 1}) for number in range(7)))
    while world.cycle():
        pass
    world.submit(gang("one", "a", 6, also={"gpu": 6}), gang("two", "b", 8), gang("small", "full", also={"gpu": 1}))
    assert world.cycle() == []
    assert world.why("small") == (
        "team/one waits in queue a, which uses 0 of its own 4 cpu and 0 of its own 4 gpu, and needs the room; "
        "team/two waits in queue b, which uses 0 of its own 4 cpu, and needs the room; asks for 1 cpu; "
        "queue full has 4, 7 used; it starts after team/one and team/two, or once queue full uses less than its own"
    )


def test_with_one_head_a_cycle_room_gathers_for_the_starved_too() -> None:
    world = tree(OneHeadEngine()).submit(gang("large", "starved", 5), gang("small", "full"))
    assert world.cycle() == []
    assert world.engine.reason("small").code is Code.BEHIND_STARVED
    assert world.end("runs0").cycle() == ["large"]
    assert world.end("runs1").cycle() == ["small"]


def test_who_is_held_up_is_woken_when_the_starved_gang_goes_away() -> None:
    for engine in (Engine(), OneHeadEngine()):
        world = tree(engine).submit(gang("large", "starved", 5), gang("small", "full"))
        assert world.cycle() == []
        world.engine.withdraw("large")
        assert world.cycle() == ["small"]


def test_who_is_held_up_is_woken_when_the_starved_queue_has_its_own() -> None:
    world = tree().submit(gang("large", "starved", 6), gang("small", "full"))
    assert world.cycle() == []
    world.submit(gang("first", "starved", 4, priority=1))
    assert world.cycle() == ["first"]
    assert world.engine.reason("small").code is Code.WAITING_FOR_QUOTA
    world = tree().submit(gang("large", "starved", 6), gang("small", "full"))
    assert world.cycle() == []
    world.submit(*(gang(name, "starved", 1, priority=1) for name in ("one", "two", "three")))
    # With 3 of its 4 it is starved still; 1 is left, and large could not start beside what the other owns.
    assert world.cycle() == ["one", "three", "two", "small"]


def test_who_is_held_up_is_woken_when_a_fence_keeps_the_starved_gang_out() -> None:
    world = tree().submit(gang("large", "starved", 5, namespace="other"), gang("small", "full"))
    world.engine.set_policy(world.policy, {"team": {}, "other": {}}, 0)
    assert world.cycle() == []
    world.fences.put_fence(Fence("other", "none", {"pods": 0}))
    world.engine.wake_namespace("other")
    assert world.cycle() == ["small"]


def test_a_stopped_queue_is_not_starved() -> None:
    world = tree(stop_policy=StopPolicy.HOLD).submit(gang("large", "starved", 5), gang("small", "full"))
    assert world.cycle() == ["small"]


def test_a_gang_in_back_off_is_not_starved_until_it_is_over() -> None:
    resting = gang("large", "starved", 5, not_before_seconds=9)
    world = tree().submit(resting, gang("small", "full", 2))
    assert world.cycle() == ["small"]
    world.submit(gang("next", "full", priority=1, created=1))
    world.end("small")
    world.end("runs0")
    world.now = 9
    assert world.cycle() == ["large"]
    assert world.engine.reason("next").code is Code.WAITING_FOR_QUOTA


def test_a_gang_that_can_never_start_holds_nobody_up() -> None:
    world = tree().submit(gang("huge", "starved", 11), gang("small", "full"))
    assert world.cycle() == ["small"]


def test_a_gang_that_needs_what_others_own_and_use_holds_nobody_up() -> None:
    world = tree().submit(gang("large", "starved", 7), gang("small", "full"))
    assert world.cycle() == ["small"]


def test_what_is_left_over_may_be_taken_beside_the_starved() -> None:
    world = tree().submit(gang("waits", "starved", 3), gang("small", "full", created=-1))
    assert sorted(world.cycle()) == ["small", "waits"]


def test_a_queue_below_its_own_is_held_up_by_nobody() -> None:
    world = tree().submit(gang("large", "starved", 5))
    world.end("runs0", "runs1", "runs2")
    world.submit(gang("back", "full", priority=1), gang("more", "full", 5, priority=-1))
    assert world.cycle() == ["back", "large"]


def test_queues_that_do_not_yield_are_as_ever() -> None:
    world = World(cohort("root", cpu=2), queue("full", 4, cohort="root"), queue("starved", 4, cohort="root"))
    world.submit(*(gang(f"runs{number}", "full") for number in range(6)))
    assert len(world.cycle()) == 6
    assert world.submit(gang("large", "starved", 5), gang("small", "full")).cycle() == ["small"]


def test_a_gang_that_asks_another_resource_is_not_held_up() -> None:
    world = World(
        cohort("root", cpu=2),
        queue("full", None, group(default={"cpu": 4, "gpu": 0}), cohort="root", guards_borrowing=True),
        queue("starved", None, group(default={"cpu": 4, "gpu": 4}), cohort="root", guards_borrowing=True),
    )
    world.submit(*(gang(f"runs{number}", "full") for number in range(6)), gang("large", "starved", 5))
    assert len(world.cycle()) == 6
    assert world.submit(gang("cards", "full", 0, also={"gpu": 1})).cycle() == ["cards"]


def test_a_queue_is_held_up_only_where_its_side_has_all_that_it_owns() -> None:
    """What it borrows from its own side's other queue is nothing that the starved one is owed."""
    world = World(
        cohort("root"),
        cohort("side", "root"),
        queue("borrows", 2, cohort="side", guards_borrowing=True),
        queue("lends", 4, cohort="side", guards_borrowing=True),
        queue("starved", 4, cohort="root", guards_borrowing=True),
    )
    world.submit(*(gang(f"runs{number}", "borrows") for number in range(4)))
    assert len(world.cycle()) == 4
    assert world.submit(gang("large", "starved", 7), gang("small", "borrows")).cycle() == ["small"]


def test_a_gang_that_started_small_grows_only_when_nobody_starved_needs_the_room() -> None:
    world = tree().submit(gang("own", "starved", 2), gang("grows", "full", pods=4, quorum=2, created=1))
    assert world.cycle() == ["own", "grows"]
    assert world.used("full") == 8
    assert world.submit(gang("large", "starved", 4)).end("runs0").plan().grown == ()
    assert world.end("runs1", "runs2", "runs3").cycle() == ["large"]
    assert [reservation.counts for reservation in world.end("runs4").plan().grown] == [{"main": 3}]
