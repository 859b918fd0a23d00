"""Jobs that start only together, in a fleet that offers each by itself: they meet in one member that has the room."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job
from webhook.core.notation.names import MIN_AVAILABLE_LABEL

pytestmark = pytest.mark.virtual_time
GROUP = {"pod-group.scheduling.sigs.k8s.io/name": "ring", MIN_AVAILABLE_LABEL: "4"}


def half(name: str) -> dict[str, Any]:
    """A job of two of the group's four pods."""
    job = plain_job(name, runtime="6000s")
    job["spec"]["template"]["metadata"]["labels"] = dict(GROUP)
    return job


@pytest.mark.parametrize("later_seconds", [0, 20, 60.7, 61, 101.4])
async def test_they_meet_in_the_one_member_with_room_though_one_sets_out_later(later_seconds: float) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job("fill", pods=1, runtime="6000s"))
        await world.until(lambda: world.places("Job", "fill"))
        await world.hub.cluster.create(half("one"))
        await asyncio.sleep(later_seconds)
        assert not await world.places("Job", "one")
        await world.hub.cluster.create(half("two"))

        async def run() -> bool:
            return [await world.places("Job", name) for name in ("one", "two")] == [["b"], ["b"]]

        await world.until(run, 300)
