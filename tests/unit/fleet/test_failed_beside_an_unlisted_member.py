"""A job that fails leaves its member only if it would be offered to another: not while one does not list its kind."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_swept_but_for_one_kind import without
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import Unavailable
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


async def test_it_does_not_end_while_the_hub_itself_cannot_list_its_kind_and_says_so() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world)
        await asyncio.sleep(10)
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if path.endswith("/v1/pytorchjobs"):
                raise Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")
            return await request(method, path, **how)

        backup = world.hub.cluster.server.store.backup()
        for number in range(30):
            note = {"name": f"note-{number}", "namespace": "tutti-system"}
            await world.hub.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": note})
        await asyncio.sleep(5)
        world.own.request = asked  # type: ignore[method-assign]
        world.hub.cluster.restore(backup)
        await asyncio.sleep(RUNTIME + TOLERATION + 2 * SILENT_SECONDS)
        assert world.running_hub.fleet.set_backs
        waits = dispatch_of(await world.hub.get(*JOB) or {}).waits
        assert "the hub cannot list the jobs of this kind" in waits
        assert "left in" not in waits
        world.own.request = request  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert not await has_failed(world, *JOB)
        assert await world.places(*JOB) == ["b"]


async def test_its_own_member_is_not_named_among_those_in_which_something_of_it_may_be_left() -> None:
    async with fleet("a", "b") as world:
        await fails_in_a(world)
        mend = [without(world, each, "pytorchjobs") for each in ("a", "b")]
        await asyncio.sleep(RUNTIME + TOLERATION + 20)
        assert dispatch_of(await world.hub.get(*JOB) or {}).waits.endswith("nothing of it is left in: b")
        mend[1]()
        await asyncio.sleep(20)
        said = dispatch_of(await world.hub.get(*JOB) or {}).waits
        assert said.endswith("once it is known that nothing else of it is left there")
