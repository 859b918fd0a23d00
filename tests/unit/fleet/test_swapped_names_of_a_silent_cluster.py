"""Two members' names are swapped while one of their clusters is silent: the gangs of the other one are followed."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_said_cluster import says_it_is
from webhook.core.fleet.dispatch import Dispatch
from webhook.fleet.jobs.cluster_names import ASKED_SECONDS, NAME_HOLDS_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "train"


async def runs_in_a(world: Fleet) -> None:
    await world.hub.cluster.create(pytorch_job("train", runtime="60s"))
    await world.until(lambda: world.places(*JOB))
    assert await world.places(*JOB) == ["a"]
    await asyncio.sleep(10)


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get(*JOB) or {})


@pytest.mark.parametrize("silent", [False, True])
async def test_a_gang_is_followed_by_the_name_that_leads_to_its_cluster(silent: bool) -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        if silent:
            links["b"].freeze()
        members = world.running_hub.fleet.members
        members["a"].reach(links["b"])
        members["b"].reach(links["a"])
        await asyncio.sleep(NAME_HOLDS_SECONDS + 25)
        assert (await record(world)).member == "b"
        await asyncio.sleep(60)
        job = await world.hub.get(*JOB) or {}
        assert "Succeeded" in {each["type"] for each in job["status"]["conditions"] if each["status"] == "True"}


async def test_a_gang_of_a_silent_member_is_not_followed_to_one_that_only_says_it_is_its_cluster() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        await says_it_is(world, "b", "a")
        world.links["a"].freeze()
        await asyncio.sleep(120)
        assert (await record(world)).member == "a"


async def test_a_name_that_is_silent_for_a_moment_leads_where_it_did() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        members, link = world.running_hub.fleet.members, world.members["a"].cluster.api(HUB_ACCOUNT)
        members["b"].reach(link)
        await asyncio.sleep(5)
        world.links["a"].freeze()
        await asyncio.sleep(NAME_HOLDS_SECONDS - 5)
        assert (await record(world)).member == "a"


async def test_a_name_that_does_not_show_the_copy_is_asked_for_it_once_a_minute() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        await says_it_is(world, "b", "a")
        asked, request = 0, world.links["b"].request

        async def counted(method: str, path: str, **how: Any) -> bytes:
            nonlocal asked
            asked += path.endswith("/pytorchjobs/train")
            return await request(method, path, **how)

        world.links["b"].request = counted  # type: ignore[method-assign]
        world.links["a"].freeze()
        await asyncio.sleep(10 * ASKED_SECONDS)
        assert 8 <= asked <= 11
