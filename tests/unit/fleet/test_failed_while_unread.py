"""What becomes of a job that fails in its member while the hub cannot read what its users want after a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.failing import fail_all, failed_in, failover_policy, once
from tests.unit.fleet.test_hub_quota import events_of
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")


@asynccontextmanager
async def failing_in_a(*, unread: bool) -> AsyncIterator[Fleet]:
    """Yield a fleet of two, in one of which a gang without any policy fails, once its hub has been started again."""
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(once(pytorch_job(runtime="90s")))
        await world.until(lambda: world.places("PyTorchJob", "pytorch-test"))
        await world.stop()
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if unread and path.endswith("/policy.karmada.io/v1alpha1/propagationpolicies"):
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert bool(world.running_hub.fleet.unread) is unread
        world.mend = lambda: setattr(world.own, "request", request)  # type: ignore[attr-defined]
        yield world


async def shown(world: Fleet) -> set[str]:
    job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
    return {each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"}


@pytest.mark.parametrize("unread", [False, True])
async def test_a_job_that_has_failed_says_so_while_its_hub_cannot_read_whether_it_is_tried_elsewhere(
    unread: bool,
) -> None:
    async with failing_in_a(unread=unread) as world:
        await asyncio.sleep(600)
        side = await world.members["a"].get("PyTorchJob", "pytorch-test")
        ended = {each["type"] for each in (side or {}).get("status", {}).get("conditions", ())}
        job, says = await world.hub.get("PyTorchJob", "pytorch-test") or {}, await shown(world)
        told = [each["message"] for each in await events_of(world, "FailedInMember")]
        assert "Failed" in says | ended
        assert "Failed" in says or told or dispatch_of(job).waits, "nobody says why it does not end"


async def delete_there(world: Fleet, kept: bool) -> None:
    """Have somebody delete the failed copy, at once or when a finalizer lets it go."""
    if kept:
        await world.members["a"].patch(
            "PyTorchJob", "pytorch-test", {"metadata": {"finalizers": ["example.com/keeps"]}}
        )
    await world.members["a"].delete("PyTorchJob", "pytorch-test")
    await asyncio.sleep(60)


@pytest.mark.parametrize("kept", [False, True])
async def test_a_job_whose_failed_copy_is_deleted_while_it_waits_has_failed_all_the_same(kept: bool) -> None:
    async with failing_in_a(unread=True) as world:
        await asyncio.sleep(600)
        assert "Failed" not in await shown(world)
        await delete_there(world, kept)
        job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
        assert "whether it may run elsewhere is not known" in dispatch_of(job).waits
        world.mend()  # type: ignore[attr-defined]
        await asyncio.sleep(60)
        assert "Failed" in await shown(world)
        assert not await world.members["b"].pods()
        if kept:
            await world.members["a"].patch("PyTorchJob", "pytorch-test", {"metadata": {"finalizers": []}})
            await asyncio.sleep(60)
        job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
        assert dispatch_of(job).phase is DispatchPhase.NOWHERE


async def test_a_job_whose_failed_copy_is_deleted_while_it_waits_is_not_tried_there_again() -> None:
    async with failing_in_a(unread=True) as world:
        await world.hub.cluster.create(failover_policy())
        await asyncio.sleep(300)
        await delete_there(world, kept=False)
        world.mend()  # type: ignore[attr-defined]
        await world.until(lambda: runs_in_b(world), 120)
        job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
        assert failed_in(dispatch_of(job)) == ["a"]


async def test_a_job_whose_failed_copy_is_deleted_before_it_leaves_is_not_tried_there_again() -> None:
    async with failing_in_a(unread=False) as world:
        tolerates = {"application": {"decisionConditions": {"tolerationSeconds": 120}, "purgeMode": "Immediately"}}
        await world.hub.cluster.create(failover_policy(failover=tolerates))
        await world.until(lambda: waits_failed(world), 120)
        await delete_there(world, kept=False)
        assert await waits_failed(world)
        await world.until(lambda: runs_in_b(world), 120)
        job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
        assert failed_in(dispatch_of(job)) == ["a"]


async def waits_failed(world: Fleet) -> bool:
    job = await world.hub.get("PyTorchJob", "pytorch-test") or {}
    return dispatch_of(job).member == "a" and "says that it has failed" in dispatch_of(job).waits


async def runs_in_b(world: Fleet) -> bool:
    return await world.places("PyTorchJob", "pytorch-test") == ["b"]
