"""Hubs whose machines' clocks disagree: what one wrote is as old to the next as it is."""

import asyncio

import orjson
import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job, tutti
from tests.unit.fleet.test_dead_man import PATIENCE, SEED, runs_in, starts_in_a
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.gangs.silent_hubs import LEASES
from webhook.core.notation import names
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.members.promise import PROMISED_SECONDS
from webhook.wire.times import unix_seconds

pytestmark = pytest.mark.virtual_time
OFF = pytest.mark.parametrize("off_seconds", [3600.0, -3600.0], ids=["ahead", "behind"])


@OFF
async def test_what_a_hub_writes_of_the_time_is_right_whatever_its_machine_says(off_seconds: float) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE, starts=False) as world:
        world.dead_man, world.off_seconds = True, off_seconds
        world.start()
        await starts_in_a(world)
        (lease,) = orjson.loads(await world.members["a"].admin.request("GET", LEASES))["items"]
        assert lease["metadata"]["name"].startswith(names.HUB_LEASE)
        assert abs(unix_seconds(lease["spec"]["renewTime"]) - LoopClock().now()) < 3 * RENEW_SECONDS
        offer = dispatch_of(await world.hub.get(*SEED) or {}).offer
        assert abs(offer.epoch - LoopClock().now()) < 60


@OFF
async def test_a_promise_that_an_earlier_hub_heard_is_over_in_time(off_seconds: float) -> None:
    """Or a gang would be given up in a member that stops nothing any more."""
    async with fleet("a", silent_hub_seconds=PATIENCE, starts=False, without_tutti=("a",)) as world:
        world.dead_man, world.off_seconds = True, off_seconds
        async with tutti(world.members["a"].cluster, "a", Config(silent_hub_seconds=PATIENCE)):
            world.start()
            await asyncio.sleep(4 * RENEW_SECONDS)
            assert world.running_hub.fleet.members["a"].stops_after_seconds == PATIENCE
        world.kill()
        world.off_seconds = 0.0
        world.start()
        await asyncio.sleep(PROMISED_SECONDS + 4 * RENEW_SECONDS)
        assert world.running_hub.fleet.members["a"].stops_after_seconds == 0


async def test_an_epoch_is_used_once_though_a_hub_starts_where_the_clock_is_behind() -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3)
        before = world.running_hub.fleet.epoch
        world.kill()
        world.off_seconds = -3600.0
        world.start()
        await asyncio.sleep(10)
        assert world.running_hub.fleet.epoch > before
