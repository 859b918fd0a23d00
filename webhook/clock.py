"""The only place that reads a clock.

Decisions take Unix time as an argument (``now``); leases and time-outs use the event loop's monotonic clock, which a
virtual loop can drive.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where Unix time comes from."""

    def now(self) -> float:
        """Return Unix time in seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return Unix time in seconds."""
        return time.time()


class LoopClock:
    """Unix time derived from the running event loop, for virtual time: 2026-01-01 plus the loop's clock."""

    epoch_seconds = 1_767_225_600.0

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self.epoch_seconds + asyncio.get_running_loop().time()
