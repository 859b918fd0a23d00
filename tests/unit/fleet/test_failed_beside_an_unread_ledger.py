"""A job that has failed is not ended because another member's ledger cannot be read at the moment it is looked at."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_failover import has_failed
from webhook.core.notation import names
from webhook.errors import NotFound
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "pytorch-test"
RUNTIME = 60.0
UNREAD = {"is not put together yet": "has a ledger that cannot be read", "is made again": "its ledger is not there"}


def unread(world: Fleet, member: str, how_it_is: str) -> Callable[[], None]:
    """Have the ledger of a member be such; return what ends that."""
    honest = world.links[member].request

    async def request(method: str, path: str, **how: Any) -> bytes:
        if method != "GET" or not path.endswith(f"/configmaps/{names.LEDGER_NAME}"):
            return await honest(method, path, **how)
        if how_it_is == "is made again":
            raise NotFound(404, "NotFound", "it is not there")
        index = orjson.loads(await honest(method, path, **how))
        return orjson.dumps({**index, "data": {"meta": "{"}})

    def mend() -> None:
        world.links[member].request = honest  # type: ignore[method-assign]

    world.links[member].request = request  # type: ignore[method-assign]
    return mend


async def runs_in_a(world: Fleet) -> None:
    """Have a job start that fails after its runtime."""
    await fail_all(world.members["a"])
    await world.hub.cluster.create(failover_policy())
    await world.hub.cluster.create(once(pytorch_job(runtime=f"{RUNTIME:.0f}s")))
    await world.until(lambda: world.places(*JOB))
    assert await world.places(*JOB) == ["a"]


@pytest.mark.parametrize("how_it_is", UNREAD)
async def test_it_is_tried_there_once_the_ledger_can_be_read_again(how_it_is: str) -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        await asyncio.sleep(RUNTIME + TOLERATION - 15)
        mend = unread(world, "b", how_it_is)
        await asyncio.sleep(20)
        mend()
        await asyncio.sleep(20)
        assert not await has_failed(world, *JOB)
        assert await world.places(*JOB) == ["b"]


@pytest.mark.parametrize("how_it_is", UNREAD)
async def test_it_has_failed_after_a_minute_and_says_what_it_waits_for(how_it_is: str) -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        unread(world, "b", how_it_is)
        await asyncio.sleep(RUNTIME + TOLERATION + SILENT_SECONDS - 20)
        waits = dispatch_of(await world.hub.get(*JOB) or {}).waits
        assert waits.endswith("; others may have it, and have no ledger that can be read: b")
        await asyncio.sleep(40)
        assert await has_failed(world, *JOB)


@pytest.mark.parametrize("how_it_is", UNREAD)
async def test_a_job_that_waits_is_told_so_of_such_a_member(how_it_is: str) -> None:
    async with fleet("a") as world:
        await asyncio.sleep(20)
        unread(world, "a", how_it_is)
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(60)
        (said,) = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        assert said.endswith(UNREAD[how_it_is])
