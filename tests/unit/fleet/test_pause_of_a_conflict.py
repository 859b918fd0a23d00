"""A member that refused a job's permit once pauses for half a minute, however often the hub's own write is outrun."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job
from tests.unit.fleet.test_kept_there import REFUSALS, refuse
from webhook.errors import Conflict, Unavailable

pytestmark = pytest.mark.virtual_time
OUTRUN = Conflict(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
DOWN = Unavailable(0, "ConnectionFailed", "connection refused")


@pytest.mark.parametrize(("error", "seconds"), [(OUTRUN, 0), (OUTRUN, 25), (DOWN, 25)], ids=["never", "409", "down"])
async def test_what_the_hub_cannot_write_itself_makes_no_pause_of_a_member_longer(
    error: Exception, seconds: float
) -> None:
    async with fleet("a") as world:
        member, own = world.links["a"], world.own
        honest, request = member.request, world.own.request
        refuse(world, "PATCH", REFUSALS[0])
        failing = float("inf")

        async def asked(method: str, path: str, *, body: bytes = b"", **how: Any) -> bytes:
            nonlocal failing
            now = asyncio.get_running_loop().time()
            if method == "PATCH" and path.endswith("/jobs/train") and b"refused its permit" in body:
                failing = min(failing, now)
                if now < failing + seconds:
                    raise error
            return await request(method, path, body=body, **how)

        own.request = asked  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        while failing == float("inf"):
            await asyncio.sleep(1)
        member.request = honest  # type: ignore[method-assign]
        await asyncio.sleep(seconds + 60)
        pauses = next(iter(world.running_hub._jobs.values())).choice.pauses._pauses
        assert [each.seconds for each in pauses.values()] == [30], "it has refused once"
        assert await world.places("Job", "train") == ["a"]
