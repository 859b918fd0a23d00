"""What a job of the hub is told of what its member did with it: once each time, and in words that are so."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE
from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.failing import fail_all, failed_in, failover_policy, once
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_hub_quota import events_of
from tests.unit.fleet.test_stopped_there import stopped
from tests.unit.fleet.test_stopping_others import job, members, runs
from tests.unit.fleet.test_two_processes import records_written, second_process
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.errors import ApiError, Conflict, Forbidden, Unavailable
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
NO_ANSWER = Unavailable(0, "Timeout", "no answer")


async def record(world: Fleet, name: str) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", name) or {})


async def has_quota(world: Fleet, member: str, cpu: int) -> None:
    """Give a member's queue that much."""
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}
    body = orjson.dumps({"spec": {"resourceGroups": [group]}})
    path = f"/apis/{KUEUE}/clusterqueues/research"
    await world.members[member].admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)


def once_answered(link: Any, error: ApiError, which: Callable[[str, str, bytes], bool], times: int = 1) -> list[int]:
    """Have an API server answer the next such requests with an error; return how many are left."""
    honest, left = link.request, [times]

    async def request(method: str, path: str, **more: Any) -> bytes:
        if left[0] and which(method, path, more.get("body") or b""):
            left[0] -= 1
            raise error
        answer: bytes = await honest(method, path, **more)
        return answer

    link.request = request
    return left


async def test_each_stop_is_told_with_its_own_reason_though_it_ran_but_a_moment_in_between() -> None:
    async with members("a") as world:
        await world.hub.cluster.create(job("usual"))
        await runs(world, "usual")
        brief = job("first", "urgent")
        brief["spec"]["template"]["metadata"]["annotations"]["tutti.dev/simulated-runtime"] = "1s"
        await world.hub.cluster.create(brief)

        async def runs_again() -> bool:
            return await world.over("Job", "first") and bool(await world.places("Job", "usual"))

        await world.until(runs_again)
        await world.hub.cluster.create(job("second", "urgent"))
        await runs(world, "second")
        await asyncio.sleep(50)
        first, second = sorted(event["message"] for event in await events_of(world, "StoppedInMember"))
        assert "first" in first
        assert "second" in second


async def test_a_second_process_says_the_same_of_a_failure() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        policy = failover_policy()
        policy["spec"]["failover"]["application"]["decisionConditions"]["tolerationSeconds"] = 1000
        await world.hub.cluster.create(policy)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await asyncio.sleep(20)
        written = records_written(world)
        async with second_process(world):
            await asyncio.sleep(600)
        assert len(await events_of(world, "FailedInMember")) == 1
        assert written == []


async def test_what_is_not_stored_at_once_is_told_later() -> None:
    async with members("a") as world:
        left = once_answered(world.own, NO_ANSWER, lambda method, _, body: b"StoppedInMember" in body)
        await stopped(world)
        await asyncio.sleep(70)
        assert left == [0]
        assert len(await events_of(world, "StoppedInMember")) == 1


@pytest.mark.parametrize("error", [Forbidden(403, "Forbidden", "denied"), NO_ANSWER], ids=str)
async def test_that_it_leaves_is_told_though_the_member_does_not_delete_it_at_once(error: ApiError) -> None:
    async with members("a", "b") as world:
        name = await stopped(world)
        link = world.links[name.removeprefix("usual-")]
        once_answered(link, error, lambda method, path, _: method == "DELETE" and path.endswith(name), 3)
        await asyncio.sleep(90)
        assert len(await events_of(world, "LeavesMember")) == 1


async def test_that_it_was_given_up_in_a_silent_member_is_told() -> None:
    async with fleet("a", "b", silent_hub_seconds=15) as world:
        await asyncio.sleep(10)
        await world.hub.cluster.create(plain_job("train", pods=2, runtime="6000s"))
        assert await runs(world, "train") == "a"
        world.links["a"].freeze()

        async def runs_in_b() -> bool:
            return await world.members["b"].running() == 2

        await world.until(runs_in_b, 300)
        (event,) = await events_of(world, "LeavesMember")
        assert event["message"].startswith("nothing was heard from a for ")
        assert event["message"].endswith(" s. It is offered to members again")


async def test_a_write_that_conflicts_holds_back_no_words() -> None:
    async with members("a") as world:
        await world.hub.cluster.create(job("full"))
        await runs(world, "full")
        await world.hub.cluster.create(job("wide"))
        await asyncio.sleep(100)
        moved_on = Conflict(409, "Conflict", "the object has been modified")
        left = once_answered(world.own, moved_on, lambda method, _, body: b"ExceedsMaxQuota" in body)
        await has_quota(world, "a", 3)
        await asyncio.sleep(15)
        assert left == [0]
        assert "ExceedsMaxQuota" in (await record(world, "wide")).waits


async def test_the_last_member_in_which_it_failed_is_named_though_a_process_ended_before_it_had_written_that() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        left = once_answered(world.own, NO_ANSWER, lambda method, _, body: method == "PATCH" and b"recalled" in body)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), 60)
        assert left == [0]
        assert failed_in(dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {})) == ["a"]


async def test_a_member_that_is_none_any_more_is_named_no_longer() -> None:
    async with members("a", "b") as world:
        await world.hub.cluster.create(plain_job("wide", pods=5, runtime="600s"))
        await asyncio.sleep(20)
        world.running_hub.leave("b")
        await asyncio.sleep(60)
        assert (await record(world, "wide")).elsewhere == ()


async def test_a_member_whose_lease_is_not_renewed_may_yet_have_room_for_it() -> None:
    async with fleet("a", "b", silent_hub_seconds=300) as world:
        await has_quota(world, "b", 8)
        world.links["b"].freeze()
        await asyncio.sleep(40)
        await world.hub.cluster.create(plain_job("wide", pods=5, runtime="600s"))
        await asyncio.sleep(40)
        (event,) = await events_of(world, "NoMember")
        assert event["type"] == "Normal"


async def test_that_it_can_start_in_no_member_is_told_also_where_that_is_found_later_in_the_hour() -> None:
    async with members("a", "b") as world:
        world.links["b"].freeze()
        await world.hub.cluster.create(plain_job("wide", pods=5, runtime="600s"))
        await asyncio.sleep(40)
        world.links["b"].thaw()
        await asyncio.sleep(300)
        assert {event["type"] for event in await events_of(world, "NoMember")} == {"Normal", "Warning"}


async def test_of_nodes_too_a_member_says_when_it_is_not_so_any_more() -> None:
    """Its reason has the same code for what no node will ever hold and for what none has room for now."""
    async with members("a") as world:
        await has_quota(world, "a", 100)
        for name, cpu in (("full", 12), ("wide", 10)):
            made = plain_job(name, pods=1, runtime="9000s")
            made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
            await world.hub.cluster.create(made)
            await asyncio.sleep(30)
        assert (await record(world, "wide")).never
        await world.members["a"].cluster.add_node("node-new", cpu="12")
        await asyncio.sleep(60)
        assert await world.places("Job", "full") == ["a"]
        assert not (await record(world, "wide")).never


@pytest.mark.parametrize("what", ["a node with such a label", "such a queue"])
async def test_what_no_member_has_is_no_room_to_wait_for(what: str) -> None:
    async with members("a", "b") as world:
        made = plain_job("wide", pods=1, runtime="600s")
        if what == "such a queue":
            made["metadata"]["labels"][names.QUEUE_LABELS[0]] = "nothing"
        else:
            made["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "h1000"}
        await world.hub.cluster.create(made)
        await asyncio.sleep(60)
        (event,) = await events_of(world, "NoMember")
        assert event["type"] == "Warning"
