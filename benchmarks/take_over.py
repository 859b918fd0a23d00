"""How long nobody admits when the leader is killed, as often as asked, under the load that goes on meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from benchmarks.load import JOBS
from tests.e2e.controlplane.install import Installation, Replica
from webhook.core.ledger.text import epoch_of
from webhook.core.notation.names import CONFIG_MAPS, LEASE_ANNOTATION, LEDGER_NAME
from webhook.kube.api import Api

POLL_SECONDS: Final = 0.05
BETWEEN_SECONDS: Final = 3.0
"""After the killed process is ready again, until the next one is killed."""
LONGEST_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class TakeOver:
    """One death of a leader."""

    seconds: float
    """From the SIGKILL until a job was seen to be started under a later epoch."""
    ready_seconds: float
    """From the start of the killed process until it was ready again."""
    stored: int
    """Jobs that were stored before, ended ones included."""


async def take_overs(
    installation: Installation, api: Api, first_starts: Mapping[int, float], times: int
) -> AsyncIterator[TakeOver]:
    """Kill the leader with SIGKILL again and again; yield what each time took, once the process is back.

    So from the second time on a process takes over that was killed the time before. ``first_starts`` says when (loop
    time) the first start under each epoch of the ledger was seen; some job must arrive all the time. Raises
    TimeoutError when nothing is started for :data:`LONGEST_SECONDS`, ComponentError when the process is not ready after
    so long.
    """
    for _ in range(times):
        await asyncio.sleep(BETWEEN_SECONDS)
        yield await _take_over(installation, api, first_starts)


async def _take_over(installation: Installation, api: Api, first_starts: Mapping[int, float]) -> TakeOver:
    loop, stored = asyncio.get_running_loop(), await stored_jobs(api)
    dying, epoch = await _leader(installation, api)
    killed = loop.time()
    dying.component.kill()
    async with asyncio.timeout(LONGEST_SECONDS):
        # By the epoch, and not by the clock: a start by the dead leader may be seen late.
        while not any(later > epoch for later in first_starts):
            await asyncio.sleep(POLL_SECONDS)
    seconds = min(at for later, at in first_starts.items() if later > epoch) - killed
    restarted = loop.time()
    # Here, not in a thread: a process ends with the thread that started it.
    dying.component.start()
    await asyncio.to_thread(installation.wait_ready, LONGEST_SECONDS)
    return TakeOver(seconds, loop.time() - restarted, stored)


async def stored_jobs(api: Api) -> int:
    """Return how many jobs are stored, whatever has become of them."""
    page = orjson.loads(await api.request("GET", JOBS, query={"limit": "1"}))
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


async def _leader(installation: Installation, api: Api) -> tuple[Replica, int]:
    """Return who holds the lease, and the epoch of the ledger since it does, by the index as it is stored now."""
    index = orjson.loads(await api.request("GET", f"{CONFIG_MAPS}/{LEDGER_NAME}"))
    holder = json.loads(index["metadata"]["annotations"][LEASE_ANNOTATION])["holderIdentity"].rpartition("_")[0]
    return next(each for each in installation.reconcilers if each.name == holder), epoch_of(index["data"])
