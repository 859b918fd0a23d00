"""A permit that arrives later than its hub has heard: while the hub looks whether it has."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
COPY = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train"


def late_permit(world: Fleet, member: str) -> None:
    """Let the first permit reach its copy just after a look has read that without; it ends before the look goes on."""
    asked, side, under_way = world.links[member].request, world.members[member], list[Callable[[], Awaitable[bytes]]]()
    sent = 0

    async def over() -> bool:
        return await side.pods() != [] and await side.reserved() == 0

    async def request(method: str, path: str, **how: Any) -> bytes:
        nonlocal sent
        if method == "PATCH" and names.PERMIT.replace("/", "~1").encode() in how["body"]:
            sent += 1
            if sent == 1:
                under_way.append(partial(asked, method, path, **how))
                raise Unavailable(0, "Timeout", f"{method} {path}: no answer in time", outcome_unknown=True)
        answer = await asked(method, path, **how)
        if (method, path) == ("GET", COPY) and under_way:
            await under_way.pop()()
            await world.until(over, 4)
        return answer

    world.links[member].request = request  # type: ignore[method-assign]


async def test_a_gang_that_has_ended_between_the_reads_of_one_look_does_not_run_again() -> None:
    async with fleet("a") as world:
        late_permit(world, "a")
        await world.hub.cluster.create(plain_job(runtime="1s"))
        await world.until(lambda: world.over("Job", "train"))
        assert dispatch_of(await world.hub.get("Job", "train") or {}).offer.number == 1


async def test_nobody_is_told_that_a_job_is_bound_whose_permit_was_not_taken() -> None:
    async with fleet("a") as world:
        asked, cut = world.links["a"].request, 0

        async def late(method: str, path: str, **more: Any) -> bytes:
            nonlocal cut
            if method == "PATCH" and names.PERMIT.replace("/", "~1").encode() in more["body"]:
                cut += 1
                await world.members["a"].patch("Job", "train", {"metadata": {"labels": {"moved": f"on-{cut}"}}})
            return await asked(method, path, **more)

        world.links["a"].request = late  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(20)
        listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
        assert cut
        assert not [each for each in listed if each["reason"] == "ScheduleBindingSucceed"]
