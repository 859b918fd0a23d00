"""A gang that may stop others goes where there is room as it is, and stops somebody only where no member has any."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE
from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.base import Pace

pytestmark = pytest.mark.virtual_time
VALUES = {"urgent": 100, "usual": 0}


@asynccontextmanager
async def members(*which: str, pace: Pace | None = None) -> AsyncIterator[Fleet]:
    """Yield a fleet whose members stop jobs of lower priority for others; each has a usual gang that fills it."""
    async with fleet(*which, pace=pace) as world:
        for side in world.members.values():
            for name, value in VALUES.items():
                made = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
                await side.cluster.create({**made, "value": value})
            stops = orjson.dumps({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
            path = f"/apis/{KUEUE}/clusterqueues/research"
            await side.admin.request("PATCH", path, body=stops, content_type=MERGE_PATCH)
        await asyncio.sleep(1)
        yield world


def job(name: str, priority: str = "usual") -> dict[str, Any]:
    """A gang of all that a member's queue has."""
    made = plain_job(name, pods=4, runtime="600s")
    made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = priority
    return made


async def runs(world: Fleet, name: str) -> str:
    """Wait until a gang runs, and return where."""

    async def somewhere() -> bool:
        return len(await world.places("Job", name)) == 1

    await world.until(somewhere, 120)
    return (await world.places("Job", name))[0]


async def test_it_goes_where_there_is_room_and_stops_nobody() -> None:
    async with members("a", "b") as world:
        await world.hub.cluster.create(job("usual"))
        assert await runs(world, "usual") == "a"
        await asyncio.sleep(2)
        before = await world.members["a"].pods()
        await world.hub.cluster.create(job("urgent", "urgent"))
        assert await runs(world, "urgent") == "b"
        await asyncio.sleep(30)
        assert await world.members["a"].pods() == before, "nobody was stopped"


@pytest.mark.parametrize("which", [("a",), ("a", "b"), ("a", "b", "c")])
async def test_where_no_member_has_room_it_stops_somebody_in_one(which: tuple[str, ...]) -> None:
    async with members(*which) as world:
        usual = [f"usual-{name}" for name in which]
        for name in usual:
            await world.hub.cluster.create(job(name))
            await runs(world, name)
        await world.hub.cluster.create(job("urgent", "urgent"))
        where = await runs(world, "urgent")
        await asyncio.sleep(20)
        assert await runs(world, "urgent") == where
        running = [name for name in usual if await world.places("Job", name)]
        assert len(running) == len(which) - 1, "one was stopped, in one member"
