"""Counts of who waits and who holds."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.visibility.world import World
from webhook.cluster.queue_counts import QueueCounts, activity
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.model.policy import LocalQueue, Queue, StopPolicy
from webhook.jobs.reading.ended import Ended

pytestmark = pytest.mark.virtual_time


def queue_counts(world: World) -> QueueCounts:
    return QueueCounts(world.view)


async def test_who_has_ended_is_held_back_or_belongs_to_another_is_counted_rightly() -> None:
    world = World()
    world.waits("waiting")
    world.waits("held", held=True)
    world.waits("deleted", deleting=True)
    world.waits("ended", finished="Succeeded")
    world.waits("foreign", managed_by_other=True)
    world.admits(world.waits("running", cpu=1, pods=3))
    counts = queue_counts(world).take()
    tally = counts.queues["vision"]
    assert (tally.pending, tally.reserving, tally.admitted) == (2, 1, 1)
    assert counts.local_queues["team-vision", "jobs"] == tally
    assert counts.queues["speech"].pending == 0
    assert {key.resource: amount for key, amount in tally.usage.items()} == {"cpu": 3000}


async def test_in_a_hub_a_gang_runs_once_a_member_has_it() -> None:
    world = World()
    for number, phase in enumerate(DispatchPhase):
        job = world.waits(f"{phase}", cpu=1, pods=1)
        world.admits(job)
        version = job.resource_version + 2 + number
        world.view.put_job(
            replace(world.view.jobs[job.uid], for_a_member=True, dispatch=phase, resource_version=version)
        )
    tally = queue_counts(world).take().queues["vision"]
    assert (tally.pending, tally.reserving, tally.admitted, tally.awaits_member) == (0, 4, 2, 2)
    for uid, each in list(world.view.ledger.entries.items()):
        if world.view.jobs[uid].name in ("nowhere", "granted"):
            world.stops(each, "Preempted")
    tally = queue_counts(world).take(0).queues["vision"]
    assert (tally.reserving, tally.admitted, tally.awaits_member) == (4, 1, 1)


async def test_pods_that_will_not_run_again_are_not_used() -> None:
    world = World()
    job = world.waits("running", cpu=1, pods=3)
    world.admits(job)
    world.view.put_job(replace(job, suspended=False, ended={"main": Ended(2, 2)}, gives_back=True))
    (amount,) = queue_counts(world).take().queues["vision"].usage.values()
    assert amount == 1000


async def test_a_walk_is_shared_for_a_while() -> None:
    world = World()
    taker = queue_counts(world)
    before = taker.take(0.5)
    world.waits("late")
    assert taker.take(0.5) is before
    await asyncio.sleep(1)
    assert taker.take(0.5).queues["vision"].pending == 1


def test_a_queue_is_active_unless_something_stops_it() -> None:
    queue, local = Queue("q", "kueue"), LocalQueue("a", "l", "q")
    assert activity(queue)[:2] == (True, "Ready")
    assert activity(replace(queue, inactive="no flavor"))[:2] == (False, "Misconfigured")
    missing = replace(queue, inactive="no flavor", inactive_reason="FlavorNotFound")
    assert activity(missing)[:2] == (False, "FlavorNotFound")
    assert activity(replace(queue, stop_policy=StopPolicy.HOLD))[:2] == (False, "Stopped")
    assert activity(queue, local)[:2] == (True, "Ready")
    assert activity(replace(queue, stop_policy=StopPolicy.HOLD), local)[:2] == (False, "ClusterQueueIsInactive")
    assert activity(queue, replace(local, stop_policy=StopPolicy.HOLD_AND_DRAIN))[:2] == (False, "Stopped")
    assert activity(None, local)[0] is False
