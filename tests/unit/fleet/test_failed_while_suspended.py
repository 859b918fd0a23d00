"""A job that fails while its policy suspends dispatching waits in its member, and is tried elsewhere after that.

So it does where dispatching is suspended to all members that are left to try, and not to the others.
"""

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
WHOLLY = {"dispatching": True}
TO_B = {"dispatchingOnClusters": {"clusterNames": ["b"]}}
NAME = f"PropagationPolicy {NAMESPACE}/for-pytorchjob"


async def suspends(world: Fleet, suspension: dict[str, Any] | None) -> None:
    body = orjson.dumps({"spec": {"suspension": suspension}})
    await world.hub.admin.request("PATCH", POLICY, body=body, content_type=MERGE_PATCH)


async def fails_in_a(world: Fleet, suspension: dict[str, Any] = WHOLLY) -> None:
    """Have a job fail in member a whose policy suspends dispatching, and wait for longer than it would stay."""
    await fail_all(world.members["a"])
    await world.hub.cluster.create(failover_policy())
    await world.hub.cluster.create(once(pytorch_job(runtime=f"{RUNTIME:.0f}s")))
    await world.until(lambda: world.places(*JOB))
    await suspends(world, suspension)
    await asyncio.sleep(RUNTIME + TOLERATION + 120)


@pytest.mark.parametrize(("suspension", "to"), [(WHOLLY, ""), (TO_B, " to b")], ids=["wholly", "to b"])
async def test_it_is_tried_elsewhere_once_dispatching_goes_on(suspension: dict[str, Any], to: str) -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world, suspension)
        assert not await has_failed(world, *JOB)
        dispatch = dispatch_of(await world.hub.get(*JOB) or {})
        assert dispatch.waits.endswith(f"; it may run elsewhere once {NAME} no longer suspends dispatching{to}")
        assert await world.members["b"].all("PyTorchJob") == []
        await suspends(world, None)
        await asyncio.sleep(30)
        assert await world.places(*JOB) == ["b"]
        assert failed_in(dispatch_of(await world.hub.get(*JOB) or {})) == ["a"]


async def test_it_is_tried_in_those_to_which_dispatching_is_not_suspended_and_waits_in_the_last_of_them() -> None:
    async with fleet("a", "b", "c") as world:
        await fail_all(world.members["c"])
        await fails_in_a(world, TO_B)
        await asyncio.sleep(RUNTIME)
        dispatch = dispatch_of(await world.hub.get(*JOB) or {})
        assert (dispatch.member, failed_in(dispatch)) == ("c", ["a"])
        assert dispatch.waits.endswith(f"; it may run elsewhere once {NAME} no longer suspends dispatching to b")
        assert await world.members["b"].all("PyTorchJob") == []
        await suspends(world, None)
        await asyncio.sleep(30)
        assert await world.places(*JOB) == ["b"]
        assert failed_in(dispatch_of(await world.hub.get(*JOB) or {})) == ["a", "c"]


async def test_a_silent_member_does_not_end_it_while_dispatching_to_another_is_suspended() -> None:
    async with fleet("a", "b", "c") as world:
        world.links["c"].freeze()
        await fails_in_a(world, TO_B)
        await asyncio.sleep(120)
        assert not await has_failed(world, *JOB)
        dispatch = dispatch_of(await world.hub.get(*JOB) or {})
        assert dispatch.waits.endswith(f"; it may run elsewhere once {NAME} no longer suspends dispatching to b")


async def test_one_that_has_left_for_a_member_waits_while_dispatching_to_that_one_is_suspended() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime=f"{RUNTIME:.0f}s")))

        async def leaves() -> bool:
            return failed_in(dispatch_of(await world.hub.get(*JOB) or {})) == ["a"]

        await world.until(leaves, RUNTIME + TOLERATION + 60)
        await suspends(world, TO_B)
        await world.hub.patch(*JOB, {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(30)
        await world.hub.patch(*JOB, {"spec": {"runPolicy": {"suspend": False}}})
        await asyncio.sleep(60)
        assert await world.members["a"].all("PyTorchJob") == [], "it has had its try there"
        (said,) = (each for each in dispatch_of(await world.hub.get(*JOB) or {}).elsewhere if each.startswith("b "))
        assert said == f"b is not asked: {NAME} suspends dispatching to it"
        await suspends(world, None)
        await asyncio.sleep(30)
        assert await world.places(*JOB) == ["b"]


async def test_it_has_failed_once_the_policy_leaves_the_member_out_for_good() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world, TO_B)
        assert not await has_failed(world, *JOB)
        body = orjson.dumps({"spec": {"placement": {"clusterAffinity": {"exclude": ["b"]}}}})
        await world.hub.admin.request("PATCH", POLICY, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(10)
        assert await has_failed(world, *JOB)


async def test_it_has_failed_at_once_where_no_other_member_would_be_asked_after_that_either() -> None:
    async with fleet("a") as world:
        await fails_in_a(world)
        assert await has_failed(world, *JOB)
