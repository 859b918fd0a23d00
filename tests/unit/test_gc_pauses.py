"""The garbage collector looks at what is new, and at that alone."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import async_solipsism
import pytest

from webhook import gc_pauses


class Node:
    """Something that can be part of a cycle."""

    def __init__(self) -> None:
        self.other: object = self


@pytest.fixture(autouse=True)
def tuned() -> Iterator[None]:
    """Leave the collector as it was."""
    before = gc.get_threshold()
    gc_pauses.tune()
    yield
    gc.set_threshold(*before)


def test_what_has_survived_is_not_looked_at_again() -> None:
    kept = [[] for _ in range(1000)]
    gc_pauses.settle()
    assert gc.get_freeze_count() > len(kept)
    assert not any(each is kept for each in gc.get_objects())


def test_a_cycle_that_is_new_goes() -> None:
    gc_pauses.settle()
    seen = weakref.ref(Node())
    gc_pauses.settle()
    assert seen() is None


def virtually(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story in virtual time, beside the collector's task."""

    async def both() -> None:
        running = asyncio.create_task(gc_pauses.run())
        await story()
        running.cancel()

    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        runner.run(both())


def test_what_grows_is_set_aside_without_being_asked() -> None:
    async def story() -> None:
        gc_pauses.settle()
        before = gc.get_freeze_count()
        kept = [[] for _ in range(3 * gc_pauses.YOUNG * gc_pauses.MIDDLE)]
        await asyncio.sleep(2 * gc_pauses.EVERY_SECONDS)
        assert gc.get_freeze_count() - before >= len(kept) // 2

    virtually(story)


def test_now_and_then_all_of_it_is_looked_at() -> None:
    async def story() -> None:
        node = Node()
        seen = weakref.ref(node)
        gc_pauses.settle()
        del node
        gc_pauses.settle()
        assert seen() is not None, "it was set aside while it was in use"
        await asyncio.sleep(gc_pauses.WHOLE_SECONDS + gc_pauses.EVERY_SECONDS)
        assert seen() is None

    virtually(story)
