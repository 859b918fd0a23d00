"""A hub that cannot read its queues does not take them for none."""

import asyncio
from typing import Any

import pytest

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import fleet, plain_job
from tests.unit.fleet.test_hub_quota import with_default_queues, without_a_queue
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hub_that_starts_while_its_queues_cannot_be_read_offers_no_job_past_its_quota(fails: bool) -> None:
    async with fleet("a", "b", hub_policy=POLICY, starts=False) as world:
        await with_default_queues(world)
        await world.hub.cluster.create(plain_job("queued", pods=4, runtime="6000s"))
        world.start()
        await world.until(lambda: world.places("Job", "queued"))
        await world.stop()
        await world.hub.cluster.create(without_a_queue("loose"))
        world.start()
        request = world.own.request

        async def unread(method: str, path: str, **how: Any) -> bytes:
            if "kueue.x-k8s.io" in path:
                raise Unavailable(500, "InternalError", "conversion webhook for kueue.x-k8s.io failed")
            return await request(method, path, **how)

        if fails:
            world.own.request = unread  # type: ignore[method-assign]
        await asyncio.sleep(5)
        world.own.request = request  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert [await side.running() for side in world.members.values()] == [4, 0]
