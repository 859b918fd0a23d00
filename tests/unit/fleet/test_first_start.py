"""A gang that no member has room for waits where its start is booked first."""

import asyncio

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE, waiting_job
from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
LIMITS = {"a": 900, "b": 240, "c": 600}
"""Seconds after which what fills a member has to end."""


async def filled(world: Fleet) -> None:
    """Let a job of its own with a run-time limit take all of each member, whose queue books starts."""
    books = orjson.dumps({"spec": {"queueingStrategy": "Backfill"}})
    for name, side in world.members.items():
        await side.admin.request("PATCH", f"/apis/{KUEUE}/clusterqueues/research", body=books, content_type=MERGE_PATCH)
        job = waiting_job("local", pods=4)
        job["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = str(LIMITS[name])
        await side.cluster.create(job)

    async def full() -> bool:
        return [await side.running() for side in world.members.values()] == [4] * len(world.members)

    await world.until(full)


async def where(world: Fleet) -> str:
    return dispatch_of(await world.hub.get("Job", "train") or {}).member


async def test_it_stays_with_the_member_whose_start_is_first_and_starts_there() -> None:
    async with fleet("a", "b", "c") as world:
        await filled(world)
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await asyncio.sleep(120)
        seen = set()
        for _ in range(90):
            seen.add(await where(world))
            await asyncio.sleep(1)
        assert seen == {"b"}

        async def runs() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(runs, 60)


async def test_it_moves_when_another_frees_before() -> None:
    async with fleet("a", "b", "c") as world:
        await filled(world)
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await asyncio.sleep(120)
        await world.members["c"].delete("Job", "local")

        async def runs() -> bool:
            return await world.places("Job", "train") == ["c"]

        await world.until(runs, 8)
