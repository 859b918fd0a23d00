"""One controller: a queue of keys without duplicates, workers that reconcile them, back-off when the server refuses."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Hashable
from dataclasses import dataclass
from random import Random
from typing import Any

from webhook.simulated.identity import Call, User
from webhook.simulated.refusals import Refused
from webhook.simulated.server import SimulatedServer


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


class Controller(ABC):
    """Reconciles keys, a few at a time, never one key twice at once."""

    workers = 5

    def __init__(self, server: SimulatedServer, user: User, rng: Random, pace: Pace) -> None:
        self.server = server
        self.store = server.store
        self.user = user
        self.rng = rng
        self.pace = pace
        self._due: dict[Hashable, None] = {}
        self._active: set[Hashable] = set()
        self._again: dict[Hashable, None] = {}
        self._waiting: dict[Hashable, asyncio.TimerHandle] = {}
        self._refusals: dict[Hashable, int] = {}
        self._wake = asyncio.Event()

    @abstractmethod
    async def reconcile(self, key: Any) -> None:
        """Bring the world nearer to what the object behind ``key`` wants. A Refused is retried after a back-off."""

    def enqueue(self, key: Hashable) -> None:
        """Have ``key`` reconciled soon."""
        if key in self._due or key in self._waiting:
            return
        self.enqueue_after(key, self.delay(self.pace.reaction_seconds))

    def delay(self, most_seconds: float) -> float:
        """Return a delay of up to ``most_seconds``, in whole tenths of a millisecond."""
        return round(self.rng.uniform(0.0, most_seconds), 4)

    def enqueue_after(self, key: Hashable, seconds: float) -> None:
        """Have ``key`` reconciled in ``seconds``, or at the earlier time that was asked for before."""
        if key in self._due:
            return
        loop = asyncio.get_running_loop()
        known = self._waiting.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._waiting[key] = loop.call_later(seconds, self._ripe, key)

    def call(self) -> Call:
        """Return the context of a request in this controller's name."""
        return Call(self.user)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that do the work; they run until cancelled."""
        return [self._work() for _ in range(self.workers)]

    def close(self) -> None:
        """Forget what was to be done later."""
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()

    def _ripe(self, key: Hashable) -> None:
        self._waiting.pop(key, None)
        if key in self._active:
            self._again[key] = None
        else:
            self._due[key] = None
            self._wake.set()

    async def _work(self) -> None:
        while True:
            while not self._due:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._due))
            del self._due[key]
            self._active.add(key)
            try:
                await self.reconcile(key)
            except Refused:
                self._back_off(key)
            else:
                self._refusals.pop(key, None)
            finally:
                self._active.discard(key)
            if key in self._again:
                del self._again[key]
                self._due[key] = None

    def _back_off(self, key: Hashable) -> None:
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        wait = min(self.pace.backoff_seconds * 2**refusals, self.pace.backoff_most_seconds)
        self.enqueue_after(key, wait)
