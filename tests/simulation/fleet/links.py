"""One link between a hub and a cluster: what becomes of what is sent over it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from webhook import errors
from webhook.fleet.members.member import ANSWER_SECONDS
from webhook.kube.api import REQUEST_TIMEOUT_SECONDS
from webhook.laboratory.simulated.api import SimulatedApi


class Fault(StrEnum):
    """The state of a link."""

    PASS = "pass"
    REFUSE = "refuse"
    """Nothing listens: every request fails at once, every watch ends."""
    BLACK_HOLE = "black hole"
    """What is sent does not arrive, and nobody says so."""
    LOST_REPLIES = "lost replies"
    """What is sent arrives; the connection breaks before the answer."""
    HALF_OPEN = "half open"
    """What is sent arrives; no answer comes, and watches are silent though nobody has closed them."""
    SLOW = "slow"
    """What is sent arrives, and is answered just in time."""
    HANGS = "hangs"
    """Something behind the API server hangs at each write, as it says in time; every other one is stored all the same.
    """
    DENIED = "denied"
    """An admission webhook there refuses each write of a job, and of what jobs refer to, by one status after another
    that a server has for itself.
    """


CUTS = (Fault.REFUSE, Fault.BLACK_HOLE, Fault.LOST_REPLIES, Fault.HALF_OPEN)
"""In which nothing is answered: a partition."""
Moment = Literal["before", "stored", "after"]
"""Of a write: it is about to be sent; it was stored; its sender hears of it, whatever became of it on the way."""


@dataclass(frozen=True, eq=False)
class Write:
    """One write, as it is sent."""

    link: str
    method: str
    path: str
    body: bytes


_REFUSED: Final = re.compile(r"jobs|/(?:sparkapplications|configmaps|secrets|serviceaccounts)(?:/|$)")
SILENT = (Fault.BLACK_HOLE, Fault.LOST_REPLIES, Fault.HALF_OPEN)
SLOW_SECONDS = ANSWER_SECONDS - 0.2
HANGS_SECONDS = ANSWER_SECONDS - 0.5
DENIALS: tuple[tuple[type[errors.ApiError], int], ...] = (
    (errors.Conflict, 409),
    (errors.Unavailable, 429),
    (errors.NotFound, 404),
    (errors.Unavailable, 503),
)


class Link:
    """A connection of one hub process to one cluster; an ``Api``."""

    def __init__(
        self,
        api: SimulatedApi,
        states: dict[str, Fault],
        name: str,
        on_write: Callable[[Write, Moment], None],
        on_request: Callable[[str, str], None] = lambda method, path: None,
    ) -> None:
        self._api = api
        self._states = states
        self._name = name
        self._on_write = on_write
        """Told each moment of each write."""
        self._on_request = on_request
        """Told method and path of each request, whatever becomes of it."""
        self.cut: Fault | None = None
        """What becomes of what this process alone sends over it; None: the same as of what all others send."""
        self._hung = 0
        """Writes that something behind the API server has kept."""
        self._denied = 0
        self.astray: SimulatedApi | None = None
        """Another cluster that answers in its place."""

    @property
    def fault(self) -> Fault:
        return self.cut or self._states[self._name]

    async def request(
        self, method: str, path: str, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS, **how: Any
    ) -> bytes:
        self._on_request(method, path)
        if method == "GET":
            return await self._sent(None, method, path, timeout_seconds, how)
        write = Write(self._name, method, path, how.get("body") or b"")
        self._on_write(write, "before")
        try:
            return await self._sent(write, method, path, timeout_seconds, how)
        finally:
            self._on_write(write, "after")

    async def _sent(self, write: Write | None, method: str, path: str, timeout_seconds: float, how: Any) -> bytes:
        if self.fault is Fault.REFUSE:
            raise errors.Unavailable(0, "Refused", f"{method} {path}: connection refused")
        if self.fault is Fault.BLACK_HOLE:
            await asyncio.sleep(timeout_seconds)
            raise _unknown(f"{method} {path}: no answer in time", write is not None)
        if write and self.fault is Fault.HANGS:
            return await self._hangs(write, how)
        if write and self.fault is Fault.DENIED and _REFUSED.search(path):
            self._denied += 1
            kind, code = DENIALS[self._denied % len(DENIALS)]
            raise kind(code, "", "admission webhook denied the request")
        answer = await (self.astray or self._api).request(method, path, timeout_seconds=timeout_seconds, **how)
        if write:
            self._on_write(write, "stored")
        # The link may have changed while the request was under way.
        if self.fault in (Fault.BLACK_HOLE, Fault.HALF_OPEN):
            await asyncio.sleep(timeout_seconds)
            raise _unknown(f"{method} {path}: no answer in time", write is not None)
        if self.fault is Fault.LOST_REPLIES:
            raise _unknown(f"{method} {path}: connection reset", write is not None)
        if self.fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        return answer

    async def _hangs(self, write: Write, how: Any) -> bytes:
        self._hung += 1
        if self._hung % 2 == 0:
            await (self.astray or self._api).request(write.method, write.path, **how)
            self._on_write(write, "stored")
        await asyncio.sleep(HANGS_SECONDS)
        raise errors.Unavailable(
            504, "Timeout", f"{write.method} {write.path}: did not complete in time", outcome_unknown=True
        )

    async def watch(self, path: str, *, query: Any, idle_seconds: float) -> AsyncIterator[bytes]:
        if self.fault is Fault.REFUSE:
            raise errors.Unavailable(0, "Refused", f"watch of {path}: connection refused")
        if self.fault in SILENT:
            await asyncio.sleep(idle_seconds)
            return
        async for line in (self.astray or self._api).watch(path, query=query, idle_seconds=idle_seconds):
            if self.fault in (Fault.BLACK_HOLE, Fault.HALF_OPEN):
                await asyncio.sleep(idle_seconds)
            if self.fault in SILENT or self.fault is Fault.REFUSE:
                return
            yield line

    def sever(self) -> None:
        self._api.sever()

    async def close(self) -> None:
        await self._api.close()


def _unknown(words: str, write: bool) -> errors.Unavailable:
    return errors.Unavailable(0, "Timeout", words, outcome_unknown=write)
