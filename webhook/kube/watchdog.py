"""Ends the process when its event loop hangs while it leads, from a thread: a blocked loop cannot stop that.

A leader whose lease was not renewed steps down within its process, which needs a loop that runs. A leader that is stuck
in one long computation cannot step down, and answers nobody either: the last resort is to begin again.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from webhook.clock import SystemClock
from webhook.wire.times import micro_time_text

EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h; the kubelet shows it as the reason of the restart."""
HUNG_SECONDS: Final = 15.0
"""A loop that has not ended a term this long after its lease ran out hangs; a slow computer takes less."""


def end_process() -> None:
    """End the process at once, without clean-up: whatever would be flushed could be a leader's write."""
    now = micro_time_text(SystemClock().now())
    os.write(2, b'{"level":"critical","event":"loop.hung","action":"exit","timestamp":"%s"}\n' % now.encode())
    os._exit(EXIT_CODE)


class Watchdog:
    """Calls ``on_expiry`` once, from its own thread, when the clock passes the deadline fed last.

    It starts disarmed: the first ``feed`` arms it.
    """

    def __init__(
        self, on_expiry: Callable[[], None] = end_process, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock`` is the one deadlines are measured by; the event loop's clock is ``time.monotonic`` too."""
        self._on_expiry = on_expiry
        self._clock = clock
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._watch, name="lease-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def feed(self, deadline: float) -> None:
        """Move the deadline: by this monotonic time there must have been another feed."""
        with self._changed:
            self._deadline = deadline
            self._changed.notify()

    def disarm(self) -> None:
        """Forget the deadline: the term is over."""
        with self._changed:
            self._deadline = None
            self._changed.notify()

    def stop(self) -> None:
        """End the thread without expiry, and wait for it."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        if self._wait_for_expiry():
            self._on_expiry()

    def _wait_for_expiry(self) -> bool:
        with self._changed:
            while not self._stopping:
                left = None if self._deadline is None else self._deadline - self._clock()
                if left is not None and left <= 0:
                    return True
                self._changed.wait(left)
        return False
