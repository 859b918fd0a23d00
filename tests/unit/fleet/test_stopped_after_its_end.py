"""A job that is stopped in the hub after it has ended well in its member, and before that is shown, has ended."""

import asyncio
import copy
from typing import Any

import pytest

from tests.unit.controllers.stage import KUEUE, POLICY
from tests.unit.fleet.clusters import Make, fleet, plain_job, pytorch_job, suspend
from webhook.core.notation import names

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("make", [plain_job, pytorch_job])
async def test_it_does_not_run_again_where_its_owner_suspended_it_while_its_member_was_silent(make: Make) -> None:
    job = make(runtime="20s")
    kind, name = job["kind"], job["metadata"]["name"]
    async with fleet("a") as world:
        await world.hub.cluster.create(job)
        await world.until(lambda: world.places(kind, name))
        await asyncio.sleep(10)
        first = (await world.members["a"].get(kind, name) or {})["metadata"]["uid"]
        world.links["a"].freeze()
        await asyncio.sleep(60)
        conditions: Any = (await world.members["a"].get(kind, name) or {})["status"]["conditions"]
        assert {each["type"] for each in conditions} & {"Complete", "Succeeded"}, "it has ended well there"
        await world.hub.patch(kind, name, suspend(make, True))
        await asyncio.sleep(5)
        world.links["a"].thaw()
        await asyncio.sleep(60)
        await world.hub.patch(kind, name, suspend(make, False))
        runs = set()
        for _ in range(60):
            await asyncio.sleep(1)
            there = await world.members["a"].get(kind, name)
            runs |= {there["metadata"]["uid"]} if there is not None and await world.members["a"].pods() else set()
        assert runs <= {first}, "a job that has ended well ran once more"
        assert await world.over(kind, name)


def job(name: str, priority: str, runtime: str) -> dict[str, Any]:
    made = plain_job(name, pods=4, runtime=runtime)
    made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = priority
    return made


@pytest.mark.parametrize("while_", ["its member is silent", "the hub is down"])
async def test_it_does_not_run_again_where_the_hubs_own_queue_gave_its_quota_to_another(while_: str) -> None:
    policy: list[Any] = [copy.deepcopy(item) for item in POLICY]
    for each in policy:
        if each["kind"] == "ClusterQueue":
            each["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    classes = [
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("usual", 10), ("high", 100))
    ]
    policy += classes
    async with fleet("a", hub_policy=policy) as world:
        side = world.members["a"]
        for each in classes:
            await side.cluster.create(copy.deepcopy(each))
        await asyncio.sleep(1)
        await world.hub.cluster.create(job("low", "usual", "20s"))
        await world.until(lambda: world.places("Job", "low"))
        first = (await side.get("Job", "low") or {})["metadata"]["uid"]
        await asyncio.sleep(5)
        if while_ == "the hub is down":
            await world.stop()
        else:
            world.links["a"].freeze()
        await asyncio.sleep(40)
        conditions = (await side.get("Job", "low") or {})["status"]["conditions"]
        assert "Complete" in {each["type"] for each in conditions}, "it has ended well there"
        await world.hub.cluster.create(job("high", "high", "20s"))
        await asyncio.sleep(10)
        low = await world.hub.get("Job", "low") or {}
        assert low["spec"].get("suspend") is True, "the hub's Tutti has stopped it"
        if while_ == "the hub is down":
            world.start()
        else:
            world.links["a"].thaw()
        runs = set()
        for _ in range(240):
            await asyncio.sleep(1)
            there = await side.get("Job", "low")
            runs |= {there["metadata"]["uid"]} if there is not None and not there["spec"].get("suspend") else set()
        assert runs <= {first}, "it has run once more"
