"""A gang that waits long in the one member that can have it: its record says why, whoever is at fault there."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, plain_job
from tests.unit.fleet.test_hub_quota import events_of
from tests.unit.fleet.test_stopping_others import job, members, runs
from tests.unit.fleet.test_what_jobs_are_told import has_quota
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", "train") or {})


async def test_the_record_says_why_the_only_member_does_not_take_it_and_no_longer_once_it_has() -> None:
    async with members("a") as world:
        await world.hub.cluster.create(job("full"))
        await runs(world, "full")
        await world.hub.cluster.create(job("train"))
        await asyncio.sleep(30)
        waiting = await record(world)
        assert waiting.phase is DispatchPhase.OFFERED
        assert waiting.waits.startswith("says WaitingForQuota: asks ")
        assert waiting.elsewhere == ()
        world.links["a"].freeze()
        await asyncio.sleep(75)
        assert (await record(world)).waits == "does not answer"
        world.links["a"].thaw()
        await world.hub.delete("Job", "full")
        await runs(world, "train")
        assert (await record(world)).waits == ""


async def test_the_record_says_that_the_member_was_taken_away() -> None:
    async with members("a") as world:
        await world.hub.cluster.create(job("full"))
        await runs(world, "full")
        await world.hub.cluster.create(job("train"))
        await asyncio.sleep(5)
        world.running_hub.leave("a")
        await asyncio.sleep(30)
        assert (await record(world)).waits == "is not a member of this hub"


async def test_one_that_goes_round_says_what_the_member_that_is_asked_said_before_and_an_event_says_it_too() -> None:
    async with members("a", "b") as world:
        for name in ("full", "more"):
            await world.hub.cluster.create(job(name))
            await runs(world, name)
        await world.hub.cluster.create(job("train"))
        await asyncio.sleep(20)
        assert not await events_of(world, "NoMember"), "that is soon"
        await asyncio.sleep(15)
        waiting = await record(world)
        assert waiting.waits.startswith("says WaitingForQuota: asks ")
        (other,) = {"a", "b"} - {waiting.member}
        assert waiting.elsewhere[0].startswith(f"{other} says WaitingForQuota: asks ")
        (event,) = await events_of(world, "NoMember")
        for name in ("a", "b"):
            assert f"{name} says WaitingForQuota: asks " in event["message"]
        await asyncio.sleep(600)
        assert len(await events_of(world, "NoMember")) == 1, "one an hour"


async def test_one_that_can_start_in_no_member_is_told_so_unless_one_of_them_does_not_answer() -> None:
    async with members("a", "b") as world:
        await world.hub.cluster.create(plain_job("wide", pods=5, runtime="600s"))
        await asyncio.sleep(40)
        (event,) = await events_of(world, "NoMember")
        assert event["type"] == "Warning"
        assert event["message"].startswith("It can start in no member that it may run in, whatever ends: ")
        wide = await world.hub.get("Job", "wide")
        assert dispatch_of(wide or {}).never
        await has_quota(world, "b", 8)
        assert await runs(world, "wide") == "b"
        assert not dispatch_of(await world.hub.get("Job", "wide") or {}).never
        world.links["b"].freeze()
        await world.hub.cluster.create(plain_job("wider", pods=5, runtime="600s"))
        await asyncio.sleep(40)
        (event,) = [each for each in await events_of(world, "NoMember") if each["involvedObject"]["name"] == "wider"]
        assert event["type"] == "Normal"


async def test_what_members_said_before_it_was_suspended_is_forgotten() -> None:
    async with members("a", "b") as world:
        await world.hub.cluster.create(job("full"))
        await runs(world, "full")
        await world.hub.cluster.create(job("train"))
        await runs(world, "train")
        assert (await record(world)).member == "b"
        assert "a says WaitingForQuota: " in (await record(world)).elsewhere[0]
        await world.hub.patch("Job", "train", {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        assert (await record(world)).phase is DispatchPhase.NOWHERE
        await world.hub.delete("Job", "full")
        await asyncio.sleep(30)
        await world.hub.patch("Job", "train", {"spec": {"suspend": False}})
        await runs(world, "train")
        assert (await record(world)).member == "a", "the first by name, as any other gang"
        assert (await record(world)).elsewhere == ()
