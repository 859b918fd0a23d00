"""A failed job is not ended by a hub that starts while the kubeconfig of another member is refused."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import pytest

from tests.unit.fleet.clusters import fleet
from tests.unit.fleet.failing import TOLERATION
from tests.unit.fleet.test_dead_man import SEED
from tests.unit.fleet.test_failed_beside_silent_members import SOON_SECONDS, begins_in_a, fails_in_a, record, succeeds
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_roster import World, kubeconfig
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS

pytestmark = pytest.mark.virtual_time


async def _while_a_hub_runs(it: World, work: Coroutine[None, None, None]) -> None:
    running = [asyncio.create_task(it.hub.run()), asyncio.create_task(it.members.run())]
    try:
        await work
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("mended", [True, False])
async def test_it_is_tried_there_once_that_is_mended_and_fails_if_it_is_not(tmp_path: Path, mended: bool) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(kubeconfig(name))
    async with fleet("a", "b", starts=False) as world:

        async def begin() -> None:
            await begins_in_a(world, "20s", renewed=False)
            await fails_in_a(world)
            await asyncio.sleep(5)

        async def go_on() -> None:
            await asyncio.sleep(10)
            if mended:
                (tmp_path / "b").write_text(kubeconfig("b"))
                await succeeds(world)
                return
            await asyncio.sleep(TOLERATION + SOON_SECONDS)
            assert (await record(world)).waits.endswith("; others may have it, and do not answer: b")
            await world.until(lambda: has_failed(world, *SEED), SILENT_SECONDS + SOON_SECONDS)

        await _while_a_hub_runs(World(world, tmp_path), begin())
        (tmp_path / "b").write_text("half of it")
        await _while_a_hub_runs(World(world, tmp_path), go_on())
