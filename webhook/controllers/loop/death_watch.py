"""Waits for the death of the process that holds the lease, beside the time after which the lease may be taken."""

import asyncio
from collections.abc import Awaitable, Callable

from webhook.kube.election import LeaderRecord


class DeathWatch:
    """Over whoever leads while this process follows."""

    def __init__(self, death_of: Callable[[str], Awaitable[object]] | None) -> None:
        """``death_of`` returns once the process at an address is known to be dead; None: nothing tells that."""
        self._death_of = death_of
        self._term: tuple[str, int] | None = None
        self._death: asyncio.Future[object] | None = None

    async def wait(self, leader: LeaderRecord | None, seconds: float) -> bool:
        """Wait so long, or until the process of ``leader`` is known to be dead; return whether it is, once for each."""
        self._watch(leader)
        if self._death is None:
            await asyncio.sleep(seconds)
            return False
        await asyncio.wait([self._death], timeout=seconds)
        if not self._death.done():
            return False
        # A failure tells nothing, and is none of the lease's.
        known = not self._death.cancelled() and self._death.exception() is None
        self._death = None
        return known

    def stop(self) -> None:
        """Watch nobody any more."""
        if self._death is not None:
            self._death.cancel()
        self._term = self._death = None

    def _watch(self, leader: LeaderRecord | None) -> None:
        term = None if leader is None or not leader.address else (leader.holder, leader.transitions)
        if term == self._term:
            return
        self.stop()
        self._term = term
        if leader is not None and term is not None and self._death_of is not None:
            self._death = asyncio.ensure_future(self._death_of(leader.address))
