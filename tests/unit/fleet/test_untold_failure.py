"""That and why a job has failed for good is told, however many jobs of others are told that they wait."""

import asyncio

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from tests.unit.fleet.failing import fail_all, once
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_hub_quota import events_of

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("waiting", [0, 300])
async def test_a_job_that_failed_for_good_is_told_so_though_many_of_others_are_told_that_they_wait(
    waiting: int,
) -> None:
    async with fleet("a") as world:
        await fail_all(world.members["a"])
        allowance, now = world.running_hub.fleet.telling_of_waits, asyncio.get_running_loop().time

        async def tell_those_that_wait() -> None:
            """What ``NoMember`` for so many jobs takes: all that is allowed, for a minute."""
            for _ in range(waiting):
                while not allowance.takes(now()):
                    await asyncio.sleep(0.02)

        telling = asyncio.create_task(tell_those_that_wait())
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"))
        await telling
        await asyncio.sleep(600)
        assert len(await events_of(world, "FailedInMember")) == 1
