"""A gang that its member has stopped, for one of higher priority there: it goes where there is room."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet
from tests.unit.fleet.test_hub_quota import events_of
from tests.unit.fleet.test_stopping_others import job, members, runs
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.jobs.asking.choice import OFFER_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


async def stopped(world: Fleet) -> str:
    """Fill all members, have a gang stopped by an urgent one, and return its name."""
    usual = [f"usual-{name}" for name in world.members]
    for name in usual:
        await world.hub.cluster.create(job(name))
        await runs(world, name)
    await world.hub.cluster.create(job("urgent", "urgent"))
    await runs(world, "urgent")
    await asyncio.sleep(5)
    (found,) = [name for name in usual if not await world.places("Job", name)]
    return found


async def phase(world: Fleet, name: str) -> DispatchPhase:
    return dispatch_of(await world.hub.get("Job", name) or {}).phase


async def test_it_runs_in_another_member_as_soon_as_there_is_room_for_it() -> None:
    async with members("a", "b") as world:
        name = await stopped(world)
        await asyncio.sleep(60)
        other = "usual-b" if name == "usual-a" else "usual-a"
        await world.hub.delete("Job", other)
        began = asyncio.get_running_loop().time()
        assert await runs(world, name) == other.removeprefix("usual-")
        assert asyncio.get_running_loop().time() - began < 10


async def test_it_is_left_where_it_is_for_as_long_as_an_offer_would_be() -> None:
    async with members("a", "b") as world:
        name = await stopped(world)
        assert await phase(world, name) is DispatchPhase.GRANTED
        assert not await events_of(world, "LeavesMember")
        await asyncio.sleep(OFFER_SECONDS)
        assert await phase(world, name) is not DispatchPhase.GRANTED
        (event,) = await events_of(world, "LeavesMember")
        assert " stopped it, and did not start it again in time (Preempted: " in event["message"]
        await world.hub.delete("Job", name)
        await asyncio.sleep(60)
        assert len(await events_of(world, "LeavesMember")) == 1, "none where it is not to run"


async def test_it_runs_where_it_was_if_there_is_room_again_and_nowhere_else() -> None:
    async with members("a", "b") as world:
        name = await stopped(world)
        await asyncio.sleep(60)
        await world.hub.delete("Job", "urgent")
        assert await runs(world, name) == name.removeprefix("usual-")


async def test_a_sole_member_keeps_it_with_its_permit() -> None:
    async with members("a") as world:
        name = await stopped(world)
        await asyncio.sleep(120)
        assert await phase(world, name) is DispatchPhase.GRANTED
        await world.hub.delete("Job", "urgent")
        assert await runs(world, name) == "a"


async def test_its_record_says_why_in_its_members_words_for_as_long_as_it_is_stopped() -> None:
    async with members("a") as world:
        name = await stopped(world)
        waits = dispatch_of(await world.hub.get("Job", name) or {}).waits
        assert waits.startswith("has stopped it (Preempted: ")
        assert "urgent" in waits
        (event,) = await events_of(world, "StoppedInMember")
        assert event["message"] == f"a {waits}"
        await world.hub.delete("Job", "urgent")
        assert await runs(world, name) == "a"
        await asyncio.sleep(5)
        assert not dispatch_of(await world.hub.get("Job", name) or {}).waits
        await world.hub.cluster.create(job("next", "urgent"))
        await runs(world, "next")
        await asyncio.sleep(90)
        first, second = await events_of(world, "StoppedInMember")
        assert "next" in first["message"] + second["message"], "one each time"


async def test_one_that_goes_to_another_member_says_why_the_first_has_stopped_it() -> None:
    async with members("a", "b") as world:
        name = await stopped(world)
        await asyncio.sleep(OFFER_SECONDS)
        (why,) = dispatch_of(await world.hub.get("Job", name) or {}).elsewhere
        assert "stopped it, and did not start it again in time (Preempted: " in why


async def held(world: Fleet, member: str, name: str) -> None:
    """Have a member's administrator hold a copy that runs there."""
    await world.members[member].patch("Job", name, {"spec": {"suspend": True}})


async def test_one_that_is_held_in_its_member_is_offered_to_the_others_first() -> None:
    async with members("a", "b", "c") as world:
        await world.hub.cluster.create(job("usual"))
        assert await runs(world, "usual") == "a"
        await held(world, "a", "usual")
        await asyncio.sleep(OFFER_SECONDS + 10)
        assert await runs(world, "usual") == "b"
        (why,) = dispatch_of(await world.hub.get("Job", "usual") or {}).elsewhere
        assert why == "a stopped it, and did not start it again in time (OnHold: it was suspended)"


async def test_one_that_is_held_in_each_of_them_is_not_offered_to_one_twice_before_the_last() -> None:
    async with members("a", "b", "c") as world:
        await world.hub.cluster.create(job("usual"))
        found = []
        for _ in range(3):
            found.append(await runs(world, "usual"))
            await held(world, found[-1], "usual")
            await asyncio.sleep(OFFER_SECONDS + 10)
        assert found == ["a", "b", "c"]
        assert await runs(world, "usual")


async def test_it_is_not_taken_from_its_member_for_one_that_does_not_answer() -> None:
    async with members("a", "b") as world:
        await world.hub.cluster.create(job("usual-a"))
        await runs(world, "usual-a")
        world.links["b"].freeze()
        await asyncio.sleep(30)
        await world.hub.cluster.create(job("urgent", "urgent"))
        await asyncio.sleep(120)
        assert await phase(world, "usual-a") is DispatchPhase.GRANTED
        world.links["b"].thaw()
        assert await runs(world, "usual-a") == "b"
