"""A member that answers and does not let one kind be listed is named to the jobs that wait for it."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, plain_job
from webhook.errors import Forbidden
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def test_a_job_that_waits_for_a_member_whose_account_lacks_a_right_is_told_which() -> None:
    """As where the hub was upgraded first, and knows a kind more than ``fleet-member`` has let it list there."""
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(plain_job("before", runtime="6000s"))
        world.start()
        request = world.links["b"].request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if "sparkapplications" in path:
                raise Forbidden(403, "Forbidden", "tutti-hub cannot list sparkapplications")
            return await request(method, path, **how)

        world.links["b"].request = asked  # type: ignore[method-assign]
        await asyncio.sleep(300)
        if await world.places("Job", "before"):
            return
        listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
        said = [
            *(each["message"] for each in listed),
            *dispatch_of(await world.hub.get("Job", "before") or {}).elsewhere,
        ]
        assert any(f" {each}".count(" b ") for each in said), said
