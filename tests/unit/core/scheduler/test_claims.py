"""The room that is made for a gang is kept for it, and no longer than that, whoever leads."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.core.leaders import next_leader
from tests.unit.core.worlds import World, gang, policy, queue
from webhook.core.model.gang import Gang
from webhook.core.model.policy import LocalQueue, Preemption, PreemptionPolicy, StopPolicy
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.fence import Fence

LOWER = Preemption(within_queue=PreemptionPolicy.LOWER_PRIORITY)


def crowded(*gangs: Gang, cpu: int = 4) -> tuple[World, dict[str, Gang]]:
    """A queue of 4 cpu in which gangs come one after the other, each after a cycle; and all gangs by name."""
    world = World(queue("q", cpu, preemption=LOWER), queue("other", 2))
    for each in gangs:
        world.submit(each).cycle()
    return world, {each.name: each for each in gangs}


def low(name: str, cpu: int = 2) -> Gang:
    return gang(name, "q", cpu)


def high(name: str, cpu: int, priority: int = 5) -> Gang:
    return gang(name, "q", cpu, priority=priority)


def another_leads(world: World, known: Mapping[str, Gang], *unread: str) -> None:
    world.engine = next_leader(world, known, unread)


def test_a_gang_that_was_stopped_for_it_and_started_elsewhere_is_nobody_to_wait_for() -> None:
    world, known = crowded(low("v"), low("w"), gang("a", "q", pods=4, priority=5))
    assert world.engine.claims()["a"].awaits == ("v", "w")
    world.fences.put_fence(Fence("team", "hard", {"pods": 3 * MILLI}))
    world.end("v").submit(replace(known["v"], queue="other"))
    assert world.cycle() == ["v"]
    assert world.engine.claims()
    world.end("w").submit(low("small"))
    assert world.cycle() == ["small"], "the claim cannot be taken up, and what it waited for has come"
    assert not world.engine.claims()


def test_the_next_leader_keeps_the_room_too_when_one_that_was_stopped_for_it_started_elsewhere() -> None:
    world, known = crowded(low("v"), low("w"), high("a", 4))
    known["v"] = replace(known["v"], queue="other")
    world.end("v").submit(known["v"])
    assert world.cycle() == ["v"]
    world.engine.restore(replace(world.engine.state.allocations.by_uid["w"].reservation, stopping="Preempted"))
    another_leads(world, known)
    world.submit(high("late", 2, priority=9))
    assert world.cycle() == []
    assert world.end("w").cycle() == ["a"]


def test_nobody_is_started_in_the_room_of_a_gang_whose_job_is_not_read_yet_while_his_own_is_not_free() -> None:
    world, known = crowded(*(low(name) for name in "uvw"), high("a", 4, priority=9), high("b", 2), cpu=6)
    assert [set(world.engine.claims()[name].awaits) for name in "ab"] == [{"u", "v"}, {"u", "v", "w"}]
    another_leads(world, known, "a")
    assert world.cycle() == []
    assert world.end("u").cycle() == []
    assert world.submit(known["a"]).end("v").cycle() == ["a"]
    assert world.end("w").cycle() == ["b"]


def test_a_claim_lapses_when_its_local_queue_is_stopped() -> None:
    kueue = queue("q", 4, preemption=LOWER, dialect="kueue")
    local = LocalQueue("team", "local", "q")
    world = World(kueue, local_queues={("team", "local"): local})
    known = {"v": gang("v", "local", 4), "a": gang("a", "local", 4, priority=5)}
    world.submit(known["v"]).cycle()
    world.submit(known["a"]).cycle()
    assert world.engine.claims()
    stopped = {("team", "local"): replace(local, stop_policy=StopPolicy.HOLD)}
    for _ in range(2):
        world.set_policy(kueue, local_queues=stopped)
        assert not world.engine.claims()
        assert "stopped" in world.why("a")
        world.set_policy(kueue, local_queues={("team", "local"): local})
        world.cycle()
        assert world.engine.claims()
    world.policy = policy(kueue, local_queues=stopped)
    another_leads(world, known)
    assert world.cycle() == []
    assert not world.engine.claims()
    assert world.end("v").cycle() == []


@pytest.mark.parametrize("fenced", [False, True])
def test_a_claim_awaits_those_who_are_stopped_for_another_that_has_taken_its_room(fenced: bool) -> None:
    """A ResourceQuota that is full with those who are awaited does not end it."""
    world, _ = crowded(low("v"), gang("w", "q", 2, priority=1), cpu=6)
    if fenced:
        world.fences.put_fence(Fence("team", "hard", {"requests.cpu": 6 * MILLI}))
    for each in (high("a", 4, priority=1), high("b", 2)):
        world.submit(each).cycle()
    assert {name: claim.awaits for name, claim in world.engine.claims().items()} == {"a": ("v",), "b": ("w", "v")}
    assert world.submit(gang("late", "q", 2, priority=1, created=9.0)).end("v").cycle() == ["b"]
    assert world.engine.claims()["a"].awaits == ("w",)
    assert "team/w being stopped" in world.why("a")
    assert world.end("w").cycle() == ["a"]


def test_who_starts_from_a_claim_grows_into_room_that_came_since() -> None:
    world = World(queue("q", 6, preemption=LOWER))
    world.submit(gang("first", "q", cpu=2, priority=9), gang("low", "q", cpu=4, created=1.0)).cycle()
    world.submit(gang("high", "q", cpu=2, pods=3, quorum=1, priority=5, created=2.0))
    assert [victim.uid for victim in world.plan().preempted] == ["low"]
    assert world.engine.claims()["high"].planned.counts == {"main": 2}
    world.end("first")
    assert world.cycle() == []
    world.end("low")
    plan = world.plan()
    assert [each.counts for each in plan.grown] == [{"main": 3}]
    assert world.used("q") == 6
