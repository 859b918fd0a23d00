"""Nothing is offered by rules of before all of them were read, though taking them had taken long."""

import asyncio
from typing import Any

import pytest

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import fleet, plain_job
from tests.unit.fleet.test_hub_quota import with_default_queues, without_a_queue
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_hub_whose_rules_take_long_to_take_offers_nothing_by_those_of_before(seconds: float) -> None:
    async with fleet("a", "b", hub_policy=POLICY, starts=False) as world:
        await with_default_queues(world)
        await world.hub.cluster.create(plain_job("queued", pods=4, runtime="6000s"))
        world.start()
        await world.until(lambda: world.places("Job", "queued"))
        await world.stop()
        await world.hub.cluster.create(without_a_queue("loose"))
        world.start()
        hub, request, loop = world.running_hub, world.own.request, asyncio.get_running_loop()

        async def unread(method: str, path: str, **how: Any) -> bytes:
            if "kueue.x-k8s.io" in path and path.endswith("/localqueues"):
                raise Unavailable(500, "InternalError", "conversion webhook for kueue.x-k8s.io failed")
            return await request(method, path, **how)

        world.own.request = unread  # type: ignore[method-assign]
        while not hub.fleet.unread:
            await asyncio.sleep(0.1)
        world.own.request = request  # type: ignore[method-assign]
        while hub.fleet.unread:
            # Somebody has just changed one of thousands of policies, and to take them took so long.
            hub._rules_rest_until = loop.time() + 9 * seconds
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)
        assert [await side.running() for side in world.members.values()] == [4, 0]
