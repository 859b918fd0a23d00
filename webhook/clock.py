"""The only place that reads a clock.

Decisions take Unix time as an argument (``now``); leases and time-outs use the event loop's monotonic clock, which a
virtual loop can drive.
"""

import asyncio
import sys
import time
from collections.abc import Callable
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


class SteadyClock:
    """The machine's clock as it was when this was made, and the time that has passed since: it is never set.

    Who stops a gang because its time is used up must not be told so by a clock that jumps. A machine that sleeps is
    asleep for as long: where the system can count that, it counts.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] | None = None) -> None:
        """``elapsed`` are seconds since any moment."""
        self._elapsed = elapsed or _since_boot
        self._start_seconds = wall() - self._elapsed()

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self._start_seconds + self._elapsed()


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class LoopClock:
    """Unix time derived from the running event loop, for virtual time: 2026-01-01 plus the loop's clock."""

    epoch_seconds = 1_767_225_600.0

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self.epoch_seconds + asyncio.get_running_loop().time()
