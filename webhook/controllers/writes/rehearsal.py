"""Whether the pods of what is started would be let in: no gang is started while the webhook does not answer.

The API server sends our account's dry runs to the webhook, but not its writes: a review of each start would say
nothing more, since our account may start anything. So a start is tried as a dry run first, and one that passes stands
for all starts of a second. A webhook that ends within that second leaves a gang without pods, as one that ends just
after a start does: it is stopped whole when they do not come in time.

One that fails stands only for itself: it may be another webhook, of this kind of job, that does not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

STANDS_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 0.25
"""How long a start waits for another's rehearsal before it is tried itself."""


class Rehearsal:
    """Holds each start back until it or another one has passed as a dry run."""

    def __init__(self) -> None:
        self._stands_until = float("-inf")
        self._under_way: asyncio.Event | None = None
        """Set when the first of those that are tried at once has ended."""

    async def passed(self, rehearse: Callable[[], Awaitable[object]]) -> None:
        """Return when a start may be sent; ``rehearse`` tries it, where no other has passed. Raises ApiError."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._stands_until:
            return
        if self._under_way is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._under_way.wait(), PATIENCE_SECONDS)
            if loop.time() < self._stands_until:
                return
            await rehearse()
        else:
            ended = self._under_way = asyncio.Event()
            try:
                await rehearse()
            finally:
                self._under_way = None
                ended.set()
        self._stands_until = loop.time() + STANDS_SECONDS
