"""An event loop in virtual time that spends little on itself: half of a simulated second would be the loop's own.

It is async-solipsism's, which jumps over every wait, with asyncio's bookkeeping for debugging, for threads and for
sockets that nobody opened left out. What is due at the same time runs in the order in which it was asked for.
"""

import asyncio
from asyncio import base_events, events
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any

import async_solipsism
from async_solipsism.exceptions import SleepForeverError

TURNS_WITHOUT_TIME = 20_000
"""Who is still busy after so many turns of the loop at one moment repeats something as fast as it is answered."""


class _Handle(events.Handle):
    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        """Do not run it."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _Timer(events.TimerHandle):
    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        """Do not run it."""
        if not self._cancelled:
            self._loop.cancelled_timers += self._scheduled
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]


class TimeStandsStill(AssertionError):
    """Something is done again and again without waiting for anything."""


class VirtualLoop(async_solipsism.EventLoop):
    """The loop of tests marked ``virtual_time``, and of the simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled_timers = 0
        self._resolution = self._selector.clock.resolution
        self._ticks = 0
        self._now = 0.0
        self._sockets = self._selector._fd_to_key
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbered = 0
        self._turns = 0

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:
        """Run ``callback`` in the next turn of the loop."""
        if self._closed:
            self._check_closed()
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        """Run ``callback`` in ``delay`` seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        """Run ``callback`` at ``when``."""
        if self._closed:
            self._check_closed()
        timer = _Timer(when, callback, args, self, context)
        self._numbered += 1
        heappush(self._timers, (when, self._numbered, timer))
        return timer

    def close(self) -> None:
        """Drop what is scheduled."""
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        ready = self._ready
        self._turns += 1
        if self._turns > TURNS_WITHOUT_TIME:
            self._turns = 0
            raise TimeStandsStill(f"{TURNS_WITHOUT_TIME} turns at {self._now} s: something is repeated without a pause")
        if self._sockets:
            # Sockets: what arrives in them comes before time passes.
            self._process_events(self._readable())
        if not ready and not self._stopping:
            self._jump()
        end = self._now + self._resolution
        timers = self._timers
        while timers and timers[0][0] < end:
            timer = heappop(timers)[2]
            timer._scheduled = False
            if timer._cancelled:
                self.cancelled_timers -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error, "handle": handle})

    def _readable(self) -> list[Any]:
        # Asked with no time to wait the selector only says what is there.
        found: list[Any] = self._selector.select(0)
        return found

    def _jump(self) -> None:
        """Let time pass until the next timer is due."""
        if self.cancelled_timers > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self.cancelled_timers = 0
        while self._timers and self._timers[0][2]._cancelled:
            heappop(self._timers)[2]._scheduled = False
            self.cancelled_timers -= 1
        if not self._timers or self._timers[0][0] - self._now >= base_events.MAXIMUM_SELECT_TIMEOUT:  # type: ignore[attr-defined]
            raise SleepForeverError("every task waits, and for nothing that will happen")
        self._ticks += round(max(0.0, self._timers[0][0] - self._now) / self._resolution)
        self._now = self._ticks * self._resolution
        self._turns = 0


def run(main: Any) -> Any:
    """Run a coroutine to its end in a virtual loop of its own."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
