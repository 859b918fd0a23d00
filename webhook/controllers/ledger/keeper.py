"""Reads, wins and writes the ledger ConfigMap: the lease and the reservations are one object, so one compare-and-swap
fences both.

Rules of the ledger (ARCHITECTURE.md) kept here: a take-over is a conditional write that raises the epoch (1); a write
whose outcome is unknown is settled by reading and then by a conditional write of our own, never by reading alone (6); a
lost lease ends the term for good, through ``LeaseLost`` (7). A keeper serves one term: what it remembers of its writes
is what tells them from those of others.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import structlog

from webhook import metrics
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Booked, Claim, Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt, UnknownSchema
from webhook.core.model import names
from webhook.errors import ApiError, Conflict, NotFound, TuttiError, Unavailable
from webhook.kube.api import MERGE_PATCH, Api
from webhook.kube.election import Elector

log = structlog.get_logger(__name__)

WRITE_TIMEOUT_SECONDS: Final = 2.0
"""One attempt; several fit into the renew deadline."""


class LeaseLost(TuttiError):
    """Another replica leads, or our lease could not be renewed in time: step down."""

    lasting = False
    """Trying again at once would end the same."""


class LedgerRefused(LeaseLost):
    """The API server takes no write of ours, or the ledger is of another release: step down, try again later."""

    lasting = True


class SetBack(TuttiError):
    """A backup was restored: what this process remembers of jobs and pods never happened, so it must end."""


class LedgerBroken(TuttiError):
    """The ledger is missing or was edited by somebody else: stop admitting and rebuild it."""

    def __init__(self, why: str, stored: "Stored | None" = None, *, deleted: bool = False, first: bool = False) -> None:
        super().__init__(why)
        self.stored = stored
        """What is stored instead, to be kept for people to look at."""
        self.deleted = deleted
        self.first = first
        """There was none when this process began to lead: where nothing holds anything either, nothing was lost."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The ConfigMap as last read."""

    resource_version: str
    lease: str | None
    data: Mapping[str, str]


def project(raw: bytes) -> Stored:
    """Return the ledger's parts of a ConfigMap's JSON."""
    document = orjson.loads(raw)
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    return Stored(metadata["resourceVersion"], annotations.get(names.LEASE_ANNOTATION), document.get("data") or {})


class LedgerKeeper:
    """The only writer of the ledger, for as long as it leads."""

    def __init__(
        self,
        api: Api,
        elector: Elector,
        *,
        namespace: str,
        name: str,
        now: Callable[[], float],
        newest: int = 0,
        on_renewed: Callable[[float], None] = lambda deadline: None,
    ) -> None:
        """``now`` is Unix time for the record; ``newest`` the newest version that this process has seen of the ledger;
        ``on_renewed`` is told the monotonic time by which to renew again.
        """
        self._api = api
        self._elector = elector
        self._namespace = namespace
        self._name = name
        self._now = now
        self._on_renewed = on_renewed
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path = f"{self._collection}/{name}"
        self._resource_version = ""
        self.newest = newest
        """The newest version of it that this process read or wrote."""
        self._texts: dict[str, str] = {}
        self._digest = 0
        self.ledger: Ledger | None = None
        """What we wrote last; None while the stored one is missing or corrupt."""
        self.unreadable: Stored | None = None
        """What was found instead of a ledger when this leadership began, to be kept for people to look at."""
        self.missing = False
        """There was no ledger at all when we began to lead."""
        self.size_bytes = 0
        self.entries_bytes = 0
        """Its part that is neither claims nor bookings, which are left out where there is no room for them."""

    @property
    def resource_version(self) -> int:
        """The version of the stored ledger as last written or read."""
        return int(self._resource_version or 0)

    # -- leadership -------------------------------------------------------------------------------------------------

    async def campaign(self) -> bool:
        """Try once to become leader; return whether we lead. ``ledger`` is None then if it must be rebuilt.

        Raises SetBack when the API server was set back, LedgerRefused when the ledger is of another release.
        """
        stored = await self._read()
        _refuse_unknown(stored)
        started = self._monotonic()
        self._elector.observe(None if stored is None else stored.lease, started)
        if not self._elector.may_acquire(started):
            return False
        try:
            if stored is None:
                await self._create()
            else:
                await self._take_over(stored)
        except Conflict:
            return False
        except ApiError as error:
            # Whether that write landed shows at the next attempt: the record then names us, or the version moved.
            log.warning("ledger.campaign_failed", error=str(error))
            return False
        self._renewed(started)
        self.missing = stored is None or not stored.data
        metrics.LEADING.set(1)
        metrics.EPOCH.set(self.ledger.epoch if self.ledger else 0)
        log.info("ledger.leading", epoch=self.ledger.epoch if self.ledger else None)
        return True

    async def _create(self) -> None:
        self.ledger = None
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "annotations": {names.LEASE_ANNOTATION: self._elector.record(self._now())},
            },
        }
        raw = await self._api.request(
            "POST", self._collection, body=orjson.dumps(body), timeout_seconds=WRITE_TIMEOUT_SECONDS
        )
        self._adopt_version(raw)

    async def _take_over(self, stored: Stored) -> None:
        self._resource_version = stored.resource_version
        try:
            ledger = ledger_text.decode(stored.data).taken_over()
        except LedgerCorrupt as error:
            if stored.data:
                log.error("ledger.corrupt", error=str(error))
                self.unreadable = stored
            self.ledger = None
            await self._patch({}, self._elector.record(self._now()))
            return
        self._texts = {uid: text for uid, text in stored.data.items() if uid != ledger_text.META}
        self._digest = ledger_text.checksum(stored.data)
        meta = ledger_text.encode_meta(ledger, self._digest)
        await self._patch({ledger_text.META: meta}, self._elector.record(self._now()))
        self._remember(ledger)

    async def step_down(self) -> None:
        """Release the lease so that a standby takes over at once. Best effort."""
        if self._elector.led:
            try:
                await self._patch({}, self._elector.released(self._now()))
            except ApiError as error:
                log.info("ledger.release_failed", error=str(error))
        metrics.LEADING.set(0)

    async def recreate(self) -> None:
        """Create the ConfigMap anew, with the lease alone, after it was deleted. Raises LeaseLost."""
        started = self._monotonic()
        while True:
            if self._elector.must_quit(self._monotonic()):
                raise LeaseLost("the lease could not be renewed in time")
            try:
                await self._create()
            except Conflict:
                self._resource_version = (await self._read_ours()).resource_version
                break
            except Unavailable as error:
                log.warning("ledger.write_failed", error=str(error))
                await asyncio.sleep(0.1)
            except ApiError as error:
                raise _refused(error) from error
            else:
                break
        self._renewed(started)

    async def renew(self) -> None:
        """Renew the lease alone. Raises LeaseLost when another replica leads or it cannot be renewed in time."""
        await self._settle({}, "")

    @property
    def renew_due(self) -> bool:
        """A third of the renew deadline has passed since the last write."""
        return self._elector.renew_due(self._monotonic())

    # -- writing ----------------------------------------------------------------------------------------------------

    async def commit(
        self,
        put: Iterable[Reservation] = (),
        drop: Iterable[str] = (),
        claims: Mapping[str, Claim] | None = None,
        bookings: Mapping[str, Booked] | None = None,
    ) -> Ledger:
        """Write one batch of decisions, as ``Ledger.amended`` takes it, and renew the lease; return the new ledger.

        Returns only when the write is known to be stored. Raises LeaseLost when another replica leads or the lease
        could not be renewed in time, LedgerBroken when the stored ledger is not the one we wrote.
        """
        assert self.ledger is not None, "no ledger to amend: rebuild it first"
        put = tuple(put)
        ledger = self.ledger.amended(put, drop, claims, bookings)
        changes = self._changes(ledger, put)
        if (ledger.claims or ledger.bookings) and self._size_with(changes) > ledger_text.BYTES_MAX:
            # A new leader works them out anew; an entry that cannot be written would stop everything.
            log.warning("ledger.claims_left_out", claims=len(ledger.claims), bookings=len(ledger.bookings))
            ledger = replace(ledger, claims={}, bookings={})
            changes = self._changes(ledger, put)
        digest = self._digest
        for uid, text in changes.items():
            if uid in self._texts:
                digest ^= ledger_text.entry_digest(uid, self._texts[uid])
            if text is not None:
                digest ^= ledger_text.entry_digest(uid, text)
        meta = ledger_text.encode_meta(ledger, digest)
        await self._settle(changes | {ledger_text.META: meta}, meta)
        for uid, text in changes.items():
            if text is None:
                self._texts.pop(uid, None)
            else:
                self._texts[uid] = text
        self._digest = digest
        self._remember(ledger)
        return ledger

    def _changes(self, ledger: Ledger, put: Iterable[Reservation]) -> dict[str, str | None]:
        """Return what to write of a successor of our ledger, by key; None removes one."""
        assert self.ledger is not None
        changes: dict[str, str | None] = dict.fromkeys(self.ledger.entries.keys() - ledger.entries.keys())
        changes |= {reservation.uid: ledger_text.encode_entry(reservation) for reservation in put}
        if ledger.claims != self.ledger.claims:
            changes[ledger_text.CLAIMS] = ledger_text.encode_claims(ledger.claims) if ledger.claims else None
        if ledger.bookings != self.ledger.bookings:
            changes[ledger_text.BOOKINGS] = ledger_text.encode_bookings(ledger.bookings) if ledger.bookings else None
        return changes

    def _size_with(self, changes: Mapping[str, str | None]) -> int:
        """Return what the stored ledger would have, in bytes, with ``changes`` and a little more to count them."""
        data = self._texts | {key: text or "" for key, text in changes.items()}
        return ledger_text.size_bytes(data) + 2 * len(self._meta())

    async def replace(self, ledger: Ledger) -> None:
        """Write a rebuilt ledger over whatever is stored. Raises LeaseLost, and LedgerBroken when it was deleted."""
        stored = await self._read_ours()
        data = ledger_text.encode(ledger)
        self._texts = {uid: text for uid, text in data.items() if uid != ledger_text.META}
        self._digest = ledger_text.checksum(data)
        self._resource_version = stored.resource_version
        removed: dict[str, str | None] = dict.fromkeys(stored.data.keys() - data.keys())
        await self._settle(removed | data, data[ledger_text.META])
        self._remember(ledger)

    async def _settle(self, changes: Mapping[str, str | None], meta: str) -> None:
        """Write ``changes`` conditionally until the outcome is known."""
        while True:
            started = self._monotonic()
            if self._elector.must_quit(started):
                raise LeaseLost("the lease could not be renewed in time")
            try:
                await self._patch(changes, self._elector.record(self._now()))
            except (Conflict, NotFound):
                metrics.LEDGER_WRITES.labels("conflict").inc()
                if await self._landed(meta):
                    break
            except Unavailable as error:
                metrics.LEDGER_WRITES.labels("unavailable").inc()
                log.warning("ledger.write_failed", error=str(error))
                # Rule 6: a lost write may still land after any read. Sending the same conditional write again settles
                # it: either ours goes through now, or it conflicts because the lost one did.
                await asyncio.sleep(0.1)
            except ApiError as error:
                metrics.LEDGER_WRITES.labels("refused").inc()
                raise _refused(error) from error
            else:
                metrics.LEDGER_WRITES.labels("written").inc()
                break
        self._renewed(started)

    async def _landed(self, meta: str) -> bool:
        """After a conflict: return whether our own lost write was it; False to write again on the version just read.

        Raises LeaseLost or LedgerBroken when it was somebody else's write that matters.
        """
        stored = await self._read_ours()
        self._resource_version = stored.resource_version
        if stored.data.get(ledger_text.META) == meta:
            return True
        if self.ledger is not None and dict(stored.data) != self._texts | {ledger_text.META: self._meta()}:
            self.ledger = None
            raise LedgerBroken("the ledger was edited by somebody else", stored)
        return False

    def _meta(self) -> str:
        assert self.ledger is not None
        return ledger_text.encode_meta(self.ledger, self._digest)

    async def _read_ours(self) -> Stored:
        while True:
            try:
                stored = await self._read()
                break
            except Unavailable as error:
                log.warning("ledger.read_failed", error=str(error))
                if self._elector.must_quit(self._monotonic()):
                    raise LeaseLost("the API server did not answer until the lease ran out") from error
                await asyncio.sleep(0.1)
            except ApiError as error:
                raise _refused(error) from error
        if stored is None:
            self.ledger = None
            raise LedgerBroken("the ledger was deleted", deleted=True)
        _refuse_unknown(stored)
        if not self._elector.is_ours(stored.lease):
            raise LeaseLost(f"another replica leads: {stored.lease}")
        return stored

    # -- transport --------------------------------------------------------------------------------------------------

    async def _read(self) -> Stored | None:
        """Return what is stored, None where there is nothing. Raises SetBack when that is older than what was before.

        Then etcd was set back to a backup: what this process remembers of jobs and pods never happened.
        """
        try:
            stored = project(await self._api.request("GET", self._path, timeout_seconds=WRITE_TIMEOUT_SECONDS))
        except NotFound:
            return None
        version = int(stored.resource_version)
        if version < self.newest:
            raise SetBack(f"the ledger went back from version {self.newest} to {version}: a backup was restored")
        self.newest = version
        return stored

    async def _patch(self, changes: Mapping[str, str | None], lease: str) -> None:
        body: dict[str, Any] = {
            "metadata": {
                "resourceVersion": self._resource_version,
                "annotations": {names.LEASE_ANNOTATION: lease},
            }
        }
        if changes:
            body["data"] = changes
        sent = orjson.dumps(body)
        metrics.LEDGER_SENT.inc(len(sent))
        raw = await self._api.request(
            "PATCH",
            self._path,
            body=sent,
            content_type=MERGE_PATCH,
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
        )
        self._adopt_version(raw)

    def _adopt_version(self, raw: bytes) -> None:
        self._resource_version = orjson.loads(raw)["metadata"]["resourceVersion"]
        self.newest = max(self.newest, int(self._resource_version))

    def _remember(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.entries_bytes = sum(len(uid) + len(text) for uid, text in self._texts.items()) + len(self._meta())
        self.size_bytes = self.entries_bytes
        self.entries_bytes -= sum(len(self._texts.get(key, "")) for key in (ledger_text.CLAIMS, ledger_text.BOOKINGS))
        metrics.RESERVATIONS.set(len(ledger.entries))
        metrics.LEDGER_BYTES.set(self.size_bytes)
        metrics.EPOCH.set(ledger.epoch)

    def _renewed(self, started: float) -> None:
        self._elector.renewed(started)
        self._on_renewed(self._elector.quit_at)

    def _monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def _refused(error: ApiError) -> LedgerRefused:
    return LedgerRefused(f"the API server takes no write of the ledger: {error}")


def _refuse_unknown(stored: Stored | None) -> None:
    """Leave a ledger alone that a newer release wrote: what it says beyond our knowledge would be lost."""
    if stored is None:
        return
    try:
        ledger_text.check_schema(stored.data)
    except UnknownSchema as error:
        raise LedgerRefused(f"the ledger is left as it is: {error}") from error
