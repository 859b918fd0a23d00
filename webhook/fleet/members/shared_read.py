"""One read for all that ask before it begins: many gangs of one member want to know the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedRead(Generic[T]):
    """A read whose answer is never older than the question: whoever asks while one is under way waits for the next."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None
        """Not begun yet."""

    async def __call__(self) -> T:
        """Return what a read says that begins after this was called. Raises what it raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_take_note)
        # Others wait for it too: it goes on when one of them does not want it any more.
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()

    def stop(self) -> None:
        """Cancel what nobody waits for any more."""
        for task in (self._running, self._next):
            if task is not None:
                task.cancel()


def _take_note(task: asyncio.Task[T]) -> None:
    """See its failure, which nobody may have waited for."""
    if not task.cancelled():
        task.exception()
