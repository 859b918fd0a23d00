"""A job that fails leaves its member only if it would be offered to another: not while one does not list its kind."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_swept_but_for_one_kind import without
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "pytorch-test"
RUNTIME = 90.0


async def fails_in_a(world: Fleet) -> None:
    """Have a job start in member a, which fails there once the hub was restarted."""
    await fail_all(world.members["a"])
    await world.hub.cluster.create(failover_policy())
    await world.hub.cluster.create(once(pytorch_job(runtime=f"{RUNTIME:.0f}s")))
    await world.until(lambda: world.places(*JOB))
    assert await world.places(*JOB) == ["a"]
    await world.stop()
    world.start()


@pytest.mark.parametrize("members", [("a", "b"), ("a", "b", "c")])
async def test_it_has_failed_when_the_member_was_waited_for_as_for_a_silent_one(members: tuple[str, ...]) -> None:
    async with fleet(*members) as world:
        await fails_in_a(world)
        without(world, "b", "pytorchjobs")
        await asyncio.sleep(RUNTIME + TOLERATION + SILENT_SECONDS - 20)
        dispatch = dispatch_of(await world.hub.get(*JOB) or {})
        assert (dispatch.phase, dispatch.member) == (DispatchPhase.GRANTED, "a")
        assert dispatch.waits.endswith("once it is known that nothing of it is left in: b")
        await asyncio.sleep(60)
        assert await has_failed(world, *JOB)
        assert not await world.places(*JOB)


async def test_it_is_tried_elsewhere_once_the_member_lists_its_kind_again() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world)
        mend = without(world, "b", "pytorchjobs")
        await asyncio.sleep(RUNTIME + TOLERATION + 20)
        mend()
        await asyncio.sleep(40)
        assert await world.places(*JOB) == ["b"]
        assert not await has_failed(world, *JOB)


async def test_it_does_not_wait_where_no_other_would_have_it() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world)
        await world.members["b"].cluster.create(once(pytorch_job(runtime="6000s")))
        without(world, "b", "pytorchjobs")
        await asyncio.sleep(RUNTIME + TOLERATION + 20)
        assert await has_failed(world, *JOB)
