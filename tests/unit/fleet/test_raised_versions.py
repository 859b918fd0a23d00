"""The hub's etcd is restored as its documentation advises, with versions raised, while ``tutti hub`` runs on."""

import asyncio

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
SEED = ("PyTorchJob", "pytorch-test")


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_gang_that_runs_in_a_silent_member_starts_in_no_other(is_written: bool) -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job(runtime="200s"))
        backup = world.hub.cluster.server.store.backup()
        world.start()
        await world.until(world.members["a"].running)
        world.links["a"].freeze()
        world.hub.cluster.restore(backup, bumped=True)
        if is_written:
            # Then the job's own version has not gone back either.
            await world.hub.patch(*SEED, {"metadata": {"labels": {"team": "vision"}}})
        await asyncio.sleep(40)
        assert await world.members["b"].pods() == []
        world.links["a"].thaw()
        await asyncio.sleep(15)
        job = await world.hub.get(*SEED)
        assert (dispatch_of(job or {}).phase, dispatch_of(job or {}).member) == (DispatchPhase.GRANTED, "a")
        assert await world.members["a"].running() == 3
