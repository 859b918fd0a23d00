"""The only place that reads a clock, the machine's or the API server's.

Decisions take Unix time as an argument (``now``); leases and time-outs use the event loop's monotonic clock, which a
virtual loop can drive.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

log = structlog.get_logger(__name__)


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


AGREES_SECONDS: Final = 2.0
"""The API server says whole seconds, and takes a while to answer."""


class ApiServersClock:
    """A clock that is set once, to what the API server's said first, and counts on from there: all leaders of a cluster
    have that in common. Before the first answer, and where the machine's clock agrees, that is finer, and stands.

    A clock that jumps must not decide that a gang's time is used up. The time that a machine sleeps counts too, where
    the system can count it.
    """

    _set = False

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] | None = None) -> None:
        """``elapsed`` are seconds since any moment."""
        self._elapsed = elapsed or _since_boot
        self._start_seconds = wall() - self._elapsed()

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self._start_seconds + self._elapsed()

    def heard(self, unix_seconds: float) -> float:
        """Take what an answer says of the time; return how far ahead the machine's clock was found, 0 if it agrees.

        Only the first is taken: no clock that is set later changes anything before the next start.
        """
        if self._set:
            return 0.0
        self._set = True
        ahead = self.now() - unix_seconds
        if abs(ahead) <= AGREES_SECONDS:
            return 0.0
        self._start_seconds -= ahead
        return ahead


def telling(clock: ApiServersClock) -> Callable[[float], None]:
    """Return what tells ``clock`` the API server's time, and people once where the machine's is another."""

    def heard(unix_seconds: float) -> None:
        if ahead := clock.heard(unix_seconds):
            remedy = "the API server's is gone by; set the clock of the machine that is wrong"
            log.warning("clock.differs", machine_ahead_seconds=round(ahead, 1), remedy=remedy)

    return heard


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class LoopClock:
    """Unix time derived from the running event loop, for virtual time: 2026-01-01 plus the loop's clock."""

    epoch_seconds = 1_767_225_600.0

    def now(self) -> float:
        """Return Unix time in seconds."""
        return self.epoch_seconds + asyncio.get_running_loop().time()
