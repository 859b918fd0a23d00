"""Keeps the watch cache true, when somebody asks.

No document is written while nobody reads, but of what went away or is selected otherwise since: a client may have read
that at another replica, and go on here. A read brings what it asks for up to date first; while watches are open that
is done twice a second. However often somebody asks, finding out what changed takes at most a fifth of a core from the
decisions made on the same loop, and a twentieth while there are only watches.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from webhook.visibility.documents.queue_writer import QueueWriter
from webhook.visibility.documents.workload_writer import Care, WorkloadWriter
from webhook.visibility.http.group import QUEUES, WORKLOADS

LOOK_SECONDS: Final = 0.5
"""How often the view is looked at while watches are open."""
READ_SECONDS: Final = 0.1
"""Reads within this time share one look."""
READ_SHARE: Final = 4
WATCH_SHARE: Final = 19
"""A look is followed by a pause of at least so many times its length."""
READ_CARE: Final = Care(age_seconds=1.0, budget_seconds=0.1)
WATCH_CARE: Final = Care(age_seconds=5.0, budget_seconds=0.02)
"""Each new number in a reason is an event to every watch."""


@dataclass(slots=True)
class _Looks:
    """When one resource was last looked at."""

    ended_at: float = float("-inf")
    took_seconds: float = 0.0

    def due(self, now: float, max_age_seconds: float, share: float) -> bool:
        """Return whether to look again."""
        return now - self.ended_at >= max(max_age_seconds, share * self.took_seconds)

    def note(self, now: float, took_seconds: float) -> None:
        """Note the end of a look."""
        self.ended_at, self.took_seconds = now, took_seconds


@dataclass(slots=True)
class Reporter:
    """Looks at one cluster's view when there is a reason to."""

    workloads: WorkloadWriter
    queues: QueueWriter
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looks: dict[str, _Looks] = field(default_factory=lambda: {WORKLOADS.plural: _Looks(), QUEUES.plural: _Looks()})
    _watches: Counter[str] = field(default_factory=Counter)

    async def fresh(self, resource: str, namespace: str | None = None) -> None:
        """Bring a resource up to date for somebody who reads it, ``namespace`` first."""
        care = Care(READ_CARE.age_seconds, READ_CARE.budget_seconds, namespace)
        await self._look(resource, READ_SECONDS, READ_SHARE, care)

    def watch_opened(self, resource: str) -> None:
        """Keep looking at a resource from now on."""
        self._watches[resource] += 1

    def watch_closed(self, resource: str) -> None:
        """Undo ``watch_opened``."""
        self._watches[resource] -= 1

    async def run(self) -> None:
        """Note when things happen, and keep up to date what is watched, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.workloads.note()
            async with self._looking:
                self.queues.note()
            for resource, watches in self._watches.items():
                if watches:
                    await self._look(resource, LOOK_SECONDS, WATCH_SHARE, WATCH_CARE)

    async def _look(self, resource: str, max_age_seconds: float, share: float, care: Care) -> None:
        loop, looks = asyncio.get_running_loop(), self._looks[resource]
        async with self._looking:
            # Even if it is too early for a look: a watch that begins now is told what went away before.
            self.workloads.note()
            self.queues.note()
            began = loop.time()
            if not looks.due(began, max_age_seconds, share):
                return
            if resource == WORKLOADS.plural:
                took = await self.workloads.write(care)
            else:
                await self.queues.write(max_age_seconds)
                took = loop.time() - began
            looks.note(loop.time(), took)
