"""A name and a cluster are two things: a name leads to a second cluster, or two names to one."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, fleet, pytorch_job, tutti
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SURELY_SECONDS, starts_in_a
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.errors import WrongName
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

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


async def test_what_runs_in_a_cluster_that_has_another_name_by_now_is_not_given_up_by_its_silence() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        world.running_hub.join("z", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(3 * RENEW_SECONDS)
        world.running_hub.leave("a")
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS + 30)
        assert await world.places(*SEED) == ["a"]
        assert (await world.members["a"].running(), await world.members["b"].running()) == (3, 0)


class Between:
    """A connection to a cluster, in whose place another one comes while the first answer to ``path`` is under way."""

    def __init__(self, api: SimulatedApi, path: str, then: Callable[[], object]) -> None:
        self._api, self._path, self._then = api, path, then
        self.watch, self.close = api.watch, api.close
        self.over = False

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        try:
            return await self._api.request(method, path, **how)
        finally:
            if path.endswith(self._path) and not self.over:
                self.over = True
                self._then()


@pytest.mark.parametrize("path", ["/kube-system", "/pytorch-test"])
async def test_credentials_that_are_mended_while_an_answer_is_under_way_end_nothing_that_runs(path: str) -> None:
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0)
        before = dispatch_of(await world.hub.get(*SEED) or {})
        member, right = world.running_hub.fleet.members["a"], world.links["a"]
        wrong = Between(other.api(HUB_ACCOUNT), path, lambda: member.reach(right))
        member.reach(wrong)  # type: ignore[arg-type]
        if path.endswith(SEED[1]):
            # Looked at now; the cluster alone is asked for by a sweep first.
            await world.hub.patch(*SEED, {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(90)
        assert wrong.over
        assert dispatch_of(await world.hub.get(*SEED) or {}) == before
        assert await world.members["a"].running() == 3


async def test_a_cluster_that_is_silent_by_all_its_names_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where the gang shows no copy at that moment, so that it is not followed to the other name.
    monkeypatch.setattr(ClusterNames, "new_name_due", AsyncMock(return_value=""))
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        second = world.members["a"].cluster.api(HUB_ACCOUNT)
        world.running_hub.join("z", second)
        await asyncio.sleep(3 * RENEW_SECONDS)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
        assert await world.places(*SEED) == ["a"], "it heard the hub by its other name"
        second.freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
        assert await world.places(*SEED) == ["b"]


async def test_a_cluster_that_stops_its_gangs_later_by_now_is_given_up_later_by_its_former_name_too() -> None:
    longer = 10 * PATIENCE
    async with fleet("a", "b", silent_hub_seconds=PATIENCE, without_tutti=("a",)) as world:
        cluster = world.members["a"].cluster
        async with tutti(cluster, "a", Config(silent_hub_seconds=PATIENCE)):
            await starts_in_a(world)
        world.running_hub.join("z", cluster.api(HUB_ACCOUNT))
        world.running_hub.leave("a")
        async with tutti(cluster, "a", Config(silent_hub_seconds=longer)):

            async def written() -> bool:
                return dispatch_of(await world.hub.get(*SEED) or {}).stops_after_seconds == longer

            await world.until(written, 30 + 2 * RENEW_SECONDS)


async def test_a_gang_whose_member_has_another_name_by_now_is_followed() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0)
        world.running_hub.join("z", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(10)
        world.running_hub.leave("a")
        await asyncio.sleep(90)
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        assert "MemberSilent" not in {each["reason"] for each in orjson.loads(listed)["items"]}
        assert dispatch_of(await world.hub.get(*SEED) or {}).member == "z"
        await world.hub.delete(*SEED)
        await asyncio.sleep(30)
        assert await world.places(*SEED) == []
        assert await world.hub.get(*SEED) is None


async def test_what_one_cluster_has_promised_is_no_promise_of_the_next_by_its_name() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        member = world.running_hub.fleet.members["a"]
        async with SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
            assert member.stops_after_seconds == PATIENCE
            member.reach(world.members["a"].cluster.api(HUB_ACCOUNT))
            await member.cluster()
            assert member.stops_after_seconds == PATIENCE, "new credentials for the same cluster change nothing"
            member.reach(other.api(HUB_ACCOUNT))
            await member.cluster()
            assert member.stops_after_seconds == 0


@pytest.mark.parametrize("late", [0, 60])
async def test_a_hub_whose_own_address_leads_to_another_cluster_ends_and_deletes_no_copy(late: float) -> None:
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system", NAMESPACE)) as other:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0)
        # Its versions are higher, so that it does not look like the same one set back, or they are lower.
        for number in range(1000 if late else 0):
            await other.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}})
        there = other.api(HUB_ACCOUNT)
        world.own.request, world.own.watch = there.request, there.watch  # type: ignore[method-assign]
        await asyncio.sleep(late)
        for job in await world.members["a"].all(SEED[0]):
            assert not job["metadata"].get("deletionTimestamp")
        await asyncio.sleep(30)
        assert await world.members["a"].running() == 3
        assert world.process is not None
        assert world.process.done()
