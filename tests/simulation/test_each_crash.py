"""A leader that dies before, or just after, each single write of the ledger, of its index and its pages, in a short
story; and whoever takes over then dies a few writes later, most often while it fences what it found.
"""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest
import structlog

from tests import virtual_loop
from tests.simulation.weather import CALM_WEATHER, Weather
from tests.simulation.world import World

JOBS = 5
BUSY_SECONDS = 8
SMALL = replace(CALM_WEATHER, page_bytes=300, ensembles=1)


@pytest.fixture(autouse=True)
def _nothing_logged_or_collected() -> Iterator[None]:
    before = structlog.get_config()
    gc.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    gc.enable()
    structlog.configure(**before)


def ledger_writes(seed: int, weather: Weather) -> int:
    """Tell the story; return how often the ledger was written."""
    worlds: list[World] = []

    async def story() -> None:
        worlds.append(World(seed, weather))
        await worlds[0].run(JOBS, BUSY_SECONDS)

    virtual_loop.run(story())
    return worlds[0].ledger_writes


@pytest.mark.parametrize("dies", ["before", "after"])
def test_whoever_dies_at_any_write_of_the_ledger_loses_nothing_and_nothing_is_counted_twice(
    dies: Literal["before", "after"],
) -> None:
    writes = ledger_writes(7, SMALL)
    assert writes > 15, "index, and pages that come to be, are filled and emptied"
    for number in range(1, writes + 1):
        first, again = number, number + 1 + number % 4
        ledger_writes(7, replace(SMALL, dies=dies, dies_at=(first, again)))
