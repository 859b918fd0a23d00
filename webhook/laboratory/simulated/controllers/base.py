"""One controller: a queue of keys without duplicates, a few reconciled at once, back-off when the server refuses."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from webhook.laboratory.simulated.requests.identity import Call, User
from webhook.laboratory.simulated.requests.refusals import Refused
from webhook.laboratory.simulated.server import SimulatedServer


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a simulated cluster is: upper bounds from which each delay is drawn evenly."""

    reaction_seconds: float = 0.02
    """From a change to the controller's look at it."""
    pod_start_seconds: float = 1.0
    pod_stop_seconds: float = 1.0
    """At most the pod's grace period."""
    backoff_seconds: float = 1.0
    """First wait after a refusal; doubles with each further one."""
    backoff_most_seconds: float = 60.0


LEAST_SECONDS: Final = 0.001
"""No wait is shorter."""


class Controller(ABC):
    """Reconciles keys, at most ``workers`` at once, never one key twice at once."""

    workers = 5

    def __init__(self, server: SimulatedServer, user: User, rng: Random, pace: Pace) -> None:
        self.server = server
        self.store = server.store
        self.user = user
        self.rng = rng
        self.pace = pace
        self._running = False
        self._due: dict[Hashable, None] = {}
        self._again: dict[Hashable, None] = {}
        self._active: dict[Hashable, asyncio.Task[None]] = {}
        self._waiting: dict[Hashable, asyncio.TimerHandle] = {}
        self._refusals: dict[Hashable, int] = {}

    @abstractmethod
    async def reconcile(self, key: Any) -> None:
        """Bring the world nearer to what the object behind ``key`` wants. A Refused is retried after a back-off."""

    def enqueue(self, key: Hashable) -> None:
        """Have ``key`` reconciled soon."""
        if key not in self._due:
            self.enqueue_after(key, self.delay(self.pace.reaction_seconds))

    def enqueue_after(self, key: Hashable, seconds: float) -> None:
        """Have ``key`` reconciled in ``seconds``, or at the earlier time that was asked for before."""
        if key in self._due:
            return
        # What is left of a wait may be less than the clock can tell apart: it would never be over.
        seconds = max(seconds, LEAST_SECONDS)
        loop = asyncio.get_running_loop()
        known = self._waiting.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._waiting[key] = loop.call_later(seconds, self._ripe, key)

    def delay(self, most_seconds: float) -> float:
        """Return a delay of up to ``most_seconds``, in whole tenths of a millisecond."""
        return round(self.rng.uniform(0.0, most_seconds), 4)

    def call(self) -> Call:
        """Return the context of a request in this controller's name."""
        return Call(self.user)

    def start(self) -> None:
        """Begin to reconcile what is due."""
        self._running = True
        self._pump()

    def begin_again(self) -> None:
        """Forget what is remembered outside the store, as a restarted process has."""
        self._refusals.clear()

    async def stop(self) -> None:
        """Stop at once: what is under way is cancelled, what waits is forgotten."""
        self._running = False
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ripe(self, key: Hashable) -> None:
        self._waiting.pop(key, None)
        if key in self._active:
            self._again[key] = None
        else:
            self._due[key] = None
            self._pump()

    def _pump(self) -> None:
        while self._running and self._due and len(self._active) < self.workers:
            key = next(iter(self._due))
            del self._due[key]
            task = asyncio.get_running_loop().create_task(self.reconcile(key))
            self._active[key] = task
            task.add_done_callback(lambda done, key=key: self._done(key, done))  # type: ignore[misc]

    def _done(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._active[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._refusals.pop(key, None)
        else:
            self._back_off(key)
            if not isinstance(error, Refused):
                context = {"message": f"{type(self).__name__} failed on {key}", "exception": error, "task": task}
                asyncio.get_running_loop().call_exception_handler(context)
        if self._again.pop(key, True) is None:
            self._due[key] = None
        self._pump()

    def _back_off(self, key: Hashable) -> None:
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        self.enqueue_after(key, min(self.pace.backoff_seconds * 2**refusals, self.pace.backoff_most_seconds))
