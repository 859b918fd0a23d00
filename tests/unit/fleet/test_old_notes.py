"""The hub's cluster is set back to when a member was noted as lost, which has come back since."""

import asyncio

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.clock import LoopClock
from webhook.fleet.lost import give_up, noted
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time


async def test_a_note_of_before_a_set_back_does_not_say_that_a_member_is_lost_now() -> None:
    async with fleet("a", "b") as world:
        job = pytorch_job(runtime="6000s")
        job["spec"]["runPolicy"]["suspend"] = True
        await world.hub.cluster.create(job)
        world.links["a"].freeze()
        how = {"dry_run": False, "force": True}
        assert [gang async for gang in give_up(world.hub.admin, KINDS, "a", LoopClock(), **how)] == []
        backup = world.hub.cluster.server.store.backup()
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert await noted(world.hub.admin) == {}
        resume = {"spec": {"runPolicy": {"suspend": False}}}
        await world.hub.patch(*SEED, resume)
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        world.hub.cluster.restore(backup)
        await world.hub.patch(*SEED, resume)
        await asyncio.sleep(60)
        assert await world.places(*SEED) == ["a"], "nobody has said that it is lost now"
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert await world.places(*SEED) == ["a"], "it is found there"
        world.links["a"].freeze()
        world.watchers.forgiven = "a"
        assert len([gang async for gang in give_up(world.hub.admin, KINDS, "a", LoopClock(), **how)]) == 1
        await runs_in(world, 3, 3)
