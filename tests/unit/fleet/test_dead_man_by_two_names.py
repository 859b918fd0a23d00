"""One cluster by two names, and two processes of a hub: what one of them reaches the other does not give up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SEED, SURELY_SECONDS, starts_in_a
from tests.unit.fleet.test_two_processes import cut
from webhook.clock import LoopClock
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.hub import Hub
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.lost import give_up
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import Api
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def another_process(world: Fleet, links: dict[str, Api]) -> AsyncIterator[Hub]:
    other = Hub(world.hub.cluster.api(HUB_ACCOUNT), links, KINDS, clock=LoopClock(), rng=Random(5), dead_man=True)
    running = asyncio.create_task(other.run())
    try:
        yield other
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def reached_only_by_the_second_name(world: Fleet) -> dict[str, Api]:
    """Start a gang in ``a``, which the first process reaches only by ``z`` from now on; return links for another."""
    await starts_in_a(world)
    side = world.members["a"]
    world.running_hub.join("z", side.cluster.api(HUB_ACCOUNT))
    await asyncio.sleep(3 * RENEW_SECONDS)
    cut(world.links["a"])
    return {name: world.members["b" if name == "b" else "a"].cluster.api(HUB_ACCOUNT) for name in ("a", "b", "z")}


async def stays(world: Fleet) -> None:
    await asyncio.sleep(SURELY_SECONDS + 3 * LATE_SECONDS)
    assert await world.members["a"].running() == 3
    assert await world.places(*SEED) == ["a"]


async def test_a_process_that_never_reached_a_cluster_gives_up_nothing_that_another_reaches_by_a_second_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterNames, "new_name_due", AsyncMock(return_value=""))
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        links = await reached_only_by_the_second_name(world)
        cut(links["a"])
        cut(links["z"])
        async with another_process(world, links):
            await stays(world)


async def test_nor_one_that_reached_another_cluster_by_that_name_before() -> None:
    async with (
        fleet("a", "b", silent_hub_seconds=PATIENCE) as world,
        SimulatedCluster(Random(9), namespaces=("tutti-system",)) as former,
    ):
        links = await reached_only_by_the_second_name(world)
        cut(links["a"])
        led_to, links["z"] = links["z"], former.api(HUB_ACCOUNT)
        cut(led_to)
        async with another_process(world, links) as other:
            await asyncio.sleep(3 * RENEW_SECONDS)
            other.fleet.members["z"].reach(led_to)
            await stays(world)


@pytest.mark.parametrize("members_known", [True, False])
async def test_nor_one_in_which_that_name_is_no_member_yet(*, members_known: bool) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        links = await reached_only_by_the_second_name(world)
        cut(links["a"])
        del links["z"]
        async with another_process(world, links) as other:
            # A hub that has just started may not have read who its members are.
            other.fleet.members_known, other.fleet.unjoined = members_known, {"z"} if members_known else ()
            await stays(world)


async def test_nothing_is_given_up_of_which_a_second_name_shows_pods_though_its_copy_is_gone() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        side = world.members["a"]
        world.running_hub.join("z", side.cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(3 * RENEW_SECONDS)
        cut(world.links["a"])
        kept = (await side.pods())[0]
        await side.keep_pod(kept, ["kept.example/by-somebody"])
        await side.delete(*SEED)
        await asyncio.sleep(SURELY_SECONDS + 2 * LATE_SECONDS)
        assert await side.pods() == [kept]
        assert await world.places(*SEED) == []
        await side.keep_pod(kept, [])
        await world.until(lambda: world.places(*SEED), LATE_SECONDS)


async def test_a_second_name_that_shows_one_gang_is_asked_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # They would be followed there, unless their records cannot be written.
    monkeypatch.setattr(ClusterNames, "new_name_due", AsyncMock(return_value=""))
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        await world.hub.cluster.create(pytorch_job("another", workers=0, runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "another"))
        link = world.members["a"].cluster.api(HUB_ACCOUNT)
        request, asked = link.request, Counter[str]()

        async def noted(method: str, path: str, **how: Any) -> bytes:
            asked[path.rpartition("/")[2]] += 1
            return await request(method, path, **how)

        link.request = noted  # type: ignore[method-assign]
        world.running_hub.join("z", link)
        await asyncio.sleep(3 * RENEW_SECONDS)
        asked.clear()
        cut(world.links["a"])
        await asyncio.sleep(SURELY_SECONDS + 2 * LATE_SECONDS)
        assert await world.places(*SEED) == await world.places("PyTorchJob", "another") == ["a"]
        assert asked["another"] > 0
        assert asked[SEED[1]] == 0


@pytest.mark.parametrize("lost", [(), ("c",)])
async def test_a_member_that_nobody_reaches_keeps_no_gang_of_another_one(lost: Collection[str]) -> None:
    """It may have been declared lost long before the hub began."""
    async with fleet("a", "b", "c", silent_hub_seconds=PATIENCE) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        for name in lost:
            world.links[name].freeze()
            how = {"dry_run": False, "force": True}
            [_ async for _ in give_up(world.hub.admin, KINDS, name, LoopClock(), **how)]
            world.kill()
            world.start()
            world.links[name].freeze()
            await asyncio.sleep(3 * RENEW_SECONDS)
        world.links["c"].freeze()
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await world.until(world.members["a"].running)
        await asyncio.sleep(10)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + 2 * LATE_SECONDS)
        assert await world.places(*SEED) == ["b"]
