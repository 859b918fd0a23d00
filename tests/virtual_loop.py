"""An event loop in virtual time that spends little on itself: half of a simulated second would be the loop's own.

It is async-solipsism's, which jumps over every wait, with asyncio's bookkeeping for debugging, for threads and for
sockets that nobody opened left out. What is due at the same time runs in the order in which it was asked for.
"""

import asyncio
from asyncio import base_events, events
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import async_solipsism
from async_solipsism.exceptions import SleepForeverError

TURNS_WITHOUT_TIME = 20_000
"""Who is still busy after so many turns of the loop at one moment repeats something as fast as it is answered."""


class _Handle:
    """What ``events.Handle`` is, as far as a loop without threads and debugging needs it; cancelled has no callback."""

    __slots__ = ("_args", "_callback", "_context")

    def cancel(self) -> None:
        """Do not run it."""
        self._callback = self._args = None

    def cancelled(self) -> bool:
        """Return whether it will not run."""
        return self._callback is None


class _Timer(_Handle):
    __slots__ = ("_when",)

    _when: float

    def when(self) -> float:
        """Return the time at which it is due."""
        return self._when


class TimeStandsStill(AssertionError):
    """Something is done again and again without waiting for anything."""


class VirtualLoop(async_solipsism.EventLoop):
    """The loop of tests marked ``virtual_time``, and of the simulation."""

    def __init__(self) -> None:
        super().__init__()
        # Each future and each task asks: called, ``bool`` says no without a frame of Python's.
        self.get_debug = bool  # type: ignore[assignment,method-assign]
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self._resolution = self._selector.clock.resolution
        self._ticks = 0
        self._now = 0.0
        self._sockets = self._selector._fd_to_key
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_most = 64
        """When there are so many, those that were cancelled are dropped."""
        self._numbered = 0
        self._turns = 0

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    # What follows makes handles without calling a constructor, and what ``call_later`` does by itself: there are fifty
    # a step.

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:
        """Run ``callback`` in the next turn of the loop."""
        if self._closed:
            self._check_closed()
        handle: Any = _Handle()
        handle._callback = callback
        handle._args = args
        handle._context = copy_context() if context is None else context
        self._ready.append(handle)
        return handle  # type: ignore[no-any-return]

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        """Run ``callback`` in ``delay`` seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        """Run ``callback`` at ``when``."""
        if self._closed:
            self._check_closed()
        timer: Any = _Timer()
        timer._callback = callback
        timer._args = args
        timer._context = copy_context() if context is None else context
        timer._when = when
        self._numbered += 1
        heappush(self._timers, (when, self._numbered, timer))
        return timer  # type: ignore[no-any-return]

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Run a coroutine from the next turn of the loop on."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def close(self) -> None:
        """Drop what is scheduled."""
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Run turns until somebody stops the loop."""
        ready, resolution = self._ready, self._resolution
        while True:
            self._turns += 1
            if self._turns > TURNS_WITHOUT_TIME:
                self._turns = 0
                raise TimeStandsStill(
                    f"{TURNS_WITHOUT_TIME} turns at {self._now} s: something is repeated without a pause"
                )
            if self._sockets:
                # Sockets: what arrives in them comes before time passes.
                self._process_events(self._readable())
            if not ready and not self._stopping:
                self._jump()
            end, timers = self._now + resolution, self._timers
            while timers and timers[0][0] < end:
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                callback = handle._callback
                if callback is None:
                    continue
                try:
                    handle._context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error, "handle": handle})
            if self._stopping:
                return

    def _readable(self) -> list[Any]:
        # Asked with no time to wait the selector only says what is there.
        found: list[Any] = self._selector.select(0)
        return found

    def _jump(self) -> None:
        """Let time pass until the next timer is due."""
        if len(self._timers) > self._timers_most:
            self._timers = [entry for entry in self._timers if entry[2]._callback is not None]
            heapify(self._timers)
            self._timers_most = 2 * len(self._timers) + 64
        while self._timers and self._timers[0][2]._callback is None:
            heappop(self._timers)
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
