"""A cluster that two names lead to is one cluster, also for a gang that fails there."""

import asyncio

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_failover import has_failed

pytestmark = pytest.mark.virtual_time


async def test_a_gang_that_failed_is_not_tried_again_in_the_same_cluster_by_its_other_name() -> None:
    async with fleet("a", "b", starts=False) as world:
        world.away = {"b"}
        world.start()
        world.running_hub.join("z", world.members["a"].cluster.api(HUB_ACCOUNT))
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        copies = set()
        async with asyncio.timeout(4 * TOLERATION):
            while not await has_failed(world, "PyTorchJob", "pytorch-test"):
                copies |= {each["metadata"]["uid"] for each in await world.members["a"].all("PyTorchJob")}
                await asyncio.sleep(0.2)
        assert len(copies) == 1, "each eligible cluster once"
