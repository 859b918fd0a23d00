"""The name of a member leads to another cluster: its gangs wait for the former one, and somebody is told."""

import asyncio
from random import Random

import orjson
import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, fleet, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in
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


@pytest.mark.parametrize("looked_at_soon", [False, True])
async def test_where_two_names_were_swapped_nobody_is_told_to_give_up_what_runs(*, looked_at_soon: bool) -> None:
    """It would be offered to the cluster that has it, by its new name, or run twice."""
    async with fleet("a", "b") as world, SimulatedCluster(Random(9), namespaces=("tutti-system",)) as other:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await runs_in(world, 3, 0)
        members = world.running_hub.fleet.members
        of_b = members["b"].reach(members["a"].reach(other.api(HUB_ACCOUNT)))
        members["a"].reach(of_b)
        if looked_at_soon:
            # Its own job in the hub was changed: nobody has asked b since.
            await world.hub.patch(*SEED, {"metadata": {"annotations": {"a/b": "changed"}}})
        await asyncio.sleep(90)
        assert await world.places(*SEED) == ["a"]
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        told = [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "MemberChanged"]
        assert told == [
            "a now leads to a different cluster from the one that has this job. b leads to that one: give the two "
            "members the Secrets that they had before"
        ]
