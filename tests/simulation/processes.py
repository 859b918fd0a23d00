"""Processes of ours in a simulated world: how they talk to each other, and what they learn of each other's death."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from webhook.laboratory.simulated.api import SimulatedApi
from webhook.server.handler import ReviewHandler
from webhook.server.sharding.forward import Forwarder


class PeerlessForwarder(Forwarder):
    """Passes pod reviews to the owning replica by a call instead of a connection."""

    handlers: Mapping[str, ReviewHandler]

    async def _post(self, url: str, path: str, body: bytes, timeout_seconds: float) -> tuple[int, bytes] | None:
        handler = self.handlers[url.removeprefix("sim://")]
        assert handler.forwarder is not None
        handler.forwarder.ownership.join(self._now())
        return await handler.review(path, body, timeout_seconds, hopped=True)

    async def _healthy(self, url: str) -> bool:
        return url.removeprefix("sim://") in self.handlers


@dataclass(slots=True)
class Replica:
    """One process: its connection and its task."""

    api: SimulatedApi
    task: asyncio.Task[None]


@dataclass
class Deaths:
    """Which reconcilers have died, as the others learn it: not all of them, and perhaps of one that lives."""

    seed: int
    told: float
    """Chance that a process is told of another's death at once."""
    imagined: float
    """Chance that it is told so within a minute though the other lives."""
    _ended: dict[str, asyncio.Event] = field(default_factory=dict)

    def of(self, identity: str) -> dict[str, Any]:
        """Return what a reconciler is given of this."""
        return {"address": identity, "death_of": self._death_of} if self.told or self.imagined else {}

    def watch(self, identity: str, task: asyncio.Task[None]) -> None:
        """Have others learn the death of a process when its task ends."""
        ended = self._ended[identity] = asyncio.Event()
        task.add_done_callback(lambda _task: ended.set())

    def lives(self, identity: str) -> bool:
        """Return whether a process that was started has not ended."""
        return not self._ended[identity].is_set()

    async def _death_of(self, identity: str) -> None:
        # A generator of its own, so that who asks changes nothing else of a story.
        chance = Random(f"{self.seed} {identity} {asyncio.get_running_loop().time()}")
        heard, lies = chance.random() < self.told, chance.random() < self.imagined
        if not heard and not lies:
            await asyncio.Event().wait()
        if lies:
            await asyncio.wait([asyncio.ensure_future(self._ended[identity].wait())], timeout=chance.uniform(0, 60))
        else:
            await self._ended[identity].wait()
        await asyncio.sleep(chance.uniform(0, 0.2))
