"""A hub that starts while a member is silent: what comes later is placed, what was there waits for that member."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.fleet.lost import LOST
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def record(world: Fleet, name: str) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", name) or {})


async def restarted(world: Fleet) -> None:
    """Start a hub again, with a job that waits and a member that does not answer."""
    await world.stop()
    await world.hub.cluster.create(plain_job("before", runtime="600s"))
    world.start()
    world.links["b"].freeze()
    await asyncio.sleep(20)


async def test_jobs_that_come_later_go_to_members_that_answer() -> None:
    async with fleet("a", "b") as world:
        await restarted(world)
        await world.hub.cluster.create(plain_job("since", runtime="600s"))

        async def runs() -> bool:
            return await world.places("Job", "since") == ["a"]

        await world.until(runs, 10)


async def test_jobs_from_before_wait_and_say_for_whom() -> None:
    """The record of one may have been lost, with the hub's past, and the silent member may have it."""
    async with fleet("a", "b") as world:
        await restarted(world)
        await asyncio.sleep(60)
        assert (await record(world, "before")).elsewhere == (
            "b does not answer, and may have it from before this hub began",
        )
        assert await world.places("Job", "before") == []
        world.links["b"].thaw()

        async def runs() -> bool:
            return await world.places("Job", "before") == ["a"]

        await world.until(runs, 30)


async def test_once_that_member_is_declared_lost_they_go_too() -> None:
    async with fleet("a", "b") as world:
        await restarted(world)
        note = {"name": LOST, "namespace": names.SYSTEM_NAMESPACE}
        lost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": note, "data": {"b": "2026-11-29T00:00:00Z"}}
        await world.hub.cluster.create(lost)

        async def runs() -> bool:
            return await world.places("Job", "before") == ["a"]

        await world.until(runs, 30)


async def test_what_comes_later_is_not_offered_to_a_member_that_was_not_swept_yet() -> None:
    """Whatever of another time bears its name there is found first."""
    async with fleet("a", "b") as world:
        await asyncio.sleep(5)
        world.running_hub.fleet.swept.make_due(["a"])
        await world.hub.cluster.create(plain_job("since", runtime="600s"))

        async def runs() -> bool:
            return await world.places("Job", "since") == ["b"]

        await world.until(runs, 10)
