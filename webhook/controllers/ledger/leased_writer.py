"""Conditional writes of the ledger's objects, each until its outcome is known, under one lease.

Rule 6: a write whose outcome is unknown is settled by a conditional write of our own, never only by reading. After a
conflict the object shows whose write it was: our own, a successor's, or that of somebody who edited it. Ours it was if
all is stored as we sent it, the lease included: one key that says the same proves nothing of the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from webhook import metrics
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken, SetBack, refuse_unknown, refused
from webhook.controllers.ledger.stored import Kept, Objects, Stored
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.notation import names
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.kube.api import Api
from webhook.kube.election import Elector, LeaderRecord, told

log = structlog.get_logger(__name__)

CONFLICTS_MAX: Final = 20
"""So many in a row, each with the version that was just read, are no race: something says no whatever is there."""


class LeasedWriter:
    """The objects of one ledger, as one term reads and writes them."""

    def __init__(
        self,
        api: Api,
        elector: Elector,
        *,
        now: Callable[[], float],
        newest: int = 0,
        on_renewed: Callable[[float], None] = lambda deadline: None,
    ) -> None:
        """``now`` is Unix time for the record; ``newest`` the newest version that this process has seen of the index;
        ``on_renewed`` is told the monotonic time by which to renew again.
        """
        self._objects = Objects(api, elector.attempt_seconds)
        self._elector = elector
        self._now = now
        self._on_renewed = on_renewed
        self.newest = newest
        """The newest version of the index that this process saw or wrote."""
        self._index = Kept(names.LEDGER_NAME)
        self.ledger: Ledger | None = None
        """What we wrote last; None while the stored one is missing or corrupt."""
        self.known: Ledger | None = None
        """How far the ledger is known to have come, by what says so though it may be broken: one that replaces it comes
        after.
        """

    @property
    def renew_due(self) -> bool:
        """A third of the renew deadline has passed since the last write of the index."""
        return self._elector.renew_due(self._monotonic())

    def index_seen(self, version: int, lease: str | None) -> None:
        """Take note of the index as a watch shows it: the sooner a lease is seen, the sooner it is seen to end, and a
        ledger that goes back from there was restored.

        A watch that lags behind our own reads, as while a process takes in all jobs, shows no sign of life.
        """
        late, self.newest = version < self.newest, max(self.newest, version)
        if lease is not None and not late and not self._elector.led:
            self._elector.observe(lease, self._monotonic())

    @property
    def free_in_seconds(self) -> float:
        """In how many seconds the lease can be taken, unless it is renewed."""
        return self._elector.may_acquire_in(self._monotonic())

    @property
    def leader(self) -> LeaderRecord | None:
        """The record of another process that holds the lease, as last seen; None where none does."""
        return self._elector.other

    def died(self, leader: LeaderRecord) -> None:
        """Take note that the process of a ``leader`` is dead: its lease can be taken before it runs out."""
        log.info("lease.holder_died", holder=leader.holder, address=leader.address)
        self._elector.died(leader, self._monotonic())

    @property
    def last_renewal(self) -> str:
        """When the lease was renewed last, in words; empty when it is not ours."""
        return self._elector.last_renewal(self._monotonic())

    def forget(self) -> None:
        """Believe nothing of what is stored from here on: a new ledger will replace it."""
        self.ledger = None
        self._index.forget()

    async def _settle(self, kept: Kept, changes: Mapping[str, str | None]) -> None:
        """Write ``changes`` conditionally until the outcome is known.

        Of the index that ends with the lease. A page that cannot be written for as long is given up too, though the
        index can be: nobody would be admitted any more, and nobody told.
        """
        conflicts, began, leases, landed = 0, self._monotonic(), dict[str, float](), None
        while True:
            started = self._monotonic()
            if self._elector.must_quit(started):
                raise LeaseLost("the lease could not be renewed in time")
            try:
                if kept is self._index:
                    lease = self._elector.record(self._now())
                    leases.setdefault(lease, started)
                    await self._patch_index(changes, lease)
                else:
                    kept.resource_version = await self._objects.patch(kept.name, kept.resource_version, changes, None)
            except (Conflict, NotFound) as error:
                metrics.LEDGER_WRITES.labels("conflict").inc()
                landed = await self._landed(kept, changes, leases)
                if landed is not None:
                    break
                conflicts += 1
                if conflicts >= CONFLICTS_MAX:
                    raise refused(error) from error
                if conflicts > 1:
                    # Whoever stands between says no whatever is there: it is not asked as fast as it answers.
                    await asyncio.sleep(0.1)
            except Unavailable as error:
                metrics.LEDGER_WRITES.labels("unavailable").inc()
                log.warning("ledger.write_failed", error=str(error))
                if kept is not self._index and started - began >= self._elector.renew_seconds:
                    raise refused(error) from error
                # Rule 6: a lost write may still land after any read. Sending the same conditional write again settles
                # it: either ours goes through now, or it conflicts because the lost one did.
                await asyncio.sleep(0.1)
            except ApiError as error:
                metrics.LEDGER_WRITES.labels("refused").inc()
                raise refused(error) from error
            else:
                metrics.LEDGER_WRITES.labels("written").inc()
                break
        if kept is self._index:
            # Others count from when that one was sent that is stored: so does who leads by it.
            self._renewed(leases.get(landed or "", started), landed)

    async def _landed(self, kept: Kept, changes: Mapping[str, str | None], leases: Collection[str]) -> str | None:
        """After a conflict: return the lease that our own lost write stored, which is none on a page; None to write
        again on the version just read.

        The index was written if it bears one of the ``leases`` that were sent: whoever annotates it leaves the data as
        we sent it, but stores no renewal. Raises LeaseLost or LedgerBroken when it was somebody else's write that
        matters.
        """
        stored = await (self._read_ours() if kept is self._index else self._read_page(kept))
        kept.resource_version = stored.resource_version
        lease = (stored.lease or "") if kept is not self._index or stored.lease in leases else None
        if not kept.known or stored.data == kept.data_with(changes):
            return lease
        if stored.data != kept.data:
            self.forget()
            raise LedgerBroken(f"{kept.name} was edited by somebody else", stored)
        return None

    async def _outbid(self, epoch: int) -> None:
        """Have the index say that ``epoch`` was reached, or what is known beyond that, if what is stored says less.

        Once the pages are gone nothing else does, and a page of that time would be taken for one of the ledger to come.
        Nothing else of that index is to be believed then: its checksum is of something else. Raises LeaseLost, and
        LedgerBroken when it was deleted.
        """
        reached = max(epoch, 0 if self.known is None else self.known.epoch)
        self.known = replace(self.known or Ledger(), epoch=reached)
        while ledger_text.epoch_of((stored := await self._read_ours()).data) < reached:
            meta = ledger_text.encode_meta(Ledger(reached), ledger_text.checksum(stored.data) ^ 1)
            self._index.resource_version = stored.resource_version
            await self._settle(self._index, {ledger_text.META: meta})

    async def _read_ours(self) -> Stored:
        stored = await self._read_until_answered(self._read_index)
        if stored is None:
            self.forget()
            raise LedgerBroken("the ledger was deleted", deleted=True)
        refuse_unknown(stored)
        if not self._elector.is_ours(stored.lease):
            raise LeaseLost("the lease is not ours any more", told(stored.lease))
        return stored

    async def _read_page(self, kept: Kept) -> Stored:
        """Return a page of ours. Raises LeaseLost when a successor took it over."""
        stored = await self._read_until_answered(lambda: self._objects.read(kept.name))
        if stored is None or stored.uid != kept.uid:
            # Whoever leads now may have deleted it: the index says who that is.
            await self._read_ours()
            self.forget()
            raise LedgerBroken(f"{kept.name} was deleted", stored)
        if self.ledger is not None and ledger_text.epoch_of(stored.data) > self.ledger.epoch:
            raise LeaseLost("another replica took over a page", kept.name)
        refuse_unknown(stored)
        return stored

    async def _read_until_answered(self, read: Callable[[], Awaitable[Stored | None]]) -> Stored | None:
        while True:
            try:
                return await read()
            except Unavailable as error:
                log.warning("ledger.read_failed", error=str(error))
                if self._elector.must_quit(self._monotonic()):
                    raise LeaseLost("the API server did not answer until the lease ran out") from error
                await asyncio.sleep(0.1)
            except ApiError as error:
                raise refused(error) from error

    async def _read_index(self) -> Stored | None:
        """Return what is stored, None where there is nothing. Raises SetBack when that is older than what was before.

        Then etcd was set back to a backup: what this process remembers of jobs and pods never happened.
        """
        # What the watch shows while the answer is on its way may be newer than what is answered.
        before = self.newest
        stored = await self._objects.read(self._index.name)
        version = 0 if stored is None else int(stored.resource_version)
        if stored is not None and version < before:
            raise SetBack(f"the ledger went back from version {before} to {version}: a backup was restored")
        self.newest = max(self.newest, version)
        return stored

    async def _patch_index(self, changes: Mapping[str, str | None], lease: str) -> None:
        self._adopt(await self._objects.patch(self._index.name, self._index.resource_version, changes, lease))

    def _adopt(self, version: str) -> None:
        self._index.resource_version = version
        self.newest = max(self.newest, int(version))

    def _renewed(self, started: float, earlier: str | None = None) -> None:
        self._elector.renewed(started, earlier)
        self._on_renewed(self._elector.quit_at)

    def _monotonic(self) -> float:
        return asyncio.get_running_loop().time()


async def all_settled(writes: Iterable[Awaitable[None]]) -> None:
    """Wait for all of ``writes``; of several failures the one that ends most is raised."""
    failures = [each for each in await asyncio.gather(*writes, return_exceptions=True) if each is not None]
    for kind in (asyncio.CancelledError, LeaseLost, LedgerBroken, BaseException):
        for failure in failures:
            if isinstance(failure, kind):
                raise failure
