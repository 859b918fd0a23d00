"""A job that fails in its member is tried in the others, each once, where a propagation policy says so."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failed_in, failover_policy, once
from tests.unit.fleet.test_hub_quota import events_of
from tests.unit.fleet.test_odd_answers import lie
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time


def true_conditions(job: Mapping[str, Any] | None) -> set[str]:
    told = (job or {}).get("status", {}).get("conditions", ())
    return {each["type"] for each in told if each["status"] == "True"}


async def has_failed(world: Fleet, kind: str, name: str) -> bool:
    job = await world.hub.get(kind, name)
    return "Failed" in true_conditions(job) and dispatch_of(job or {}).phase is DispatchPhase.NOWHERE


@asynccontextmanager
async def failed_in_a() -> AsyncIterator[Fleet]:
    """Yield a fleet of two, in one of which a gang has just failed."""
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await asyncio.sleep(15)
        yield world


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("job", [pytorch_job(runtime="5s"), plain_job(runtime="5s")], ids=["PyTorchJob", "Job"])
async def test_it_runs_to_its_end_in_another_member_and_never_seemed_to_have_failed(
    job: dict[str, Any], version: str
) -> None:
    kind, name = job["kind"], job["metadata"]["name"]
    seen: set[str] = set()
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy(kind, version))
        await world.hub.cluster.create(once(job))
        began = asyncio.get_running_loop().time()
        while not await world.over(kind, name):
            seen |= true_conditions(await world.hub.get(kind, name))
            await asyncio.sleep(0.2)
            assert asyncio.get_running_loop().time() - began < TOLERATION + 60
        assert not seen & {"Failed", "FailureTarget"}
        assert failed_in(dispatch_of(await world.hub.get(kind, name) or {})) == ["a"]
        assert await world.empty(kind)


async def test_it_says_that_and_why_it_failed_and_when_it_leaves_and_then_that_it_does() -> None:
    async with failed_in_a() as world:
        waits = dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {}).waits
        assert waits.startswith("says that it has failed (")
        assert waits.endswith(f"; if it may still run elsewhere, it leaves after {TOLERATION:.0f} s")
        (event,) = await events_of(world, "FailedInMember")
        assert (event["type"], event["message"]) == ("Warning", f"a {waits}")
        assert not await events_of(world, "LeavesMember")
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"), TOLERATION + 60)
        (event,) = await events_of(world, "LeavesMember")
        said = waits.partition(";")[0]
        assert event["message"] == f"a {said}. It is offered to members again once nothing of it is left there"
        assert len(await events_of(world, "FailedInMember")) == 1


async def test_another_member_has_it_within_the_toleration_and_five_seconds() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))

        async def failed_in_a() -> bool:
            return "Failed" in true_conditions(await world.members["a"].get("PyTorchJob", "pytorch-test"))

        await world.until(failed_in_a)
        await asyncio.sleep(TOLERATION - 1)
        assert await world.members["b"].pods() == []

        async def in_b() -> bool:
            return await world.members["b"].running() == 3

        await world.until(in_b, 1 + 5 + 2)


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_each_member_is_tried_once_and_then_it_has_failed(make: Any) -> None:
    job = once(make(runtime="5s"))
    kind, name = job["kind"], job["metadata"]["name"]
    tried = []
    async with fleet("a", "b", "c") as world:
        for side in world.members.values():
            await fail_all(side)
        await world.hub.cluster.create(failover_policy(kind))
        await world.hub.cluster.create(job)
        while not await has_failed(world, kind, name):
            member = dispatch_of(await world.hub.get(kind, name) or {}).member
            if member and (not tried or tried[-1] != member):
                tried.append(member)
            await asyncio.sleep(0.2)
        assert sorted(tried) == ["a", "b", "c"]
        assert sorted(failed_in(dispatch_of(await world.hub.get(kind, name) or {}))) == ["a", "b", "c"]
        told = [event["message"] for event in await events_of(world, "FailedInMember")]
        (last,) = [said for said in told if "; it is tried nowhere else." in said]
        assert last.startswith(f"{tried[-1]} says that it has failed (")
        assert len(told) == 3
        assert await world.empty(kind)
        await asyncio.sleep(60)
        assert await world.empty(kind)


async def test_a_member_that_may_not_have_it_is_not_asked_and_it_fails_without_waiting_for_one() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy(placement={"clusterAffinity": {"clusterNames": ["a"]}}))
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), 25)
        assert await world.members["b"].all("PyTorchJob") == []


@asynccontextmanager
async def only_a_may_have_it() -> AsyncIterator[Fleet]:
    """Yield a fleet of two, in one of which the gang fails; in the other somebody else has a job of its name."""
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        theirs = pytorch_job()
        del theirs["spec"]["runPolicy"]
        del theirs["metadata"]["labels"]
        await world.members["b"].cluster.create(theirs)
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        yield world


async def test_a_member_with_a_job_of_that_name_is_not_waited_for_when_it_has_failed() -> None:
    async with only_a_may_have_it() as world:
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), TOLERATION + 25)


async def test_one_that_was_stopped_after_it_had_failed_is_tried_there_again_once_it_goes_on() -> None:
    """Or it would wait for the others for ever, be there any that may have it or not."""
    async with only_a_may_have_it() as world:

        async def is_nowhere() -> bool:
            return dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {}).phase is DispatchPhase.NOWHERE

        await asyncio.sleep(15)
        assert not await is_nowhere()
        await world.hub.patch("PyTorchJob", "pytorch-test", {"spec": {"runPolicy": {"suspend": True}}})
        await world.until(is_nowhere)
        await world.hub.patch("PyTorchJob", "pytorch-test", {"spec": {"runPolicy": {"suspend": False}}})
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), TOLERATION + 60)


@pytest.mark.parametrize("away", [20, 3600])
async def test_a_member_that_does_not_answer_is_waited_for_a_minute(away: float) -> None:
    async with failed_in_a() as world:
        world.links["b"].freeze()
        began = asyncio.get_running_loop().time()
        if away > SILENT_SECONDS:
            await asyncio.sleep(TOLERATION + 15)
            waits = dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {}).waits
            assert waits.endswith("; others may have it, and do not answer: b")
            await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), TOLERATION + 2 * SILENT_SECONDS)
            assert asyncio.get_running_loop().time() - began > SILENT_SECONDS
        else:
            await asyncio.sleep(TOLERATION + away)
            world.links["b"].thaw()
            # Asked again every few seconds, and 5 s to run.
            await world.until(lambda: world.over("PyTorchJob", "pytorch-test"), 25)


async def test_a_silence_that_has_just_begun_is_not_the_end_of_a_gang_that_failed_long_ago() -> None:
    async with failed_in_a() as world:
        # Its own member keeps it: what is not reached there may yet run.
        world.links["a"].freeze()
        await asyncio.sleep(TOLERATION + SILENT_SECONDS)
        world.links["b"].freeze()
        await asyncio.sleep(1)
        world.links["a"].thaw()
        await asyncio.sleep(20)
        world.links["b"].thaw()
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"), 60)


async def test_a_silence_is_not_counted_over_a_time_in_which_nobody_asked() -> None:
    async with failed_in_a() as world:
        world.links["b"].freeze()
        await asyncio.sleep(TOLERATION + 5)
        # Its own member keeps it, so that it is not asked for in the other, which is there all that time.
        world.links["a"].freeze()
        await asyncio.sleep(5)
        world.links["b"].thaw()
        await asyncio.sleep(SILENT_SECONDS)
        world.links["b"].freeze()
        await asyncio.sleep(1)
        world.links["a"].thaw()
        await asyncio.sleep(20)
        world.links["b"].thaw()
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"), 60)


@pytest.mark.parametrize("lasts", [20, 3600])
async def test_answers_that_cannot_be_read_are_a_silence_from_when_they_began(lasts: float) -> None:
    async with failed_in_a() as world:
        # Its own member keeps it long past the time that its policy gives.
        world.links["a"].freeze()
        await asyncio.sleep(TOLERATION + SILENT_SECONDS)
        honest = world.links["b"].request
        lie(world, "b", lambda path: path.endswith("/pytorch-test"), b"<html>")
        world.links["a"].thaw()
        began = asyncio.get_running_loop().time()
        if lasts > SILENT_SECONDS:
            await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), 2 * SILENT_SECONDS)
            assert asyncio.get_running_loop().time() - began > SILENT_SECONDS
        else:
            await asyncio.sleep(lasts)
            world.links["b"].request = honest  # type: ignore[method-assign]
            await world.until(lambda: world.over("PyTorchJob", "pytorch-test"))


async def test_without_a_policy_a_job_that_fails_has_failed() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: has_failed(world, "PyTorchJob", "pytorch-test"), 25)
        assert await world.members["b"].all("PyTorchJob") == []


async def test_where_a_policy_suspends_dispatching_nothing_is_offered_until_it_does_not() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(failover_policy(suspension={"dispatching": True}))
        await asyncio.sleep(1)
        await world.hub.cluster.create(pytorch_job(runtime="5s"))
        await asyncio.sleep(30)
        dispatch = dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {})
        assert dispatch.phase is DispatchPhase.NOWHERE
        assert "suspends dispatching" in dispatch.elsewhere[0]
        path = f"/apis/{VERSIONS[0]}/namespaces/{NAMESPACE}/propagationpolicies/for-pytorchjob"
        change = orjson.dumps({"spec": {"suspension": None}})
        await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"))
