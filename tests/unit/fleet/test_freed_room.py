"""Room frees in one member while a gang waits in another: how many requests it then waits for, one after another."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, Side, fleet, plain_job
from tests.unit.fleet.test_deaths import slow
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
LOOK_SECONDS = 0.01
REQUEST_SECONDS = 0.05
REQUESTS_MAX = 10.5
"""A look at both members and the record, the offer, the copy, a look and the record again, the grant, the permit: each
look reads the ledger's index and then its pages. Half of one is on its way when room frees."""


async def full(world: Fleet) -> bool:
    return [await side.running() for side in world.members.values()] == [4, 4]


async def without_pods(side: Side, job: str) -> bool:
    return not any(pod.startswith(job) for pod in await side.pods())


async def test_a_gang_that_was_told_no_by_one_member_moves_at_once_to_where_room_frees() -> None:
    async with fleet("a", "b") as world:
        for name in ("first", "second"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="600s"))
        await world.until(lambda: full(world))
        await world.hub.cluster.create(plain_job(pods=4, runtime="600s"))
        await asyncio.sleep(40)
        slow(world, seconds=REQUEST_SECONDS)
        await asyncio.sleep(5)
        waits_in = dispatch_of(await world.hub.get("Job", "train") or {}).member
        ends_in = next(side for name, side in world.members.items() if name != waits_in)
        name = (await ends_in.pods())[0].rpartition("-")[0]
        await world.hub.delete("Job", name)
        while not await without_pods(ends_in, name):
            await asyncio.sleep(LOOK_SECONDS)
        began = asyncio.get_running_loop().time()

        while await world.places("Job", "train") != [ends_in.name]:
            await asyncio.sleep(LOOK_SECONDS)
        waits = (asyncio.get_running_loop().time() - began) / REQUEST_SECONDS
        assert waits <= REQUESTS_MAX, f"{waits:.1f} requests one after another"


async def test_two_members_have_said_no_within_three_seconds_and_one_is_asked_for_room_at_the_cost_of_others() -> None:
    async with fleet("a", "b") as world:
        for name in ("first", "second"):
            await world.hub.cluster.create(plain_job(name, pods=4, runtime="600s"))
        await world.until(lambda: full(world))
        await world.hub.cluster.create(plain_job(pods=4, runtime="600s"))
        await asyncio.sleep(3)
        assert dispatch_of(await world.hub.get("Job", "train") or {}).offer.number == 3
