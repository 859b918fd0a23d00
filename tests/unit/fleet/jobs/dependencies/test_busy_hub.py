"""The hub's own API server does not let one object be read at the moment that a job refers to: no member pauses."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet
from tests.unit.fleet.jobs.dependencies.test_dependencies import give, needy, refuse, runs_in, told
from webhook.core.fleet.dispatch import Dispatch
from webhook.errors import ApiError, Conflict, Forbidden, Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BUSY = Unavailable(429, "TooManyRequests", "storage is (re)initializing")


def fails_for(world: Fleet, error: ApiError, times: int) -> None:
    """Have the hub's API server answer so the first few times that it is asked for a ConfigMap."""
    request, left = world.own.request, times

    async def asked(method: str, where: str, **how: Any) -> bytes:
        nonlocal left
        if left and method == "GET" and f"/{NAMESPACE}/configmaps" in where:
            left -= 1
            raise error
        return await request(method, where, **how)

    world.own.request = asked  # type: ignore[method-assign]


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", "train") or {})


@pytest.mark.parametrize(
    "error",
    [BUSY, Unavailable(500, "InternalError", "etcdserver: leader changed"), Conflict(409, "Conflict", "try again")],
    ids=lambda error: str(error.status),
)
async def test_what_passes_in_a_moment_is_asked_again_and_keeps_nothing_from_coming_along(error: ApiError) -> None:
    async with fleet("a") as world:
        await give(world)
        fails_for(world, error, 2)
        await world.hub.cluster.create(needy(runtime="30s"))
        await world.until(runs_in(world, "a"), 5)
        await world.until(lambda: world.over("Job", "train"), 60)
        assert await told(world) == []


async def test_no_member_pauses_for_the_hubs_api_server_and_others_have_the_room_half_of_the_time() -> None:
    async with fleet("a", "b") as world:
        await give(world)
        asked = world.own.request
        refuse(world, world.hub, BUSY, {"GET"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        held, elsewhere = 0, set[str]()
        for _ in range(240):
            await asyncio.sleep(5)
            held += sum([await side.reserved() for side in world.members.values()])
            elsewhere |= set((await record(world)).elsewhere)
        assert held <= 160
        paused = [each for each in elsewhere if "is asked again at" in each]
        assert paused
        assert all(each.startswith("the hub could not permit it in ") for each in paused)
        world.own.request = asked  # type: ignore[method-assign]
        await world.until(lambda: world.over("Job", "train"), 60)


async def test_while_it_waits_for_its_permit_it_is_told_that_the_hub_is_to_blame() -> None:
    async with fleet("a") as world:
        await give(world)
        refuse(world, world.hub, BUSY, {"GET"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="10s"))
        await asyncio.sleep(15)
        waits = (await record(world)).waits
        assert waits.startswith("has not got its permit yet (ConfigMap settings cannot be read in the hub: 429")
        assert waits.endswith(", which is tried again every 5 s")


async def test_a_member_that_refuses_one_itself_pauses_as_before() -> None:
    async with fleet("a", "b") as world:
        await give(world)
        fails_for(world, BUSY, 4)
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "not here"), {"POST"}, {"configmaps"})
        await world.hub.cluster.create(needy(runtime="6000s"))
        await world.until(runs_in(world, "b"), 90)
        assert next(iter(world.running_hub._jobs.values())).choice.pauses._pauses.keys() == {"a"}
