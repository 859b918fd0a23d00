"""Members that come and go while their hub runs with its dead-man switch on."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from tests.unit.fleet.test_dead_man import (
    LATE_SECONDS,
    PATIENCE,
    SEED,
    STOPPED_SECONDS,
    SURELY_SECONDS,
    runs_in,
    starts_in_a,
)
from webhook.clock import LoopClock
from webhook.fleet import lost
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.jobs.job import REST_SECONDS
from webhook.fleet.lost import SILENT, noted
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import WritePoint

pytestmark = pytest.mark.virtual_time


def leaves(world: Fleet, name: str) -> None:
    world.away.add(name)
    world.running_hub.leave(name)


def joins(world: Fleet, name: str) -> None:
    world.away.discard(name)
    world.running_hub.join(name, world.links[name])


async def promise_of(world: Fleet, job: str) -> int:
    stored = await world.hub.get("PyTorchJob", job)
    assert stored is not None
    return dispatch_of(stored).stops_after_seconds


async def test_a_member_that_joins_is_offered_a_gang_when_it_has_promised_to_stop_it() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE, starts=False) as world:
        world.away.add("b")
        world.start()
        await starts_in_a(world)
        await world.hub.cluster.create(pytorch_job("next", runtime="6000s"))
        await asyncio.sleep(2 * RENEW_SECONDS)
        joins(world, "b")
        await runs_in(world, 3, 3)
        assert await promise_of(world, "next") == PATIENCE


async def test_a_member_that_leaves_and_is_back_in_time_keeps_its_gang() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        leaves(world, "a")
        await asyncio.sleep(PATIENCE - 2 * RENEW_SECONDS)
        joins(world, "a")
        await asyncio.sleep(3 * SURELY_SECONDS)
        assert await world.places(*SEED) == ["a"]
        assert await world.members["a"].running() == 3
        assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_gang_of_a_member_that_was_taken_away_runs_elsewhere_when_it_has_surely_stopped(
    restarts: bool,
) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        began = asyncio.get_running_loop().time()
        leaves(world, "a")
        if restarts:
            world.kill()
            world.start()
        await runs_in(world, 0, 0, seconds=STOPPED_SECONDS)
        await asyncio.sleep(began + SURELY_SECONDS - asyncio.get_running_loop().time())
        assert await world.places(*SEED) == [], "the hub does not know how long its last word was on its way"
        await runs_in(world, 0, 3, seconds=LATE_SECONDS)
        joins(world, "a")
        await asyncio.sleep(30)
        assert await world.members["a"].get(*SEED) is None, "what is left of it goes at the first contact"
        assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}
        await world.hub.cluster.create(pytorch_job("next", runtime="6000s"))
        await runs_in(world, 3, 3)
        assert await promise_of(world, "next") == PATIENCE


async def test_the_note_of_a_name_that_was_taken_away_ends_when_its_gangs_are_followed_by_another() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        leaves(world, "a")

        async def is_noted() -> bool:
            return "a" in await noted(world.hub.admin, SILENT)

        await world.until(is_noted, 2 * RENEW_SECONDS)
        world.running_hub.join("c", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(REST_SECONDS + 3 * RENEW_SECONDS)
        assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}
        assert await world.members["a"].running() == 3


async def test_a_name_that_is_back_while_its_note_is_ended_hears_the_hub() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        request, back = world.own.request, asyncio.Event()

        async def joins_meanwhile(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith(SILENT) and b"remove" in how["body"] and not back.is_set():
                back.set()
                joins(world, "a")
            return await request(method, path, **how)

        world.own.request = joins_meanwhile  # type: ignore[method-assign]
        leaves(world, "a")
        await asyncio.sleep(2 * RENEW_SECONDS)
        world.running_hub.join("c", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.wait_for(back.wait(), REST_SECONDS + 3 * RENEW_SECONDS)
        with capture_logs() as logs:
            await asyncio.sleep(3 * RENEW_SECONDS)
        assert "fleet.broken" not in {each["event"] for each in logs}
        assert not world.running_hub.fleet.silent


async def test_a_member_that_is_back_while_the_note_of_another_is_ended_hears_the_hub() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        request, back = world.own.request, asyncio.Event()

        async def b_joins_meanwhile(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith(SILENT) and b"remove" in how["body"] and not back.is_set():
                # The note of a is ended: meanwhile b, which had gone too, is back.
                back.set()
                joins(world, "b")
            return await request(method, path, **how)

        world.own.request = b_joins_meanwhile  # type: ignore[method-assign]
        leaves(world, "a")
        await asyncio.sleep(2 * RENEW_SECONDS)
        world.running_hub.join("c", world.members["a"].cluster.api(HUB_ACCOUNT))

        async def followed() -> bool:
            return all(job.own.record.member != "a" for job in world.running_hub._jobs.values())

        await world.until(followed, REST_SECONDS + 30)
        assert not back.is_set(), "b has to go before the note of a is ended"
        leaves(world, "b")
        await asyncio.wait_for(back.wait(), REST_SECONDS + 3 * RENEW_SECONDS)
        with capture_logs() as logs:
            await asyncio.sleep(60)
        assert "fleet.broken" not in {each["event"] for each in logs}
        assert not world.running_hub.fleet.silent
        await world.hub.cluster.create(pytorch_job("next", runtime="6000s"))
        await runs_in(world, 3, 3)


async def test_a_member_that_was_taken_away_without_gangs_is_not_noted() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        leaves(world, "b")
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
        assert await noted(world.hub.admin) == await noted(world.hub.admin, SILENT) == {}
        assert await world.members["a"].running() == 3


async def test_a_member_that_is_taken_away_while_it_is_silent_is_counted_on() -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE) as world:
        await starts_in_a(world)
        began = asyncio.get_running_loop().time()
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS)
        leaves(world, "a")
        await runs_in(world, 0, 3, seconds=LATE_SECONDS)
        assert asyncio.get_running_loop().time() - began >= SURELY_SECONDS


async def test_a_member_that_leaves_while_a_gang_is_written_as_offered_to_it_breaks_nothing() -> None:
    async with fleet("a", "b", starts=False) as world:
        left: list[str] = []

        def leave(point: WritePoint) -> None:
            # The first patch of the hub's job is its offer.
            offered = (point.phase, point.method) == ("after", "PATCH") and point.path.endswith("/pytorch-test")
            if offered and not left:
                left.append("a")
                leaves(world, "a")

        world.start(on_write=leave)
        await asyncio.sleep(10)
        with capture_logs() as logs:
            await world.hub.cluster.create(pytorch_job(runtime="6000s"))
            await runs_in(world, 0, 3)
        assert left
        assert "fleet.job_broken" not in {each["event"] for each in logs}


async def test_a_member_whose_loss_is_taken_back_after_its_gang_went_elsewhere_is_swept_and_stops_nobody() -> None:
    async with fleet("a", "b", watched=False) as world:
        await world.hub.cluster.create(pytorch_job(runtime="6000s"))
        await runs_in(world, 3, 0)
        world.links["a"].freeze()
        given_up = lost.give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=False)
        assert [gang async for gang in given_up] == ["PyTorchJob team-a/pytorch-test"]
        await runs_in(world, 3, 3)
        await lost.take_back(world.hub.admin, "a")
        world.links["a"].thaw()
        await runs_in(world, 0, 3)
        await world.hub.cluster.create(pytorch_job("next", runtime="6000s"))
        await runs_in(world, 3, 3)
        assert await world.places(*SEED) == ["b"]
