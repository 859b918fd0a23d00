"""What a leader no longer keeps goes at once: the collector looks at what is old every few hours (``gc_pauses``)."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from tests.unit.controllers.stage import owning_queue, stage, waiting_job


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """Return what nothing refers to but itself, once it was looked for; nobody else looks."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.virtual_time
async def test_gangs_that_come_and_go_and_policy_that_changes_leave_no_cycles(garbage: list[object]) -> None:
    async with stage() as play:
        await play.take_over()
        for number in range(12):
            await play.cluster.create(owning_queue(f"queue-{number}"))
            await play.cluster.create(waiting_job(f"train-{number}"))
            await asyncio.sleep(20)
        gc.collect()
        ours = {type(each) for each in garbage if type(each).__module__.startswith("webhook.")}
    assert {each for each in ours if not each.__module__.startswith("webhook.laboratory.")} == set()
