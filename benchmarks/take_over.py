"""How long nobody admits when the leader is killed, as often as asked, under the load that goes on meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from tests.e2e.controlplane.install import Installation, Replica

POLL_SECONDS: Final = 0.05
BETWEEN_SECONDS: Final = 3.0
"""After the killed process is ready again, until the next one is killed."""
LONGEST_SECONDS: Final = 60.0


async def take_overs(installation: Installation, started: Callable[[], int], times: int) -> AsyncIterator[float]:
    """Kill the leader with SIGKILL again and again; yield each time's seconds until another one has started a job.

    ``started`` says how many jobs were started so far; some must arrive all the time. Raises TimeoutError when nothing
    is started for :data:`LONGEST_SECONDS`.
    """
    for _ in range(times):
        await asyncio.sleep(BETWEEN_SECONDS)
        yield await _take_over(installation, started)


async def _take_over(installation: Installation, started: Callable[[], int]) -> float:
    loop = asyncio.get_running_loop()
    dying = await asyncio.to_thread(_leader, installation)
    dying.component.kill()
    killed = loop.time()
    async with asyncio.timeout(LONGEST_SECONDS):
        while await asyncio.to_thread(_leader, installation) is dying:
            await asyncio.sleep(POLL_SECONDS)
        before = started()
        while started() == before:
            await asyncio.sleep(POLL_SECONDS)
    seconds = loop.time() - killed
    # Here, not in a thread: a process ends with the thread that started it.
    dying.component.start()
    await asyncio.to_thread(installation.wait_ready, LONGEST_SECONDS)
    return seconds


def _leader(installation: Installation) -> Replica:
    return installation.leader
