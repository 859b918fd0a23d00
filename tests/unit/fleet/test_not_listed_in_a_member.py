"""A member that answers and does not let one kind be listed keeps no job of another kind waiting."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job
from webhook.errors import Forbidden

pytestmark = pytest.mark.virtual_time


async def test_a_job_from_before_the_hub_started_is_offered_though_a_members_account_lacks_a_right() -> None:
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
        await asyncio.sleep(60)
        assert await world.places("Job", "before") == ["a"]
