"""A kind that is listed late makes no job of another kind wait for a member that is down."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job, pytorch_job, suspend
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@pytest.mark.parametrize("late", [False, True])
async def test_jobs_of_other_kinds_go_on_when_a_kind_is_listed_late_while_a_member_is_down(late: bool) -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job("other"))
        await world.hub.patch("PyTorchJob", "other", suspend(pytorch_job, True))
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if late and path.endswith("/v1/pytorchjobs"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(30)
        await world.hub.cluster.create(plain_job("waits", runtime="6000s"))
        await world.hub.patch("Job", "waits", suspend(plain_job, True))
        await asyncio.sleep(30)
        assert not world.running_hub.fleet.swept.due, "each was swept"
        world.links["a"].freeze()
        await asyncio.sleep(30)
        world.own.request = request  # type: ignore[method-assign]
        await asyncio.sleep(120)
        await world.hub.patch("Job", "waits", suspend(plain_job, False))
        await asyncio.sleep(120)
        elsewhere = dispatch_of(await world.hub.get("Job", "waits") or {}).elsewhere
        assert await world.places("Job", "waits") == ["b"], elsewhere
