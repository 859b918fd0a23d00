"""A hub of eight members: each gang is whole in one of them, and costs no more than in a fleet of two."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from tests.unit.fleet.test_cost import granted, requests
from tests.unit.fleet.test_what_jobs_are_told import has_quota

pytestmark = pytest.mark.virtual_time
MEMBERS = tuple("abcdefgh")
GANGS = 40
PODS = 2
OF_EACH = 6
"""Gangs that a member has room for: all but one of them have room for all gangs."""


async def with_room(world: Fleet) -> None:
    for name, side in world.members.items():
        await side.cluster.add_node(f"more-{name}", cpu="8")
        await has_quota(world, name, OF_EACH * PODS)
    await asyncio.sleep(5)


async def submitted(world: Fleet) -> list[str]:
    gangs = [f"job-{number:02}" for number in range(GANGS)]
    for name in gangs:
        await world.hub.cluster.create(plain_job(name, pods=PODS, runtime="6000s"))
    return gangs


async def places(world: Fleet) -> dict[str, set[str]]:
    """Return of each gang the members that run all pods of one, or some."""
    found: dict[str, set[str]] = {}
    for name, side in world.members.items():
        for pod in await side.pods():
            found.setdefault(pod.rpartition("-")[0], set()).add(name)
    return found


def counted(world: Fleet, *members: str) -> list[str]:
    """Have noted from now on what the hub's process asks these members."""
    found: list[str] = []

    def of(ask: Any) -> Any:
        async def request(method: str, path: str, **more: Any) -> bytes:
            found.append(f"{method} {path}")
            answer: bytes = await ask(method, path, **more)
            return answer

        return request

    for name in members:
        world.links[name].request = of(world.links[name].request)  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("silent", ["", "c"])
async def test_forty_gangs_are_whole_in_one_of_eight_members_each_whether_one_is_silent_or_not(silent: str) -> None:
    async with fleet(*MEMBERS) as world:
        await with_room(world)
        if silent:
            world.links[silent].freeze()
            await asyncio.sleep(20)
        gangs = await submitted(world)

        async def all_run() -> bool:
            return sum([await side.running() for side in world.members.values()]) == GANGS * PODS

        await world.until(all_run, 15)
        found = await places(world)
        assert sorted(found) == gangs
        assert {len(members) for members in found.values()} == {1}
        assert {member for members in found.values() for member in members} == set(MEMBERS) - {silent or "h"}


async def test_a_gang_costs_no_more_requests_where_there_are_more_members_that_are_not_asked() -> None:
    costs = []
    for members in (MEMBERS[:2], MEMBERS):
        async with fleet(*members) as world:
            await with_room(world)
            unasked, asked = counted(world, *members[1:]), requests(world, "job-00")
            await asyncio.sleep(30)
            idle, began = len(unasked), asyncio.get_running_loop().time()
            await world.hub.cluster.create(plain_job("job-00", pods=PODS, runtime="6000s"))
            await world.until(lambda world=world: granted(world, "job-00"), 5)
            await world.hub.cluster.create(plain_job("job-01", pods=PODS, runtime="6000s"))
            await world.until(lambda world=world: granted(world, "job-01"), 5)
            await asyncio.sleep(30 - (asyncio.get_running_loop().time() - began))
            assert len(unasked) == 2 * idle, "sweeps, as without a gang"
            costs.append(sorted(asked))
    assert costs[0] == costs[1]
