"""Starts wait until they or another one have passed as a dry run."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import async_solipsism
import pytest

from webhook.controllers.writes.rehearsal import PATIENCE_SECONDS, STANDS_SECONDS, Rehearsal
from webhook.errors import ApiError, Conflict, Unavailable

AWAY = Unavailable(500, "InternalError", "failed calling webhook")


class Stage:
    """Rehearses, and counts how often."""

    def __init__(self) -> None:
        self.times = 0
        self.failure: ApiError | None = None

    async def rehearse(self) -> None:
        self.times += 1
        await asyncio.sleep(0.01)
        if self.failure is not None:
            raise self.failure


async def _starts(rehearsal: Rehearsal, stage: Stage, number: int) -> list[BaseException | None]:
    return await asyncio.gather(*(rehearsal.passed(stage.rehearse) for _ in range(number)), return_exceptions=True)


def test_one_that_passes_stands_for_all_of_a_second() -> None:
    async def story() -> None:
        rehearsal, stage = Rehearsal(), Stage()
        assert await _starts(rehearsal, stage, 50) == [None] * 50
        assert stage.times == 1
        await asyncio.sleep(STANDS_SECONDS)
        assert await _starts(rehearsal, stage, 50) == [None] * 50
        assert stage.times == 2

    _virtually(story())


def test_while_nobody_answers_nothing_starts() -> None:
    async def story() -> None:
        rehearsal, stage = Rehearsal(), Stage()
        stage.failure = AWAY
        assert await _starts(rehearsal, stage, 50) == [AWAY] * 50
        stage.failure = None
        assert await _starts(rehearsal, stage, 50) == [None] * 50

    _virtually(story())


@pytest.mark.parametrize("seconds", [0.0, 0.01, 3.0])
@pytest.mark.parametrize("failure", [AWAY, Conflict(409, "Conflict", "it has moved on")])
def test_starts_that_fail_for_themselves_hold_no_other_back(failure: ApiError, seconds: float) -> None:
    """Jobs of a kind whose own webhook is away, one after another and many at once, fail slowly or at once."""

    async def fail() -> None:
        await asyncio.sleep(seconds)
        raise failure

    async def keep_failing(rehearsal: Rehearsal) -> None:
        while True:
            with suppress(ApiError):
                await rehearsal.passed(fail)
            await asyncio.sleep(0.5)

    async def story() -> None:
        rehearsal, stage, loop = Rehearsal(), Stage(), asyncio.get_running_loop()
        failing = [asyncio.create_task(keep_failing(rehearsal)) for _ in range(20)]
        for _ in range(30):
            await asyncio.sleep(0.7)
            began = loop.time()
            assert await _starts(rehearsal, stage, 3) == [None] * 3
            assert loop.time() - began <= PATIENCE_SECONDS + 0.02
        for task in failing:
            task.cancel()

    _virtually(story())


def _virtually(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        runner.run(story)
