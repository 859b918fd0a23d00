"""A job of the hub that its policy offers to nobody takes no slot of the hub's queue."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, Make, plain_job, pytorch_job
from tests.unit.fleet.failing import failover_policy
from tests.unit.fleet.test_hub_quota import as_written, phases, queueing_fleet
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time


def suspending(kind: str, name: str) -> dict[str, Any]:
    """A policy by which one job is offered to nobody."""
    policy = failover_policy(kind, suspension={"dispatching": True})
    policy["spec"]["resourceSelectors"][0]["name"] = name
    return policy


async def lift(world: Fleet, kind: str) -> None:
    path = f"/apis/{VERSIONS[0]}/namespaces/{NAMESPACE}/propagationpolicies/for-{kind.lower()}"
    change = orjson.dumps({"spec": {"suspension": None}})
    await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_a_job_whose_policy_suspends_dispatching_leaves_the_slot_to_the_next(make: Make) -> None:
    kind = make()["kind"]
    async with queueing_fleet() as world:
        await world.hub.cluster.create(suspending(kind, "held"))
        await asyncio.sleep(1)
        for name in ("held", "next"):
            await world.hub.cluster.create(as_written(make(name, runtime="60s")))
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        assert await phases(world, kind, "held", "next") == [DispatchPhase.NOWHERE, DispatchPhase.GRANTED]
        await world.until(lambda: world.over(kind, "next"), 200)
        reserved = []
        for _ in range(60):
            await asyncio.sleep(1)
            reserved.append(await world.hub.reserved())
        assert reserved == [0] * len(reserved), "the one that is offered to nobody holds nothing"
        await lift(world, kind)
        await world.until(lambda: world.over(kind, "held"), 200)
        assert await world.empty(kind)


async def test_a_job_that_has_a_slot_gives_it_back_when_its_policy_begins_to_suspend_dispatching() -> None:
    async with queueing_fleet() as world:
        # No member can take it: it holds its slot, and is nowhere between two offers.
        policy = suspending("PyTorchJob", "held")
        policy["spec"] |= {"suspension": {}, "placement": {"clusterAffinity": {"clusterNames": ["none"]}}}
        await world.hub.cluster.create(policy)
        await asyncio.sleep(1)
        await world.hub.cluster.create(as_written(pytorch_job("held", runtime="60s")))
        await asyncio.sleep(10)
        assert await world.hub.reserved() == 1
        path = f"/apis/{VERSIONS[0]}/namespaces/{NAMESPACE}/propagationpolicies/for-pytorchjob"
        change = orjson.dumps({"spec": {"suspension": {"dispatching": True}}})
        await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        await asyncio.sleep(20)
        assert await world.hub.reserved() == 0
        events = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        told = [each["message"] for each in orjson.loads(events)["items"] if each["reason"] == "Evicted"]
        assert any("PropagationPolicy team-a/for-pytorchjob suspends dispatching" in message for message in told)


async def test_what_is_in_a_member_stays_there_when_its_policy_begins_to_suspend_dispatching() -> None:
    async with queueing_fleet() as world:
        await world.hub.cluster.create(as_written(pytorch_job("runs", runtime="60s")))
        await asyncio.sleep(10)
        assert await phases(world, "PyTorchJob", "runs") == [DispatchPhase.GRANTED]
        await world.hub.cluster.create(suspending("PyTorchJob", "runs"))
        await world.until(lambda: world.over("PyTorchJob", "runs"), 90)
        await asyncio.sleep(5)
        assert await world.hub.reserved() == 0
