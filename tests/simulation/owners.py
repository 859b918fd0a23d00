"""Owners who stop a job that runs and let it go on later, and who bring more than fits where a namespace is gated."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from tests.simulation.load import Load, how_it_ended, stored_job
from tests.simulation.shapes import is_suspended
from webhook.core.ledger.record import Ledger
from webhook.core.notation import names
from webhook.core.reasons.eviction import HELD
from webhook.errors import ApiError
from webhook.laboratory.simulated.cluster import SimulatedCluster

CROWD: Final = 4
"""Jobs of three pods: more than the ResourceQuota of their namespace lets run."""


class Owners:
    """What they do in one story."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rng: Random,
        load: Load,
        ledger: Callable[[], Ledger],
        fail: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._load = load
        self._ledger = ledger
        self._fail = fail
        self.held: list[str] = []
        """Names of the jobs that were stopped and stood still until they were let go."""

    async def hold(self, times: int, seconds: float, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Stop a running job that is ``wanted`` so often over ``seconds``, and let each go on after a while."""
        for _ in range(times):
            await asyncio.sleep(self._rng.uniform(0, 2 * seconds / times))
            jobs = ((key, kind) for key, kind in sorted(self._load.jobs.items()) if key not in self._load.quiet)
            running = [key for key, kind in jobs if self._runs(key, kind, wanted)]
            if running:
                key = self._rng.choice(running)
                self._load.quiet.add(key)
                await self._hold(key)
                self._load.quiet.discard(key)

    async def crowd(self, namespace: str) -> None:
        """Create jobs that name no queue, all at once."""
        await asyncio.sleep(1)
        for _ in range(CROWD):
            await self._load.create_unlabelled(namespace, 3, 8)

    def _runs(self, key: tuple[str, str], kind: str, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        job = stored_job(self._cluster, kind, *key)
        if job is None or is_suspended(kind, job) or how_it_ended(job) is not None or not wanted(job):
            return False
        # Before its start, or its adoption, is noted on it nobody can tell its owner's suspension from Tutti's.
        noted = names.ADMISSION in (job["metadata"].get("annotations") or {})
        return noted and self._stops_for(job) is None and job["metadata"]["uid"] in self._ledger().entries

    async def _hold(self, key: tuple[str, str]) -> None:
        kind = self._load.jobs[key]
        try:
            await self._load.suspend(*key, True)
        except ApiError:
            return
        for _ in range(self._rng.randint(4, 20)):
            await asyncio.sleep(0.5)
            job = stored_job(self._cluster, kind, *key)
            if job is None or how_it_ended(job) is not None or self._stops_for(job) not in (None, HELD):
                break
            if not is_suspended(kind, job):
                self._fail(f"{kind} {key} was started again while its owner held it")
                return
        else:
            self.held.append(key[1])
        for _ in range(60):
            with suppress(ApiError):
                await self._load.suspend(*key, False)
                return
            await asyncio.sleep(1)

    def _stops_for(self, job: dict[str, Any]) -> str | None:
        entry = self._ledger().entries.get(job["metadata"]["uid"])
        return None if entry is None else entry.stopping
