"""A job that has ended stays so, whatever a lost member has of it that comes back."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.failing import fail_all, once
from tests.unit.fleet.test_operator_in_the_hub import application, record, runs, says, sparks, state
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.lost import give_up
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time


async def lose(world: Fleet, member: str) -> None:
    [_ async for _ in give_up(world.hub.admin, KINDS, member, LoopClock(), dry_run=False, force=True)]


async def test_a_copy_that_still_runs_there_is_ended_and_the_end_is_not_taken_back() -> None:
    """Of such a kind an operator in the hub may write ends too, which are taken back while a member has the job."""
    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.members["a"], "RUNNING")
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await asyncio.sleep(10)
        await lose(world, "a")
        await world.until(lambda: runs(world, "b"))
        await says(world.members["b"], "RUNNING")
        await asyncio.sleep(5)
        await says(world.members["b"], "COMPLETED")
        await asyncio.sleep(30)
        assert (await record(world)).phase is DispatchPhase.NOWHERE
        world.links["a"].thaw()
        await asyncio.sleep(60)
        assert await state(world.hub) == "COMPLETED"
        assert not await runs(world, "a")
        assert not await runs(world, "b")


async def test_a_copy_runs_on_whose_record_was_lost_though_an_operator_in_the_hub_says_that_it_has_ended() -> None:
    async with sparks("a") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.members["a"], "RUNNING")
        await asyncio.sleep(10)
        await lose(world, "a")
        await says(world.hub, "FAILED")
        await asyncio.sleep(60)
        assert await runs(world, "a")
        assert await state(world.hub) == "RUNNING"


async def test_a_copy_that_has_failed_there_does_not_say_how_the_job_has_ended() -> None:
    async with fleet("a", "b", watched=False) as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(once(pytorch_job("train", runtime="100s")))
        await world.until(lambda: world.places("PyTorchJob", "train"))
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await asyncio.sleep(5)
        await lose(world, "a")
        await world.until(lambda: world.over("PyTorchJob", "train"), 300)
        world.links["a"].thaw()
        await asyncio.sleep(60)
        after = await world.hub.get("PyTorchJob", "train") or {}
        ended = {each["type"] for each in after["status"]["conditions"] if each["status"] == "True"}
        assert "Succeeded" in ended
        assert "Failed" not in ended
        assert await world.members["a"].get("PyTorchJob", "train") is None
