"""The loop of the simulation itself."""

import asyncio

import pytest

from tests.virtual_loop import TimeStandsStill, run


def test_what_is_repeated_without_a_pause_ends_a_story() -> None:
    """Or it would run for ever: time passes only when everybody waits."""

    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TimeStandsStill, match="repeated without a pause"):
        run(busy())


def test_many_turns_are_nothing_where_time_passes() -> None:
    async def patient() -> float:
        for _ in range(30_000):
            await asyncio.sleep(0.001)
        return asyncio.get_running_loop().time()

    assert run(patient()) == pytest.approx(30.0)
