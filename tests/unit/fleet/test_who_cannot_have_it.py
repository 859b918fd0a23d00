"""A member that cannot have a gang, or does not answer, sends no gang to and fro between the others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from tests.unit.fleet.test_freed_room import without_pods
from tests.unit.fleet.test_odd_answers import lie
from tests.unit.fleet.test_stopping_others import job, members, runs
from webhook.fleet.jobs.asking.choice import OFFER_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
OFFERS_MAX = 3
"""In one round: one to each of the two others, and one for room at the cost of others."""
ROUNDS = 6


async def has_a_job_of_that_name(world: Fleet) -> None:
    theirs = job("train")
    theirs["spec"] = {**theirs["spec"], "suspend": True}
    del theirs["spec"]["managedBy"]
    del theirs["metadata"]["labels"]
    await world.members["c"].cluster.create(theirs)


async def does_not_answer(world: Fleet) -> None:
    world.links["c"].freeze()


async def answers_with_no_object(world: Fleet) -> None:
    lie(world, "c", lambda path: path.endswith("/train"), b"<html>")


Unfit = Callable[[Fleet], Awaitable[None]]
ANSWERS = [has_a_job_of_that_name, answers_with_no_object]
UNFIT = pytest.mark.parametrize("unfit", [*ANSWERS, does_not_answer])


async def offers(world: Fleet) -> int:
    return dispatch_of(await world.hub.get("Job", "train") or {}).offer.number


async def filled(world: Fleet, unfit: Unfit) -> None:
    """Fill all members, and see to it that c cannot have the gang that comes next."""
    for number in range(len(world.members)):
        await world.hub.cluster.create(job(f"full-{number}"))
        await runs(world, f"full-{number}")
    await unfit(world)
    await asyncio.sleep(15)


@UNFIT
async def test_a_gang_that_the_others_have_no_room_for_is_offered_to_each_once_in_a_round(unfit: Unfit) -> None:
    async with members("a", "b", "c") as world:
        await filled(world, unfit)
        await world.hub.cluster.create(job("train"))
        await asyncio.sleep(30)
        before = await offers(world)
        await asyncio.sleep(ROUNDS * OFFER_SECONDS)
        assert await offers(world) - before <= ROUNDS * OFFERS_MAX


@pytest.mark.parametrize("unfit", ANSWERS)
async def test_room_that_frees_where_a_gang_cannot_be_moves_it_nowhere(unfit: Unfit) -> None:
    async with members("a", "b", "c") as world:
        await filled(world, unfit)
        await world.hub.cluster.create(job("train"))
        await asyncio.sleep(30)
        side, before = world.members["c"], await offers(world)
        name = (await side.pods())[0].rpartition("-")[0]
        await world.hub.delete("Job", name)
        await world.until(lambda: without_pods(side, name))
        await asyncio.sleep(3)
        assert await offers(world) - before <= OFFERS_MAX


@UNFIT
async def test_a_gang_that_may_stop_others_stops_one_in_a_member_that_can_have_it(unfit: Unfit) -> None:
    async with members("a", "b", "c") as world:
        await filled(world, unfit)
        await world.hub.cluster.create(job("train", "urgent"))
        assert await runs(world, "train") in ("a", "b")


async def test_a_member_that_answers_again_is_asked_soon_though_the_others_were_asked_in_vain() -> None:
    async with fleet("a", "b", "c") as world:
        for number in range(2):
            await world.hub.cluster.create(plain_job(f"full-{number}", pods=4, runtime="6000s"))
            await runs(world, f"full-{number}")
        await does_not_answer(world)
        await asyncio.sleep(15)
        await world.hub.cluster.create(plain_job(pods=4, runtime="600s"))
        await asyncio.sleep(30)
        world.links["c"].thaw()
        began = asyncio.get_running_loop().time()
        assert await runs(world, "train") == "c"
        assert asyncio.get_running_loop().time() - began <= OFFER_SECONDS
