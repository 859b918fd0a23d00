"""Pods that are left of an earlier copy keep their gang where it is, whatever the name that showed them leads to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from webhook.clock import LoopClock
from webhook.core.notation import names
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
STAYS = "example.org/never"


@asynccontextmanager
async def left_in_a() -> AsyncIterator[Fleet]:
    """Yield a hub that has started, of whose job ``stuck`` pods are left in a: its copy is gone, and its record."""
    async with fleet("a", "b", watched=False) as world:
        await world.hub.cluster.create(pytorch_job("stuck", runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "stuck"))
        await asyncio.sleep(5)
        side = world.members["a"]
        for pod in await side.pods():
            await side.keep_pod(pod, [STAYS])
        world.kill()
        await side.delete("PyTorchJob", "stuck")
        await world.hub.patch("PyTorchJob", "stuck", {"metadata": {"annotations": {names.DISPATCH: None}}})
        await asyncio.sleep(5)
        world.start()
        await asyncio.sleep(20)
        assert world.running_hub.fleet.swept.apart["a"]
        yield world


def lead(world: Fleet, name: str, to: str) -> None:
    world.running_hub.fleet.members[name].reach(world.members[to].cluster.api(HUB_ACCOUNT))


async def told(world: Fleet) -> str:
    (said,) = dispatch_of(await world.hub.get("PyTorchJob", "stuck") or {}).elsewhere
    return said


async def let_go(world: Fleet) -> None:
    for pod in await world.members["a"].pods():
        await world.members["a"].keep_pod(pod, [])


async def test_after_two_names_were_swapped_the_one_that_leads_there_says_when_they_are_gone() -> None:
    async with left_in_a() as world:
        lead(world, "a", "b")
        lead(world, "b", "a")
        await asyncio.sleep(120)
        assert await world.members["a"].pods()
        assert not await world.members["b"].pods()
        assert (await told(world)).startswith("b still has pods")
        await let_go(world)
        await world.until(lambda: world.places("PyTorchJob", "stuck"))
        assert not world.running_hub.fleet.swept.apart


async def test_a_name_that_leads_there_no_more_says_nothing_of_them() -> None:
    async with left_in_a() as world:
        lead(world, "a", "b")
        await asyncio.sleep(120)
        assert not await world.members["b"].pods()
        said = await told(world)
        assert said.startswith("a still has pods")
        assert said.endswith(", to which its name led before")
        lead(world, "a", "a")
        await asyncio.sleep(10)
        await let_go(world)
        await world.until(lambda: world.places("PyTorchJob", "stuck"))


async def test_another_name_that_leads_there_too_does_not_end_it() -> None:
    async with left_in_a() as world:
        # Any member could say that it is that cluster.
        world.running_hub.fleet.swept.set_apart("b", world.running_hub.fleet.members["a"].uid, {})
        assert world.running_hub.fleet.swept.apart["a"]


async def test_it_ends_where_the_member_was_declared_lost_and_its_name_leads_elsewhere() -> None:
    async with left_in_a() as world:
        lead(world, "a", "b")
        await asyncio.sleep(20)
        [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
        await asyncio.sleep(30)
        assert await world.places("PyTorchJob", "stuck") == ["b"]
        assert not world.running_hub.fleet.swept.apart.get("a")


async def test_credentials_that_change_in_the_middle_of_a_sweep_do_not_end_it() -> None:
    async with left_in_a() as world:
        request, led = world.own.request, asyncio.Event()

        async def changes(method: str, path: str, **how: Any) -> bytes:
            if path.endswith("/pytorchjobs/stray") and not led.is_set():
                led.set()
                lead(world, "a", "b")
            return await request(method, path, **how)

        world.own.request = changes  # type: ignore[method-assign]
        stray = pytorch_job("stray", runtime="60s")
        stray["spec"]["runPolicy"] = {"suspend": True}
        stray["metadata"]["labels"][names.ORIGIN_LABEL] = world.running_hub.fleet.uid
        stray["metadata"]["annotations"] = {names.OFFER: "00000000-0000-0000-0000-000000000000 1.1"}
        await world.members["a"].cluster.create(stray)
        await asyncio.wait_for(led.wait(), 30)
        await asyncio.sleep(60)
        assert await world.members["a"].pods()
        assert not await world.members["b"].pods()
        assert (await told(world)).startswith("a still has pods")
