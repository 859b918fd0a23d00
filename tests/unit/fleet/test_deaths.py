"""A hub dies at one of its writes about a gang, and the next one goes on: how soon, where each request takes long."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.e2e.controlplane.dying_hub import STEPS, WHEN, step_of
from tests.unit.fleet.clusters import Fleet, fleet, plain_job

pytestmark = pytest.mark.virtual_time
REQUEST_SECONDS = 0.3
CONVERGES_SECONDS = 10.0
"""With the two seconds that the gang runs."""

Ask = Callable[..., Awaitable[bytes]]


def slow(world: Fleet, step: str = "", when: str = "", *, seconds: float = REQUEST_SECONDS) -> None:
    """Have each request of the hub that runs take its time, and the hub die just before or after one of its writes."""

    def asked(ask: Ask) -> Ask:
        async def request(method: str, path: str, **how: Any) -> bytes:
            await asyncio.sleep(seconds / 2)
            dies = method != "GET" and step_of(method, path, how.get("body") or b"") == step != ""
            if dies and when == "before":
                world.kill()
            answer = await ask(method, path, **how)
            if dies:
                world.kill()
            await asyncio.sleep(seconds / 2)
            return answer

        return request

    for api in (world.own, *world.links.values()):
        api.request = asked(api.request)  # type: ignore[method-assign]


@pytest.mark.parametrize(("step", "when"), list(itertools.product(STEPS, WHEN)))
async def test_a_gang_ends_soon_though_its_hub_died_at_one_of_its_writes(step: str, when: str) -> None:
    async with fleet("a", "b", starts=False) as world:
        world.start()
        slow(world, step, when)
        await world.hub.cluster.create(plain_job(runtime="2s"))

        async def dead() -> bool:
            return world.dead

        await world.until(dead)
        world.start()
        slow(world)

        async def over() -> bool:
            return await world.over("Job", "train") and await world.empty("Job")

        began = asyncio.get_running_loop().time()
        await world.until(over)
        took = asyncio.get_running_loop().time() - began
        assert took <= CONVERGES_SECONDS, f"{took:.1f} s"
