"""A job that fails while its policy suspends dispatching waits in its member, and is tried elsewhere after that."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failed_in, failover_policy, once
from tests.unit.fleet.test_failover import has_failed
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "pytorch-test"
POLICY = f"/apis/{VERSIONS[0]}/namespaces/{NAMESPACE}/propagationpolicies/for-pytorchjob"
RUNTIME = 60.0


async def suspends(world: Fleet, suspension: dict[str, Any] | None) -> None:
    body = orjson.dumps({"spec": {"suspension": suspension}})
    await world.hub.admin.request("PATCH", POLICY, body=body, content_type=MERGE_PATCH)


async def fails_in_a(world: Fleet) -> None:
    """Have a job fail in member a whose policy suspends dispatching, and wait for longer than it would stay."""
    await fail_all(world.members["a"])
    await world.hub.cluster.create(failover_policy())
    await world.hub.cluster.create(once(pytorch_job(runtime=f"{RUNTIME:.0f}s")))
    await world.until(lambda: world.places(*JOB))
    await suspends(world, {"dispatching": True})
    await asyncio.sleep(RUNTIME + TOLERATION + 120)


async def test_it_is_tried_elsewhere_once_dispatching_goes_on() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world)
        assert not await has_failed(world, *JOB)
        dispatch = dispatch_of(await world.hub.get(*JOB) or {})
        policy = f"PropagationPolicy {NAMESPACE}/for-pytorchjob"
        assert dispatch.waits.endswith(f"; it may run elsewhere once {policy} no longer suspends dispatching")
        assert await world.members["b"].all("PyTorchJob") == []
        await suspends(world, None)
        await asyncio.sleep(30)
        assert await world.places(*JOB) == ["b"]
        assert failed_in(dispatch_of(await world.hub.get(*JOB) or {})) == ["a"]


async def test_it_has_failed_at_once_where_no_other_member_would_be_asked_after_that_either() -> None:
    async with fleet("a") as world:
        await fails_in_a(world)
        assert await has_failed(world, *JOB)
