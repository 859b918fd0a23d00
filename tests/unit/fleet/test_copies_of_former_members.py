"""What is remembered of a member's copies goes with the member."""

import asyncio

import pytest

from tests.unit.fleet.clusters import fleet, plain_job

pytestmark = pytest.mark.virtual_time


async def test_nothing_is_kept_of_the_copies_of_members_that_come_and_go() -> None:
    async with fleet("a") as world:
        for _ in range(3):
            await world.hub.cluster.create(plain_job("train", runtime="20s"))
            await world.until(lambda: world.places("Job", "train"))
            await asyncio.sleep(5)
            assert world.running_hub._copies["a"]
            world.running_hub.leave("a")
            await asyncio.sleep(60)
            # It ends and goes while nobody watches.
            await world.members["a"].delete("Job", "train")
            await asyncio.sleep(40)
            world.running_hub.join("a", world.links["a"])
            await world.hub.delete("Job", "train")
            await asyncio.sleep(60)
            assert await world.members["a"].all("Job") == []
        assert not any(world.running_hub._copies.values())
        world.running_hub.leave("a")
        assert not world.running_hub._copies
