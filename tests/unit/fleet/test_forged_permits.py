"""A member takes no job by a permit that it has forged: it can, for it knows the job's uid from an earlier offer."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job
from tests.unit.fleet.failing import failover_policy
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.fleet.permit import permit_text
from webhook.core.notation import names
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
UID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("offer", ["1.1", "999999999999.7"])
async def test_a_member_that_its_policy_leaves_out(offer: str) -> None:
    async with fleet("a", "b") as world:
        policy = failover_policy("Job", failover=None, propagateDeps=False)
        del policy["spec"]["failover"]
        policy["spec"]["placement"] = {"clusterAffinity": {"clusterNames": ["b"]}}
        await world.hub.cluster.create(policy)
        await asyncio.sleep(10)
        await fill(world, "b")
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await asyncio.sleep(5)
        assert await record(world) == (DispatchPhase.OFFERED, "b")
        await forge(world, "a", offer)
        await asyncio.sleep(300)
        assert await record(world) == (DispatchPhase.GRANTED, "b")


async def test_a_member_that_the_record_has_left() -> None:
    async with fleet("a", "b") as world:
        await fill(world, "a")
        await fill(world, "b")
        await asyncio.sleep(10)
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        for _ in range(100):
            await asyncio.sleep(0.5)
            if await record(world) == (DispatchPhase.OFFERED, "b"):
                break
        await forge(world, "a", "1.1")
        for _ in range(100):
            await asyncio.sleep(0.5)
            job = dispatch_of(await world.hub.get("Job", "train") or {})
            assert job.copy_uid != UID


async def test_a_copy_goes_on_whose_member_was_declared_lost_a_moment_ago() -> None:
    """Of this the process that sweeps it has not heard yet, and its record has left it without proof."""
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(20)
        before = await world.members["a"].get("Job", "train")
        for _ in range(7):
            # At whatever time between two sweeps.
            await asyncio.sleep(0.7)
            [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
            await asyncio.sleep(30)
            after = await world.members["a"].get("Job", "train")
            assert before is not None
            assert after is not None
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert await record(world) == (DispatchPhase.GRANTED, "a")


async def record(world: Fleet) -> tuple[DispatchPhase, str]:
    found = dispatch_of(await world.hub.get("Job", "train") or {})
    return found.phase, found.member


async def fill(world: Fleet, member: str) -> None:
    """Let a member have no room for 100 s."""
    local = plain_job("local", pods=4, runtime="100s")
    del local["spec"]["managedBy"]
    local["spec"]["suspend"] = True
    await world.members[member].cluster.create(local)
    await asyncio.sleep(5)


async def forge(world: Fleet, member: str, number: str) -> None:
    """Let a member say that it has a copy of ``train`` which has its permit."""
    request, job = world.links[member].request, await world.hub.get("Job", "train") or {}
    offer = f"{job['metadata']['uid']} {number}"
    forged = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": NAMESPACE,
            "uid": UID,
            "resourceVersion": "5",
            "labels": {names.ORIGIN_LABEL: world.running_hub.fleet.uid},
            "annotations": {names.OFFER: offer, names.PERMIT: permit_text(offer, UID)},
        },
        "spec": {"suspend": False},
    }
    listed = {"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": "9"}, "items": [forged]}

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if method == "GET" and path.endswith("/jobs/train"):
            return orjson.dumps(forged)
        if method == "GET" and path == "/apis/batch/v1/jobs":
            return orjson.dumps(listed)
        return await request(method, path, **how)

    world.links[member].request = asked  # type: ignore[method-assign]
