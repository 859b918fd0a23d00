"""A proof that could not be written is made again: its member may have been restored from a backup meanwhile."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job, suspend
from tests.unit.fleet.failing import failover_policy
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Forbidden
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def test_a_proof_that_was_not_stored_does_not_count_once_its_member_was_restored() -> None:
    async with fleet("a", "b", watched=False) as world:
        side, own = world.members["a"], world.own.request
        refused = 0

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            nonlocal refused
            if method == "PATCH" and path.endswith("/jobs/train"):
                refused += 1
                raise Forbidden(403, "Forbidden", 'admission webhook "their.policy" denied the request')
            return await own(method, path, **how)

        await world.hub.cluster.create(plain_job(pods=3, runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(10)
        uid = (await side.get("Job", "train") or {})["metadata"]["uid"]
        for pod in await side.pods():
            await side.keep_pod(pod, ["example.org/slow"])
        await asyncio.sleep(5)
        backup = side.cluster.server.store.backup()
        await world.hub.patch("Job", "train", suspend(plain_job, True))
        await asyncio.sleep(20)
        assert dispatch_of(await world.hub.get("Job", "train") or {}).phase is DispatchPhase.RECALLED
        world.own.request = refuses  # type: ignore[method-assign]
        for pod in await side.pods():
            await side.keep_pod(pod, [])
        await asyncio.sleep(60)
        assert refused
        assert not await side.pods()
        side.cluster.restore(backup)
        await asyncio.sleep(30)
        pods = await side.pods()
        assert pods, "they were restored, and end slowly"
        there = await side.get("Job", "train")
        assert there is None or there["metadata"]["uid"] == uid
        world.own.request = own  # type: ignore[method-assign]
        await world.hub.cluster.create(failover_policy("Job", placement={"clusterAffinity": {"clusterNames": ["b"]}}))
        await asyncio.sleep(5)
        await world.hub.patch("Job", "train", suspend(plain_job, False))
        await asyncio.sleep(60)
        assert await side.pods() == pods, "those of the first copy"
        assert not await world.members["b"].pods(), "it runs in two clusters"
        assert dispatch_of(await world.hub.get("Job", "train") or {}).phase is DispatchPhase.RECALLED
