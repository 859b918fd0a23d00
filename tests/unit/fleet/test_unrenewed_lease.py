"""A member that answers, and in which the hub's Lease cannot be renewed: it is not silent, and gets no more gangs."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, Unavailable
from webhook.fleet.dead_man import FAILING_SECONDS, RENEW_SECONDS
from webhook.fleet.lost import SILENT, noted
from webhook.fleet.members.member import ANSWER_SECONDS

pytestmark = pytest.mark.virtual_time
PATIENCE = 60.0
ANSWERS = {
    "for want of a webhook": Unavailable(500, "InternalError", 'failed calling webhook "their.policy": it is down'),
    "for want of a right": Forbidden(403, "Forbidden", "leases may not be patched"),
    "by a policy": Invalid(422, "Invalid", "no renewals on Thursdays"),
    "for another write": Conflict(409, "Conflict", "the object has been modified"),
    "by a webhook that hangs": Unavailable(504, "Timeout", "request did not complete within the allotted timeout"),
    "by a webhook that hangs, far away": None,
}


def refuse(world: Fleet, answer: ApiError | None) -> None:
    """Have the first member renew no Lease of a hub; without an answer where there is none."""
    link = world.links["a"]
    honest = link.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        if names.HUB_LEASE in path and method == "PATCH":
            if answer is None:
                await asyncio.sleep(ANSWER_SECONDS)
                raise Unavailable(0, "Timeout", "no answer")
            raise answer
        return await honest(method, path, **how)

    link.request = request  # type: ignore[method-assign]


async def runs(world: Fleet, *pods: int) -> bool:
    return [await side.running() for side in world.members.values()] == list(pods)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_nothing_of_it_is_given_up_and_its_gangs_move_on_once_they_are_gone(answer: ApiError | None) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(plain_job("first", runtime="6000s"))
        await world.until(lambda: runs(world, 2, 0))
        honest, member = world.links["a"].request, world.running_hub.fleet.members["a"]
        refuse(world, answer)
        for _ in range(int(PATIENCE / 2)):
            await asyncio.sleep(1)
            assert answer is None or not member.health.failure, "it answers"
        assert "Lease" in member.health.trouble or answer is None
        assert REGISTRY.get_sample_value("tutti_fleet_member_unreachable", {"member": "a"}) == 1 or answer is None
        await world.hub.cluster.create(plain_job("second", runtime="6000s"))
        await world.until(lambda: runs(world, 2, 2), 20)
        for _ in range(int(2 * PATIENCE)):
            await asyncio.sleep(1)
            assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}, "it is neither"
        assert await runs(world, 0, 4), "the member has stopped what it had, and that was seen"
        world.links["a"].request = honest  # type: ignore[method-assign]
        await asyncio.sleep(FAILING_SECONDS + 2 * RENEW_SECONDS)
        assert not member.health.trouble
        await world.hub.cluster.create(plain_job("third", runtime="6000s"))
        await world.until(lambda: runs(world, 2, 4))
