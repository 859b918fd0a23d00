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
        self._stopped: Exception | None = None

    async def __call__(self) -> T:
        """Return what a read says that begins after this was called. Raises what it raises, and what stopped it."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_take_note)
        reading, caller = self._next, asyncio.current_task()
        try:
            # Others wait for it too: it goes on when one of them does not want it any more.
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if self._stopped is None or not reading.cancelled() or (caller is not None and caller.cancelling()):
                raise
            # The read was cancelled and not who waits for it, which would end without a word.
            raise self._stopped from None

    async def _after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._read()

    def stop(self, why: Exception) -> None:
        """Cancel what is under way; whoever still waits for it is told by this exception."""
        self._stopped = why
        for task in (self._running, self._next):
            if task is not None:
                task.cancel()


def _take_note(task: asyncio.Task[T]) -> None:
    """See its failure, which nobody may have waited for."""
    if not task.cancelled():
        task.exception()
