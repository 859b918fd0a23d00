"""A member is removed while what is done for another one waits for its answer: that goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.test_coming_and_going import leaves
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SURELY_SECONDS, runs_in
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.jobs.job import FleetJob
from webhook.fleet.lost import give_up
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def runs_in_a() -> AsyncIterator[tuple[Fleet, asyncio.Event]]:
    """Yield a fleet whose gang runs in a; the event says that c is being asked whether it is that cluster."""
    async with fleet("a", "b", "c", silent_hub_seconds=PATIENCE) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0, 0)
        asked, dead_man = asyncio.Event(), world.running_hub._dead_man
        assert dead_man is not None
        has_nothing = dead_man._has_nothing

        async def seen(name: str, job: FleetJob, dispatch: Dispatch) -> bool:
            # It hangs, so this one waits for it.
            waits = asyncio.get_running_loop().call_later(0.5, asked.set) if name == "c" else None
            try:
                return await has_nothing(name, job, dispatch)
            finally:
                if waits is not None:
                    waits.cancel()

        dead_man._has_nothing = seen  # type: ignore[method-assign]
        yield world, asked


async def hangs_as_it_is_asked(world: Fleet, asked: asyncio.Event, *, removed: bool) -> None:
    """Let c hang as it is asked whether it has a gang of a, which is silent by now; and be removed, or not."""
    await asyncio.sleep(SURELY_SECONDS - 40)
    world.links["c"].freeze()
    await asyncio.wait_for(asked.wait(), 2 * SURELY_SECONDS)
    if removed:
        leaves(world, "c")


@pytest.mark.parametrize("removed", [False, True])
async def test_gangs_of_a_silent_member_are_given_up_though_another_is_removed_while_it_is_asked(removed: bool) -> None:
    async with runs_in_a() as (world, asked):
        world.links["a"].freeze()
        await hangs_as_it_is_asked(world, asked, removed=removed)
        await runs_in(world, 0, 3, 0, seconds=2 * SURELY_SECONDS)


@pytest.mark.parametrize("removed", [False, True])
async def test_gangs_of_a_removed_member_are_given_up_though_another_is_removed_while_it_is_asked(
    removed: bool,
) -> None:
    async with runs_in_a() as (world, asked):
        leaves(world, "a")
        await hangs_as_it_is_asked(world, asked, removed=removed)
        await runs_in(world, 0, 3, 0, seconds=2 * SURELY_SECONDS)


@pytest.mark.parametrize("removed", [False, True])
async def test_a_member_that_is_back_hears_the_hub_though_another_was_removed_while_it_was_asked(
    removed: bool,
) -> None:
    async with runs_in_a() as (world, asked):
        world.links["a"].freeze()
        await hangs_as_it_is_asked(world, asked, removed=removed)
        world.links["a"].thaw()
        await asyncio.sleep(LATE_SECONDS + 60)
        assert "a" not in world.running_hub.fleet.silent, "it answers, and its Lease is renewed by nobody"


@pytest.mark.parametrize("removed", [False, True])
async def test_a_member_is_swept_though_another_is_removed_while_it_is_asked(removed: bool) -> None:
    async with fleet("a", "b", "c", watched=False) as world:
        # It runs in a, which was declared lost, and in b.
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await asyncio.sleep(10)
        [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
        await asyncio.sleep(60)
        assert sorted(await world.places("Job", "train")) == ["a", "b"]
        # a is back while c is silent, so that a new hub does not know all; and b hangs when a's copy is settled.
        world.kill()
        world.start()
        world.links["c"].freeze()
        permitted = world.running_hub.fleet.permitted
        asked = asyncio.Event()

        async def seen(*what: Any) -> Any:
            if not asked.is_set():
                world.links["b"].freeze()
                asyncio.get_running_loop().call_later(0.5, asked.set)
            return await permitted(*what)

        world.running_hub.fleet.permitted = seen  # type: ignore[method-assign]
        await asyncio.wait_for(asked.wait(), 60)
        if removed:
            world.running_hub.leave("b")
        else:
            world.links["b"].thaw()
        await asyncio.sleep(30)
        # Whatever comes to a from now on is settled there.
        stray = plain_job("stray", runtime="60s")
        del stray["spec"]["managedBy"]
        stray["spec"]["suspend"] = True
        stray["metadata"]["labels"][names.ORIGIN_LABEL] = world.running_hub.fleet.uid
        stray["metadata"]["annotations"] = {names.OFFER: "00000000-0000-0000-0000-000000000000 1.1"}
        await world.members["a"].cluster.create(stray)
        await asyncio.sleep(60)
        assert await world.members["a"].get("Job", "stray") is None
