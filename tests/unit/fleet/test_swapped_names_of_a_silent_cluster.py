"""Two members' names are swapped while one of their clusters is silent: the gangs of the other one are followed."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.test_said_cluster import says_it_is
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.jobs.cluster_names import ASKED_SECONDS, NAME_HOLDS_SECONDS
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import SimulatedApi

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "train"


async def runs_in_a(world: Fleet, runtime: str = "60s") -> None:
    await world.hub.cluster.create(pytorch_job("train", runtime=runtime))
    await world.until(lambda: world.places(*JOB))
    assert await world.places(*JOB) == ["a"]
    await asyncio.sleep(10)


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get(*JOB) or {})


@pytest.mark.parametrize("silent", [False, True])
async def test_a_gang_is_followed_by_the_name_that_leads_to_its_cluster(silent: bool) -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        if silent:
            links["b"].freeze()
        members = world.running_hub.fleet.members
        members["a"].reach(links["b"])
        members["b"].reach(links["a"])
        await asyncio.sleep(NAME_HOLDS_SECONDS + 25)
        assert (await record(world)).member == "b"
        await asyncio.sleep(60)
        job = await world.hub.get(*JOB) or {}
        assert "Succeeded" in {each["type"] for each in job["status"]["conditions"] if each["status"] == "True"}


async def test_a_gang_of_a_silent_member_is_not_followed_to_one_that_only_says_it_is_its_cluster() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        await says_it_is(world, "b", "a")
        world.links["a"].freeze()
        await asyncio.sleep(120)
        assert (await record(world)).member == "a"


async def test_a_name_that_is_silent_for_a_moment_leads_where_it_did() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        members, link = world.running_hub.fleet.members, world.members["a"].cluster.api(HUB_ACCOUNT)
        members["b"].reach(link)
        await asyncio.sleep(5)
        world.links["a"].freeze()
        await asyncio.sleep(NAME_HOLDS_SECONDS - 5)
        assert (await record(world)).member == "a"


async def test_a_name_that_does_not_show_the_copy_is_asked_for_it_once_a_minute() -> None:
    async with fleet("a", "b") as world:
        await runs_in_a(world)
        await says_it_is(world, "b", "a")
        asked, request = 0, world.links["b"].request

        async def counted(method: str, path: str, **how: Any) -> bytes:
            nonlocal asked
            asked += path.endswith("/pytorchjobs/train")
            return await request(method, path, **how)

        world.links["b"].request = counted  # type: ignore[method-assign]
        world.links["a"].freeze()
        await asyncio.sleep(10 * ASKED_SECONDS)
        assert 8 <= asked <= 11


async def starts_again(world: Fleet) -> None:
    """Start the hub once more, whose job a has: its record is lost, as after a restore of the hub's cluster."""
    await runs_in_a(world, "6000s")
    world.kill()
    await world.hub.patch(*JOB, {"metadata": {"annotations": {names.DISPATCH: None}}})
    await asyncio.sleep(5)
    world.start()


def swap(world: Fleet) -> SimulatedApi:
    """Swap two names while a's cluster is silent, and return what now leads there, by the name of b."""
    links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
    links["a"].freeze()
    world.running_hub.fleet.reach("a", links["b"])
    world.running_hub.fleet.reach("b", links["a"])
    return links["a"]


async def test_a_cluster_that_was_never_swept_is_waited_for_by_its_new_name_but_not_by_later_jobs() -> None:
    async with fleet("a", "b") as world:
        await starts_again(world)
        world.links["a"].freeze()
        await asyncio.sleep(20)
        await world.hub.cluster.create(plain_job("later", runtime="6000s"))
        to_a = swap(world)
        await asyncio.sleep(40)
        assert await world.places(*JOB) == ["a"]
        assert await world.places("Job", "later") == ["b"]
        (said,) = (await record(world)).elsewhere
        assert said.startswith("b does not answer")
        to_a.thaw()
        await asyncio.sleep(20)
        assert (await record(world)).member == "b"
        assert not world.running_hub.fleet.swept.due


async def test_one_that_was_not_swept_for_a_kind_is_waited_for_by_its_new_name() -> None:
    async with fleet("a", "b") as world:
        await starts_again(world)
        request, listed = world.own.request, False

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if path.endswith("/pytorchjobs") and "/namespaces/" not in path and not listed:
                raise Unavailable(500, "InternalError", "conversion webhook for it failed")
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(30)
        world.links["a"].freeze()
        listed = True
        await asyncio.sleep(90)
        kind = KINDS["PyTorchJob.kubeflow.org"].feed
        assert world.running_hub.fleet.swept.unlisted == {kind: {"a"}}
        swap(world)
        await asyncio.sleep(40)
        assert world.running_hub.fleet.swept.unlisted == {kind: {"b"}}
        assert await world.places(*JOB) == ["a"]


async def test_new_credentials_are_no_reason_for_a_sweep_while_all_that_is_waited_for_was_swept() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(20)
        shared = world.running_hub.fleet
        shared.reach("b", world.members["b"].cluster.api(HUB_ACCOUNT))
        assert not shared.swept.due
        shared.swept.make_due(["a"])
        shared.swept.lost = {"a": "a while ago"}
        shared.reach("b", world.members["b"].cluster.api(HUB_ACCOUNT))
        assert shared.swept.due.keys() == {"a"}
