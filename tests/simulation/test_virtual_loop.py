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


def test_what_is_due_at_one_moment_runs_in_the_order_in_which_it_was_asked_for() -> None:
    """Also among thousands of timers that were cancelled, which are dropped at some time."""

    async def ran() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for number in range(5000):
            timer = loop.call_later(1.0 if number % 2 else 2.0, seen.append, number)
            if number % 50 not in (0, 1):
                timer.cancel()
        await asyncio.sleep(3)
        return seen

    assert run(ran()) == [*range(1, 5000, 50), *range(0, 5000, 50)]


def test_what_is_cancelled_a_moment_before_it_runs_does_not_run() -> None:
    async def ran() -> list[str]:
        loop, seen, doomed = asyncio.get_running_loop(), list[str](), list[asyncio.Handle]()

        def cancel() -> None:
            doomed.pop().cancel()

        loop.call_at(1.0, cancel)
        doomed.append(loop.call_at(1.0, seen.append, "a timer"))
        loop.call_at(1.0, seen.append, "last")
        await asyncio.sleep(2)
        loop.call_soon(cancel)
        doomed.append(loop.call_soon(seen.append, "what is due at once"))
        await asyncio.sleep(1)
        return seen

    assert run(ran()) == ["last"]
