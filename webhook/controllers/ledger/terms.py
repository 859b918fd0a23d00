"""The terms of one process: each has its own identity, its own keeper and its own deadline.

A process that loses the lease steps down and may lead again later. Writes of its earlier term may still be on their way
then, so the new term shares nothing with it by which such a write could pass for its own: not the identity in the
lease, not what it remembers of the ledger. It only keeps how far the ledger was once seen to be, because a ledger that
goes back from there was restored from a backup.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from webhook.config import Lease
from webhook.controllers.ledger.errors import LeaseLost
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.core.ledger.text import Decoder
from webhook.kube.api import Api
from webhook.kube.election import Elector


class Terms:
    """Makes the keeper of each term, and ends a term when its lease was not renewed in time."""

    def __init__(
        self,
        api: Api,
        identity: str,
        lease: Lease,
        *,
        now: Callable[[], float],
        on_renewed: Callable[[float], None] = lambda deadline: None,
        on_ended: Callable[[], None] = lambda: None,
        decoder: Callable[[str], Decoder] = lambda name: Decoder(),
        proved_seq: Callable[[], int] = lambda: 0,
        address: str = "",
        death_of: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        """``on_renewed`` is told the time by which the lease must be renewed, ``on_ended`` that a term is over;
        ``decoder`` and ``proved_seq`` are as a keeper takes them.

        ``address`` is where others learn that this process is dead, empty where they cannot; ``death_of`` returns once
        the process at such an address is known to be dead.
        """
        self.death_of = death_of
        self._address = address
        self._decoder = decoder
        self._proved_seq = proved_seq
        self._api = api
        self._identity = identity
        self._lease = lease
        self._now = now
        self._on_renewed = on_renewed
        self._on_ended = on_ended
        self._number = 0
        self._held = False
        """The present keeper's term has begun: it is of no use for another."""
        self._deadline: float | None = None
        self._limit: asyncio.Timeout | None = None
        self.keeper = self._next()
        """Of the present term, or of the one that is campaigned for."""

    @property
    def lease_seconds(self) -> float:
        """After so long without a renewal another replica may take the lease."""
        return self._lease.lease_seconds

    def begin(self) -> LedgerKeeper:
        """Return the keeper of the next term."""
        if self._held:
            self.keeper, self._held = self._next(), False
        return self.keeper

    def _next(self) -> LedgerKeeper:
        newest = self.keeper.newest if self._number else 0
        self._number += 1
        lease, identity = self._lease, f"{self._identity}_{self._number}"
        elector = Elector(
            identity,
            lease.lease_seconds,
            lease.renew_seconds,
            lease.retry_seconds,
            process=self._identity,
            address=self._address,
        )
        self._deadline = None
        return LedgerKeeper(
            self._api,
            elector,
            now=self._now,
            newest=newest,
            on_renewed=self.renewed,
            decoder=self._decoder,
            proved_seq=self._proved_seq,
        )

    def index_seen(self, version: int, lease: str | None) -> None:
        """Tell a keeper what was read of the index: its resourceVersion, and the record of the lease."""
        self.keeper.index_seen(version, lease)

    def renewed(self, deadline: float) -> None:
        """Take note of the monotonic time by which the lease must be renewed again."""
        self._deadline = deadline
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(deadline)
        self._on_renewed(deadline)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Lead within this: whatever is awaited there is cancelled when the lease runs out. Raises LeaseLost."""
        self._held = True
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                self._limit = limit
                yield
        except TimeoutError as error:
            if limit.expired():
                raise LeaseLost("the lease could not be renewed in time") from error
            raise
        finally:
            self._limit = None

    def ended(self) -> None:
        """Take note that nothing of the term runs any more."""
        self._on_ended()
