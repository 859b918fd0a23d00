"""The name of a member leads to another cluster: its gangs wait for the former one, and somebody is told."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Forbidden
from webhook.fleet.members.copies import dispatch_of
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


async def test_a_gang_whose_members_name_leads_elsewhere_stays_and_its_owner_is_told_what_to_do() -> None:
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        world.running_hub.fleet.members["a"].reach(other.api(HUB_ACCOUNT))
        await asyncio.sleep(90)
        assert await world.places(*SEED) == ["a"]
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        told = [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "MemberChanged"]
        assert len(told) == 1
        assert "if that cluster will not come back: tutti fleet lost a" in told[0]
        await world.hub.delete(*SEED)
        await asyncio.sleep(90)
        assert dispatch_of(await world.hub.get(*SEED) or {}).waits == "", "the other cluster says nothing of it"


async def test_another_cluster_by_the_name_of_a_member_is_offered_nothing_before_it_was_swept() -> None:
    """It may have copies of this hub from another time."""
    async with fleet("a") as world, fleet("b", "c") as others:
        await asyncio.sleep(5)
        shared = world.running_hub.fleet
        shared.members["a"].reach(others.members["c"].cluster.api(HUB_ACCOUNT))
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        while len(shared.swept.clusters["a"]) < 2:
            assert dispatch_of(await world.hub.get(*SEED) or {}).phase is DispatchPhase.NOWHERE
            await asyncio.sleep(0.02)
        await world.until(lambda: runs_there(others), 15)


async def test_another_cluster_that_cannot_be_swept_keeps_no_gang_from_the_other_members() -> None:
    async with fleet("a", "b") as world, fleet("b", "c") as others:
        await asyncio.sleep(5)
        link = others.members["c"].cluster.api(HUB_ACCOUNT)
        asked = link.request

        async def lists_nothing(method: str, path: str, **how: Any) -> bytes:
            if method == "GET" and path.endswith("/pytorchjobs"):
                raise Forbidden(403, "Forbidden", "pytorchjobs may not be listed by tutti-hub")
            return await asked(method, path, **how)

        link.request = lists_nothing  # type: ignore[method-assign]
        world.running_hub.fleet.members["a"].reach(link)
        await asyncio.sleep(20)
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 0, 3)


async def runs_there(others: Fleet) -> bool:
    return await others.places(*SEED) == ["c"]


@pytest.mark.parametrize("looked_at_soon", [False, True])
async def test_where_two_names_were_swapped_a_gang_is_followed_and_nobody_is_told_to_give_it_up(
    *, looked_at_soon: bool
) -> None:
    """It would be offered to the cluster that has it, by its new name, or run twice."""
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        swap(world, other)
        if looked_at_soon:
            # Its own job in the hub was changed: nobody has asked b since.
            await world.hub.patch(*SEED, {"metadata": {"annotations": {"a/b": "changed"}}})
        await asyncio.sleep(90)
        assert await world.places(*SEED) == ["a"]
        assert dispatch_of(await world.hub.get(*SEED) or {}).member == "b"
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        assert "MemberChanged" not in {each["reason"] for each in orjson.loads(listed)["items"]}
        await world.hub.delete(*SEED)
        await asyncio.sleep(30)
        assert await world.places(*SEED) == []
        assert await world.hub.get(*SEED) is None


async def test_what_was_granted_while_two_names_were_swapped_is_followed_when_they_are_swapped_back() -> None:
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
        await asyncio.sleep(5)
        swap(world, other)
        await asyncio.sleep(20)
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await asyncio.sleep(20)
        (at,) = await world.places(*SEED)
        assert dispatch_of(await world.hub.get(*SEED) or {}).member not in ("", at)
        swap(world, other)
        await asyncio.sleep(90)
        assert await world.places(*SEED) == [at]
        assert dispatch_of(await world.hub.get(*SEED) or {}).member == at
        await world.hub.delete(*SEED)
        await asyncio.sleep(30)
        assert await world.places(*SEED) == []
        assert await world.hub.get(*SEED) is None


def swap(world: Fleet, other: SimulatedCluster) -> None:
    """Have each of two names lead to the other's cluster."""
    members = world.running_hub.fleet.members
    of_b = members["b"].reach(members["a"].reach(other.api(HUB_ACCOUNT)))
    members["a"].reach(of_b)
