"""A member that answers each request just in time slows the gangs that it alone can have, and no others."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, tutti
from webhook.config import Config
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.members.member import ANSWER_SECONDS

pytestmark = pytest.mark.virtual_time
SLOW = ANSWER_SECONDS - 0.2


def slow_down(world: Fleet, member: str) -> None:
    link = world.links[member]
    quick = link.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        answer = await quick(method, path, **how)
        await asyncio.sleep(SLOW)
        return answer

    link.request = request  # type: ignore[method-assign]


async def granted(world: Fleet, name: str, seconds: float) -> str:
    """Return the member that has a gang within so long."""

    async def has() -> bool:
        return dispatch_of(await world.hub.get("Job", name) or {}).phase is DispatchPhase.GRANTED

    await world.until(has, seconds)
    return dispatch_of(await world.hub.get("Job", name) or {}).member


@pytest.mark.parametrize("slow", ["a", "b", "c"])
async def test_gangs_that_another_member_can_have_start_there_as_soon_as_ever(slow: str) -> None:
    async with fleet("a", "b", "c") as world:
        await asyncio.sleep(10)
        slow_down(world, slow)
        await asyncio.sleep(20)
        for number in range(4):
            await world.hub.cluster.create(plain_job(f"train-{number}", runtime="6000s"))
        assert slow not in {await granted(world, f"train-{number}", 5) for number in range(4)}


async def test_a_gang_that_only_the_slow_member_has_room_for_goes_there() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        slow_down(world, "a")
        await asyncio.sleep(20)
        for number in range(4):
            await world.hub.cluster.create(plain_job(f"train-{number}", runtime="6000s"))
        assert sorted([await granted(world, f"train-{number}", 120) for number in range(4)]) == ["a", "a", "b", "b"]


async def test_one_gang_waits_for_a_member_whose_tutti_is_down_and_the_next_ones_do_not() -> None:
    async with fleet("a", "b", without_tutti=("a",)) as world:
        async with tutti(world.members["a"].cluster, "a", Config()):
            await asyncio.sleep(10)
        await world.hub.cluster.create(plain_job("first", runtime="6000s"))
        assert await granted(world, "first", 30) == "b"
        await world.hub.cluster.create(plain_job("second", runtime="6000s"))
        assert await granted(world, "second", 5) == "b"
