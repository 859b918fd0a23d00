"""What one input may cost: calls where tests are short, turns of the event loop where there is time."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from tests.fuzz.strategies import SHORT

T = TypeVar("T")
P = ParamSpec("P")
BLOCK_SECONDS_MAX = 0.05
CALLS_MAX = 400_000
"""Calls that one input may cost, Python's and C's, beside one a byte; an honest one costs some thousand."""


ATTEMPTS: Final = 3


class Blocked(AssertionError):
    """The event loop did nothing else for too long."""


def at_best(check: Callable[P, None]) -> Callable[P, None]:
    """Have a check that finds the loop blocked try again: what we take we take each time, what others on the machine
    cost us, such as a cold cache, we do not.
    """

    @wraps(check)
    def tried(*args: P.args, **named: P.kwargs) -> None:
        for attempt in range(ATTEMPTS):
            try:
                check(*args, **named)
            except Blocked:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                return

    return tried


def counted(work: Callable[[], T], size_bytes: int = 0) -> T:
    """Return what ``work`` returns; fail when that takes more calls than an input of that size may cost."""
    calls = 0

    def note(_frame: object, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        return work()
    finally:
        sys.setprofile(before)
        assert calls < CALLS_MAX + size_bytes, calls


class WatchedLoop(asyncio.SelectorEventLoop):
    """Knows how long its longest turn took, in seconds of processor."""

    longest_seconds = own_seconds = 0.0
    """The latter is what the test itself took of a turn."""

    def call_soon(self, callback: Any, *args: Any, **more: Any) -> asyncio.Handle:
        def timed(*args: Any) -> None:
            began = time.thread_time()
            try:
                callback(*args)
            finally:
                self.longest_seconds = max(self.longest_seconds, time.thread_time() - began - self.own_seconds)
                self.own_seconds = 0.0

        return super().call_soon(timed, *args, **more)


def bounded(work: Callable[[], T], size_bytes: int = 0) -> T:
    """Return what ``work`` returns, which takes few calls, and where time is looked at no longer than one turn may."""
    if SHORT:
        return counted(work, size_bytes)
    gc.disable()
    try:
        for _ in range(ATTEMPTS):
            began = time.thread_time()
            result = work()
            seconds = time.thread_time() - began
            if seconds < BLOCK_SECONDS_MAX:
                return result
    finally:
        gc.enable()
    raise Blocked(f"it would block a loop for {seconds:.3f} s")


def run(work: Coroutine[Any, Any, T], size_bytes: int) -> T:
    """Return what ``work`` returns, which may not cost too many calls, nor block the loop where time is looked at."""
    if SHORT:
        return counted(lambda: asyncio.run(work), size_bytes)
    # A collection walks all that the fuzzer itself has kept: that is no turn of the loop's.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=WatchedLoop) as runner:
            result = runner.run(work)
            loop = runner.get_loop()
    finally:
        gc.enable()
    assert isinstance(loop, WatchedLoop)
    if loop.longest_seconds >= BLOCK_SECONDS_MAX:
        raise Blocked(f"the loop was blocked for {loop.longest_seconds:.3f} s")
    return result
