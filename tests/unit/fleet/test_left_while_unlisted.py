"""A member that is taken away before a kind that was listed late was looked for in it makes no job wait for it."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("late", [False, True])
async def test_jobs_of_a_kind_that_was_listed_late_do_not_wait_for_a_member_that_was_taken_away(late: bool) -> None:
    async with fleet("a", "b") as world:
        request = world.own.request
        failing = late

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if failing and path.endswith("/v1/pytorchjobs"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert not world.running_hub.fleet.swept.due, "each was swept"
        world.links["b"].freeze()
        await asyncio.sleep(30)
        failing = False
        await asyncio.sleep(60)
        # Its cluster is gone for good and had no gangs: its kubeconfig is taken away.
        world.running_hub.leave("b")
        await world.hub.cluster.create(pytorch_job("train", runtime="6000s"))
        await asyncio.sleep(600)
        elsewhere = dispatch_of(await world.hub.get("PyTorchJob", "train") or {}).elsewhere
        assert await world.places("PyTorchJob", "train") == ["a"], elsewhere
