"""Whether the pods of what is started would be let in: no gang is started while the webhook does not answer.

The API server brings our account's dry runs before the webhook, but not its writes: a review of each start would tell
nothing more, since our account may start anything. So a start is tried as a dry run first, and one that passes stands
for all starts of a second. A webhook that ends within that second leaves a gang without pods, as one that ends just
after a start does: it is stopped whole when they do not come in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from webhook.errors import Unavailable

STANDS_SECONDS: Final = 1.0


class Rehearsal:
    """Holds starts back until one of them has passed as a dry run."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._stands_until = float("-inf")
        self._failure: Unavailable | None = None

    async def passed(self, rehearse: Callable[[], Awaitable[object]]) -> None:
        """Return when a start may be sent; ``rehearse`` tries it, where no other is known to have passed.

        Raises ApiError: Unavailable for all starts of a second, anything else for this one alone.
        """
        loop = asyncio.get_running_loop()
        async with self._turn:
            if loop.time() >= self._stands_until:
                try:
                    await rehearse()
                except Unavailable as error:
                    self._failure = error
                else:
                    self._failure = None
                self._stands_until = loop.time() + STANDS_SECONDS
            if self._failure is not None:
                raise self._failure
