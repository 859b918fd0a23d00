"""That a member was swept is said of one cluster: not of another to which its name led, or leads by now."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Side, fleet, plain_job
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def test_after_a_set_back_none_was_swept_to_which_a_name_led_before() -> None:
    async with fleet("a") as world, fleet("b", "c") as others:
        await asyncio.sleep(5)
        shared = world.running_hub.fleet
        (before,) = shared.swept.clusters["a"]
        shared.members["a"].reach(others.members["c"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(20)
        assert len(shared.swept.clusters["a"]) == 2
        shared.begin_again(1)
        await asyncio.sleep(20)
        (now,) = shared.swept.clusters["a"]
        assert shared.swept.is_done("a", now)
        assert not shared.swept.is_done("a", before)


async def test_an_offered_copy_in_a_cluster_that_was_not_swept_by_that_name_is_written_to() -> None:
    """A permit from another time may be on its way to it, whose write is bound to the version before."""
    async with fleet("a", "c") as world:
        for side in world.members.values():
            await fill(side)
        await world.hub.cluster.create(plain_job("train", runtime="600s"))

        async def is_in_c() -> bool:
            found = dispatch_of(await world.hub.get("Job", "train") or {})
            return (found.phase, found.member) == (DispatchPhase.OFFERED, "c")

        await world.until(is_in_c)
        await asyncio.sleep(1)
        assert await is_in_c()
        link, written = world.members["c"].cluster.api(HUB_ACCOUNT), list[bytes]()
        request = link.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/jobs/train"):
                written.append(how["body"])
            return await request(method, path, **how)

        link.request = asked  # type: ignore[method-assign]
        world.running_hub.leave("c")
        world.running_hub.fleet.members["a"].reach(link)
        await asyncio.sleep(15)
        assert any(b'"none ' in each for each in written)


async def fill(side: Side) -> None:
    """Let a member have no room for 100 s."""
    local = plain_job("local", pods=4, runtime="100s")
    del local["spec"]["managedBy"]
    local["spec"]["suspend"] = True
    await side.cluster.create(local)
    await asyncio.sleep(5)
