"""What a lost member runs twice stops when it is back and its kind can be listed."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from webhook.clock import LoopClock
from webhook.errors import Unavailable
from webhook.fleet import lost
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
SEED = ("PyTorchJob", "pytorch-test")
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_its_gang_is_in_one_member_as_soon_as_its_kind_can_be_listed(
    elsewhere: bool,
) -> None:
    async with fleet("a", "b", watched=False) as world:
        await asyncio.sleep(20)  # until both were swept
        world.links["b"].freeze()
        await world.hub.cluster.create(pytorch_job(runtime="60000s"))
        await world.until(lambda: runs_in(world, "a"))
        world.links["a"].freeze()
        if elsewhere:
            world.links["b"].thaw()
        given_up = lost.give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=False)
        assert [gang async for gang in given_up] == ["PyTorchJob team-a/pytorch-test"]
        if elsewhere:
            await world.until(lambda: runs_in(world, "b"))
        await world.stop()
        failing = True
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if failing and path.endswith("/v1/pytorchjobs"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(120)
        assert await world.places(*SEED) == (["a", "b"] if elsewhere else ["a"]), (
            "nothing is decided without its record"
        )
        failing = False
        await asyncio.sleep(300)
        assert await world.places(*SEED) == (["b"] if elsewhere else ["a"])
        assert world.running_hub.fleet.swept.complete


async def runs_in(world: Fleet, member: str) -> bool:
    return await world.members[member].running() == 3
