"""Ends the process when the lease was not renewed in time, from a thread: a blocked event loop cannot stop it.

Cancelling tasks is not prompt enough for a lost lease: a loop that is stuck in one long computation, or in a process
that was stopped and continued, would go on writing as a leader.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h; the kubelet shows it as the reason of the restart."""


def end_process() -> None:
    """End the process at once, without clean-up: whatever would be flushed could be a leader's write."""
    os.write(2, b'{"level":"critical","event":"lease.expired","action":"exit"}\n')
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
        """Forget the deadline: the lease was handed back."""
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
