"""Many ask at once and one read answers them, but never one that began before they asked."""

import asyncio

import pytest

from webhook.fleet.members.shared_read import SharedRead

pytestmark = pytest.mark.virtual_time


class Counter:
    """Each read takes a second and says what stood there when it began."""

    def __init__(self) -> None:
        self.stands = 0
        self.reads = 0

    async def __call__(self) -> int:
        self.reads += 1
        said = self.stands
        await asyncio.sleep(1)
        return said


async def test_an_answer_is_never_older_than_the_question() -> None:
    counter = Counter()
    shared = SharedRead(counter)
    first = [asyncio.create_task(shared()) for _ in range(5)]
    await asyncio.sleep(0.5)
    counter.stands = 1
    late = [asyncio.create_task(shared()) for _ in range(5)]
    assert await asyncio.gather(*first) == [0] * 5
    assert await asyncio.gather(*late) == [1] * 5
    assert counter.reads == 2


async def test_a_read_that_fails_fails_for_who_waits_for_it_alone() -> None:
    async def broken() -> int:
        await asyncio.sleep(1)
        raise OSError("no answer")

    shared = SharedRead(broken)
    for _ in range(2):
        told = await asyncio.gather(shared(), shared(), return_exceptions=True)
        assert [str(each) for each in told] == ["no answer"] * 2


async def test_who_gives_up_does_not_take_the_answer_from_others() -> None:
    shared = SharedRead(Counter())
    hasty, patient = (asyncio.create_task(shared()) for _ in range(2))
    await asyncio.sleep(0.5)
    hasty.cancel()
    assert await patient == 0


async def test_who_waits_for_a_read_that_is_stopped_is_told_so_and_goes_on() -> None:
    shared = SharedRead(Counter())
    first = asyncio.create_task(shared())
    await asyncio.sleep(0.5)
    late, cancelled = (asyncio.create_task(shared()) for _ in range(2))
    await asyncio.sleep(0)
    shared.stop(OSError("no longer asked"))
    cancelled.cancel()
    told = await asyncio.gather(first, late, cancelled, return_exceptions=True)
    assert [str(each) for each in told[:2]] == ["no longer asked"] * 2
    assert isinstance(told[2], asyncio.CancelledError)
