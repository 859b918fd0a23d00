"""Work outside the event loop, one piece at a time: judging policy may take longer than a pod can wait to be created.

It is Python all the same and shares the interpreter's lock with the loop, which then answers a few milliseconds later
instead of not at all.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class OneThread:
    """A thread of its own for one piece of work at a time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")

    async def __call__(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns; a caller that gives up leaves a piece that has begun to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
