"""A name and a cluster are two things: a name leads to a second cluster, or two names to one."""

import asyncio

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.clock import LoopClock
from webhook.errors import WrongName
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time

LATER = "PyTorchJob", "later"


async def two_clusters_of_one_name(world: Fleet) -> tuple[str, str]:
    """Place a gang in ``a``, lead that name to the cluster of ``c``, and place another; return the clusters' uids."""
    await world.hub.cluster.create(pytorch_job(runtime="6000s"))
    await runs_in(world, 3, 0, 0)
    world.running_hub.fleet.members["a"].reach(world.members["c"].cluster.api(HUB_ACCOUNT))
    await asyncio.sleep(10)
    await world.hub.cluster.create(pytorch_job("later", runtime="6000s"))
    await runs_in(world, 3, 0, 3)
    first, second = [dispatch_of(await world.hub.get(*which) or {}) for which in (SEED, LATER)]
    assert (first.member, second.member) == ("a", "a")
    return first.cluster, second.cluster


async def test_a_member_that_was_made_again_by_its_name_loses_none_of_what_runs_in_the_new_cluster() -> None:
    async with fleet("a", "b", "c", starts=False) as world:
        world.away = {"c"}
        world.start()
        gone, stays = await two_clusters_of_one_name(world)
        how = {"dry_run": False, "force": True}
        with pytest.raises(WrongName, match=f"1 gang in the cluster ({gone}|{stays}), 1 gang in"):
            [gang async for gang in give_up(world.hub.admin, KINDS, "a", LoopClock(), **how)]
        await world.members["a"].delete(*SEED)
        await asyncio.sleep(60)
        given_up = give_up(world.hub.admin, KINDS, "a", LoopClock(), cluster=gone, **how)
        assert [gang async for gang in given_up] == ["PyTorchJob team-a/pytorch-test"]
        await runs_in(world, 0, 3, 3)
