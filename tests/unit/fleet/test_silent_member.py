"""A member that has gangs and does not answer: the gangs stay, and each says which member it is and what to do."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time


async def told(world: Fleet) -> list[str]:
    listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
    return [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "MemberSilent"]


async def test_a_gang_whose_member_is_silent_says_so_on_the_hubs_job_though_it_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(method: str, path: str, **how: Any) -> bytes:
        raise Unavailable(503, "ServiceUnavailable", "connection refused")

    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        with monkeypatch.context() as cut:
            cut.setattr(world.links["a"], "request", silent)
            await world.hub.delete(*SEED)
            await asyncio.sleep(20)
            assert await told(world) == [], "a restart of its API server is no news"
            await asyncio.sleep(60)
            assert await world.hub.get(*SEED) is not None
            (message,) = await told(world)
            assert message.startswith("a has not answered for 30 s or more: ")
            assert "connection refused" in message
            assert message.endswith("tutti fleet lost a")

        async def gone() -> bool:
            return await world.hub.get(*SEED) is None

        await world.until(gone)


async def test_a_gang_whose_member_was_taken_away_says_so() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        world.running_hub.leave("a")
        await asyncio.sleep(20)
        (message,) = await told(world)
        assert message.startswith("a is not a member of this hub. The job stays there until it answers")
