"""A permit that arrives later than its hub has heard: while the hub looks whether it has."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

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
