"""Starts wait until one of them has passed as a dry run."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import async_solipsism
import pytest

from webhook.controllers.writes.rehearsal import STANDS_SECONDS, Rehearsal
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


def test_while_nobody_answers_nothing_starts_and_it_is_asked_once_a_second() -> None:
    async def story() -> None:
        rehearsal, stage = Rehearsal(), Stage()
        stage.failure = AWAY
        assert await _starts(rehearsal, stage, 50) == [AWAY] * 50
        assert stage.times == 1
        stage.failure = None
        await asyncio.sleep(STANDS_SECONDS)
        assert await _starts(rehearsal, stage, 50) == [None] * 50

    _virtually(story())


def test_a_start_that_is_refused_for_itself_holds_no_other_back() -> None:
    async def story() -> None:
        rehearsal, stage = Rehearsal(), Stage()
        stage.failure = Conflict(409, "Conflict", "it has moved on")
        with pytest.raises(Conflict):
            await rehearsal.passed(stage.rehearse)
        stage.failure = None
        assert await _starts(rehearsal, stage, 5) == [None] * 5
        assert stage.times == 2

    _virtually(story())


def _virtually(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        runner.run(story)
