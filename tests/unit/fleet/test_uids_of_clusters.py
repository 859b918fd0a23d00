"""A member may say anything for the uid of its kube-system: that keeps no gang from others, and fills no memory."""

import asyncio
import itertools
from collections.abc import Callable

import orjson
import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from webhook.fleet.members.member import UID_CHARACTERS_MAX
from webhook.fleet.swept import CLUSTERS_MAX

pytestmark = pytest.mark.virtual_time


def says(world: Fleet, member: str, uid: Callable[[], str]) -> None:
    """Have a member say this for the uid of its kube-system."""
    link = world.links[member]
    honest = link.request

    async def request(method: str, path: str, **how: object) -> bytes:
        answer = await honest(method, path, **how)  # type: ignore[arg-type]
        if not path.endswith("/namespaces/kube-system"):
            return answer
        found = orjson.loads(answer)
        found["metadata"]["uid"] = uid()
        return orjson.dumps(found)

    link.request = request  # type: ignore[method-assign]


@pytest.mark.parametrize("characters", [UID_CHARACTERS_MAX + 1, 300_000])
async def test_a_member_with_a_long_uid_keeps_no_gang_from_the_others(characters: int) -> None:
    """The record of an offer to it would not fit on the job, which would be offered to it again and again."""
    async with fleet("a", "b") as world:
        says(world, "a", lambda: "x" * characters)
        await asyncio.sleep(20)
        await world.hub.cluster.create(plain_job(runtime="6000s"))

        async def runs_in_b() -> bool:
            return await world.places("Job", "train") == ["b"]

        await world.until(runs_in_b)
        assert "kube-system" in world.running_hub.fleet.members["a"].health.unusable


async def test_of_clusters_that_a_name_led_to_only_the_last_few_are_kept() -> None:
    """Of one that is forgotten nothing worse follows than one more sweep before it is offered something."""
    async with fleet("a", "b") as world:
        counted = map(str, itertools.count())
        says(world, "a", lambda: next(counted))
        await asyncio.sleep(600)
        swept = world.running_hub.fleet.swept.clusters
        assert len(swept["a"]) == CLUSTERS_MAX
        assert int(swept["a"][-1]) > 100, "the last ones"
        assert len(swept["b"]) == 1
