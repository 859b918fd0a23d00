"""A job that is created after its kind was listed again waits for no member that it cannot be in."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from tests.unit.fleet.test_swept_but_for_one_kind import without
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("fault", ["silent", "lists it not"])
async def test_what_comes_after_a_kind_was_listed_late_waits_for_no_member(late: bool, fault: str) -> None:
    async with fleet("a", "b") as world:
        request, failing = world.own.request, late

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if failing and path.endswith("/v1/pytorchjobs"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert not world.running_hub.fleet.swept.due, "each was swept"
        if fault == "silent":
            world.links["b"].freeze()
        else:
            without(world, "b", "pytorchjobs")
        await asyncio.sleep(20)
        failing = False
        await asyncio.sleep(120)
        await world.hub.cluster.create(pytorch_job("train", workers=1, runtime="6000s"))
        await asyncio.sleep(600)
        elsewhere = dispatch_of(await world.hub.get("PyTorchJob", "train") or {}).elsewhere
        assert await world.places("PyTorchJob", "train") == ["a"], elsewhere
