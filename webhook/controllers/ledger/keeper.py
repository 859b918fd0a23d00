"""Reads, wins and writes the ledger: an index, which has the lease, and pages, each written by compare-and-swap.

Rules of the ledger (ARCHITECTURE.md) kept here: a take-over is a conditional write of the index that raises the epoch,
and then of every page that it lists; only then is anything decided (1). A write whose outcome is unknown is settled by
reading and then by a conditional write of our own, never by reading alone (6). A lost lease ends the term for good,
through ``LeaseLost`` (7). A keeper serves one term: what it remembers of its writes is what tells them from those of
others.

So the index decides which pages there are, and each page its content. A deposed leader writes neither: what it creates
late is not listed, and what it writes late conflicts. ``core.ledger.pages`` says what goes where and in which order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from webhook import metrics
from webhook.controllers.ledger import filing
from webhook.controllers.ledger.errors import LeaseLost, LedgerBroken, LedgerRefused, refuse_unknown, refused
from webhook.controllers.ledger.leased_writer import LeasedWriter, all_settled
from webhook.controllers.ledger.raised_pages import RaisedPages
from webhook.controllers.ledger.stored import Kept, Stored
from webhook.core.ledger import beside
from webhook.core.ledger import pages as ledger_pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.bounds import entry_bytes
from webhook.core.ledger.pages import INDEX, Change, Found, Layout, PagesMismatch
from webhook.core.ledger.record import Booked, Claim, Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.ledger.witness import Witness, check
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.kube.api import Api
from webhook.kube.election import Elector

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
"""Requests for pages that are under way at a time: with 32 a busy API server answered none of them in time."""
INDEX_ALONE_MAX: Final = 5
"""So many take-overs in a row that end at a page are no race."""


class LedgerKeeper(LeasedWriter):
    """The only writer of the ledger, for as long as it leads."""

    def __init__(
        self,
        api: Api,
        elector: Elector,
        *,
        now: Callable[[], float],
        newest: int = 0,
        on_renewed: Callable[[float], None] = lambda deadline: None,
        decoder: Callable[[str], ledger_text.Decoder] = lambda name: ledger_text.Decoder(),
        proved_seq: Callable[[], int] = lambda: 0,
    ) -> None:
        """As ``LeasedWriter`` takes it; ``decoder`` knows what this process has read of an object, by name;
        ``proved_seq`` returns the number of the last write by which a job was started that this process has read.
        """
        super().__init__(api, elector, now=now, newest=newest, on_renewed=on_renewed)
        self._decoder = decoder
        self._proved_seq = proved_seq
        self._pages: dict[str, Kept] = {}
        self._layout = Layout()
        self._witness = Witness()
        self._page_number = 0
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.unreadable: Stored | None = None
        """What was found instead of a ledger when this leadership began, to be kept for people to look at."""
        self.missing = False
        """There was no ledger at all when we began to lead."""
        self._index_alone = 0
        """Campaigns in a row that won the index, and then could not read or write the pages."""
        self._asked_claims: Mapping[str, Claim] | None = None
        self._claim_texts = beside.ClaimTexts()
        """What was to be written of claims last."""
        self.written_bytes = 0
        """How large the objects were that the last commit wrote."""

    @property
    def entries_bytes(self) -> int:
        """What all entries take, without claims and bookings, which are left out where there is no room for them."""
        return sum(self._layout.bytes_of.values())

    def bytes_in(self, namespace: str) -> int:
        """Return what all entries of a namespace take."""
        return self._layout.bytes_in[namespace]

    @property
    def claims(self) -> Mapping[str, Claim]:
        """All that stand as of the last write, those that found no room in it included."""
        stored = {} if self.ledger is None else self.ledger.claims
        return stored if self._asked_claims is None else self._asked_claims

    @property
    def paged(self) -> bool:
        """Whether a commit may be several writes: then nothing is to be spent that it only gives back itself.

        So it is before there is a page, once the index is half full, or it would grow past what it takes.
        """
        if self.ledger is None:
            return False
        return bool(self.ledger.pages) or 2 * self.entries_bytes > ledger_pages.INDEX_BYTES

    # -- leadership -------------------------------------------------------------------------------------------------

    async def campaign(self) -> bool:
        """Try once to become leader; return whether we lead. ``ledger`` is None then if it must be rebuilt.

        Raises SetBack when the API server was set back, LedgerRefused when the ledger is of another release or its
        pages cannot be taken over, ApiError when it cannot be read or we may not take it.
        """
        stored = await self._read_index()
        refuse_unknown(stored)
        self.known = Ledger(*max(self._decoder(INDEX).newest, (ledger_text.epoch_of(stored.data if stored else {}), 0)))
        started = self._monotonic()
        self._elector.observe(None if stored is None else stored.lease, started)
        if not self._elector.may_acquire(started):
            return False
        try:
            if stored is None:
                await self._create()
                self._renewed(started)
            else:
                await self._take_over(stored, started)
        except (Conflict, LeaseLost, LedgerBroken, ApiError) as error:
            # Whether that write landed shows at the next attempt: the record then names us, or the version moved.
            log.info("ledger.campaign_failed", error=str(error))
            if self._elector.led:
                self._index_alone += 1
                await self.step_down()
            if isinstance(error, ApiError | LedgerRefused) and not isinstance(error, Conflict | NotFound | Unavailable):
                raise
            if self._index_alone >= INDEX_ALONE_MAX:
                raise LedgerRefused(f"the ledger's pages cannot be taken over: {error}") from error
            return False
        self._index_alone = 0
        self.missing = stored is None or not stored.data
        metrics.LEADING.set(1)
        metrics.EPOCH.set(self.ledger.epoch if self.ledger else 0)
        log.info("ledger.leading", epoch=self.ledger.epoch if self.ledger else None, pages=len(self._pages))
        return True

    async def _create(self) -> None:
        self.forget()
        self._adopt((await self._objects.create(self._index.name, self._elector.record(self._now()))).resource_version)

    async def _take_over(self, stored: Stored, started: float) -> None:
        """Write the index, which takes the lease, then every page; many take longer than a lease lasts."""
        self._index.resource_version = stored.resource_version
        try:
            found = self._decoder(INDEX).decode_newest(stored.data)
            ledger = found.taken_over()
        except LedgerCorrupt as error:
            if stored.data:
                log.error("ledger.corrupt", error=str(error))
                self.unreadable = stored
            self.forget()
            await self._patch_index({}, self._elector.record(self._now()))
            self._renewed(started)
            return
        self.known = ledger
        self._index.take(stored.data)
        meta = ledger_text.encode_meta(ledger, self._index.digest)
        await self._patch_index({ledger_text.META: meta}, self._elector.record(self._now()))
        self._index.meta = meta
        self._renewed(started)
        try:
            await self._take_over_pages(ledger, found)
        except (PagesMismatch, LedgerCorrupt) as error:
            log.error("ledger.corrupt", error=str(error))
            self.unreadable = stored
            self.forget()

    async def _take_over_pages(self, index: Ledger, before: Ledger) -> None:
        """Raise the epoch of each page: from then on nobody but us writes it, and what is in it we have read.

        ``before`` is what the index said until now.
        """
        self.ledger, self._pages = None, {}
        stored: dict[str, Stored] = {}
        async for page in self._objects.pages():
            refuse_unknown(page)
            stored[page.name] = page
            await self.renew_if_due()
        found = {name: Found(each.uid, each.data) for name, each in stored.items()}
        beside = ledger_pages.unlisted(index, found)
        raised = RaisedPages(self._objects, index, self._decoder)
        await self._renewing(raised.take(stored[name]) for name in index.pages)
        for name in beside:
            # Of a leader that did not come to list it, and never will.
            await self._objects.delete(name, found[name].uid)
            await self.renew_if_due()
        check({INDEX: before, **raised.read}, self._proved_seq())
        parts = {INDEX: index, **raised.read}
        self._pages = raised.kept
        self._layout, self._witness = self._laid_out(parts), Witness(parts)
        self._remember(ledger_pages.merged(index, raised.read))

    async def step_down(self) -> None:
        """Release the lease so that a standby takes over at once. Best effort."""
        if self._elector.led:
            try:
                lease = self._elector.released(self._now())
                await self._objects.patch(self._index.name, self._index.resource_version, {}, lease)
            except ApiError as error:
                log.info("ledger.release_failed", error=str(error))
        metrics.LEADING.set(0)

    async def recreate(self) -> None:
        """Create the index again, with the lease alone, after it was deleted. Raises LeaseLost."""
        started = self._monotonic()
        while True:
            if self._elector.must_quit(self._monotonic()):
                raise LeaseLost("the lease could not be renewed in time")
            try:
                await self._create()
            except Conflict:
                self._index.resource_version = (await self._read_ours()).resource_version
                break
            except Unavailable as error:
                log.warning("ledger.write_failed", error=str(error))
                await asyncio.sleep(0.1)
            except ApiError as error:
                raise refused(error) from error
            else:
                break
        self._renewed(started)

    async def renew(self) -> None:
        """Renew the lease alone. Raises LeaseLost when another replica leads or it cannot be renewed in time."""
        kept = self._index
        if self.ledger is None:
            await self._settle(kept, {})
            return
        seq, seen = self._witness.seq_of(INDEX), self._witness.seen_by(INDEX)
        meta = ledger_text.encode_meta(replace(self.ledger, seq=seq, seen=seen), kept.digest)
        # An earlier release may have left no room to say more: the next commit makes some.
        too_long = ledger_text.size_bytes(kept.data | {ledger_text.META: meta}) > ledger_text.BYTES_MAX
        if meta == kept.meta or too_long:
            await self._settle(kept, {})
            return
        await self._settle(kept, {ledger_text.META: meta})
        self._witness.stored(INDEX, seq, seen)
        kept.meta = meta

    async def _renewing(self, writes: Iterable[Awaitable[None]]) -> None:
        """Wait for writes of pages, and renew the lease meanwhile: thousands of gangs may stop at one time."""
        writing = asyncio.ensure_future(all_settled(writes))
        try:
            while not writing.done():
                await asyncio.wait([writing], timeout=max(0.0, self._elector.renew_at - self._monotonic()))
                if not writing.done():
                    # Who only takes over has no other deadline; a leader's is the same.
                    async with asyncio.timeout_at(self._elector.quit_at):
                        await self.renew()
            await writing
        except TimeoutError as error:
            raise LeaseLost("the lease could not be renewed in time") from error
        finally:
            writing.cancel()
            await asyncio.wait([writing])

    async def renew_if_due(self) -> None:
        """Renew the lease alone, where that is due. Raises as ``renew``."""
        if self.renew_due:
            await self.renew()

    # -- writing ----------------------------------------------------------------------------------------------------

    async def commit(
        self,
        put: Iterable[Reservation] = (),
        drop: Iterable[str] = (),
        claims: Mapping[str, Claim] | None = None,
        bookings: Mapping[str, Booked] | None = None,
        on_put: Callable[[Ledger], None] = lambda ledger: None,
    ) -> Ledger:
        """Write one batch of decisions, as ``Ledger.amended`` takes it; return the new ledger.

        Returns only when all of it is known to be stored: what takes before what gives, where several pages change.
        ``on_put`` is told the new ledger once all of ``put`` is: what is dropped may stand on many pages. The lease is
        renewed when due. Raises LeaseLost when another replica leads or the lease could not be renewed in time,
        LedgerBroken when what is stored is not what we wrote.
        """
        assert self.ledger is not None, "no ledger to amend: rebuild it first"
        changed, dropped = {each.uid: each for each in put}, tuple(drop)
        new = [each for uid, each in changed.items() if uid not in self.ledger.entries]
        # What this commit gives back may be spent by what it takes, as long as both are one write: the index's.
        paged, fits = self.paged, self.entries_bytes + entry_bytes(*new) < ledger_text.BYTES_MAX // 2
        homes = {} if dropped and not paged and fits else await self._pages_for(new)
        # Coming to be, a page was listed: that was a write of its own.
        before, ledger = self.ledger, self.ledger.amended(changed.values(), dropped, claims, bookings)
        # One that this commit fills again is no longer empty.
        emptied = [page for page in self._layout.empty() if page not in homes.values()] if self.renew_due else []
        if emptied:
            ledger = replace(ledger, pages={n: uid for n, uid in ledger.pages.items() if n not in emptied})
        changes: dict[str, dict[str, Change]] = {}
        for uid in sorted({*changed, *dropped}):
            page = homes.get(uid) or self._layout.page_of.get(uid, INDEX)
            changes.setdefault(page, {})[uid] = Change(before.entries.get(uid), ledger.entries.get(uid))
        ledger, texts = self._beside_entries(before, ledger, changes)
        index_takes = ledger_text.CLAIMS in texts
        rounds = ledger_pages.stages(changes, index_takes)
        if texts or self.renew_due or not rounds:
            rounds = ledger_pages.with_index(rounds)
        self.written_bytes = 0
        # Where there was no page yet, it spends what it gives back itself: all of it has to be stored.
        put_by = ledger_pages.stored_by(frozenset(changed), rounds) if paged else len(rounds) - 1
        for number, each in enumerate(rounds):
            if INDEX in each:
                await self._write(INDEX, each[INDEX], ledger, texts)
            if each.keys() - {INDEX}:
                await self._renewing(self._write(page, uids, ledger) for page, uids in each.items() if page != INDEX)
            if number == put_by:
                on_put(ledger)
        self._remember(ledger)
        self._asked_claims = self._asked_claims if claims is None else claims
        for name in emptied:
            await self._delete_emptied(name)
        return ledger

    async def _pages_for(self, new: list[Reservation]) -> dict[str, str]:
        """Return the page of each new entry; what has no page yet comes to be first."""
        gangs = filing.gangs(new)
        pages = self._layout.assign([(entry_bytes(*gang), filing.joined(gang[0], self._layout)) for gang in gangs])
        fresh = await self._new_pages(1 + max((page for page in pages if isinstance(page, int)), default=-1))
        homes = [fresh[page] if isinstance(page, int) else page for page in pages]
        return {entry.uid: home for gang, home in zip(gangs, homes, strict=True) for entry in gang}

    def _beside_entries(
        self, before: Ledger, ledger: Ledger, changes: Mapping[str, Mapping[str, Change]]
    ) -> tuple[Ledger, dict[str, str | None]]:
        """Return the ledger as it can be written, and what is new in the index besides its entries."""
        entries = {uid: filing.text_of(change.after) for uid, change in changes.get(INDEX, {}).items()}
        # Where pages change too, what gives is written later: until then it takes its room.
        entries = {uid: text for uid, text in entries.items() if len(text or "") >= len(self._index.texts.get(uid, ""))}
        if ledger.pages != before.pages:
            entries[ledger_text.PAGES] = ledger_text.encode_pages(ledger.pages) if ledger.pages else None
        stored, texts = beside.written(before, ledger, self._index.data, entries, self._claim_texts)
        if stored is not ledger:
            left = len(ledger.claims) - len(stored.claims), len(ledger.bookings) - len(stored.bookings)
            log.warning("ledger.claims_left_out", claims=left[0], bookings=left[1])
        if ledger.pages != before.pages:
            texts[ledger_text.PAGES] = entries[ledger_text.PAGES]
        return stored, texts

    async def _write(
        self, page: str, uids: Iterable[str], ledger: Ledger, texts: Mapping[str, str | None] | None = None
    ) -> None:
        """Write what ``ledger`` says of some entries on one page, and ``texts`` with them."""
        kept = self._index if page == INDEX else self._pages[page]
        changes = {uid: filing.text_of(ledger.entries.get(uid)) for uid in sorted(uids)} | dict(texts or {})
        digest = kept.digest_with(changes)
        seen = self._witness.seen_by(page)
        about = replace(ledger, seen=seen, pages=ledger.pages if page == INDEX else {})
        meta = ledger_text.encode_meta(about, digest)
        async with self._slots:
            await self._settle(kept, changes | {ledger_text.META: meta})
        decoder = self._decoder(page)
        for uid in sorted(uids):
            decoder.written(uid, changes[uid], ledger.entries.get(uid))
            before = None if self.ledger is None else self.ledger.entries.get(uid)
            text = kept.texts.get(uid)
            filing.refile(self._layout, uid, page, (before, text), (ledger.entries.get(uid), changes[uid]))
        kept.changed(changes, digest, meta)
        self._witness.stored(page, ledger.seq, seen)
        self.written_bytes += ledger_text.size_bytes(kept.texts)

    async def verify(self, doubted: bool, gone: Collection[str], read: Mapping[str, int]) -> None:
        """Write index and pages as they are, if that is ``doubted``, every page if one of those ``gone`` is listed,
        else those that were ``read`` in a version newer than we wrote: so it shows whether somebody else did.

        To be called while no write is under way. Raises as ``commit`` does.
        """
        if doubted:
            await self.renew()
        every = doubted or not self._pages.keys().isdisjoint(gone)
        suspects = [kept for name, kept in self._pages.items() if every or read.get(name, 0) > kept.version]
        if suspects:
            await self._renewing(self._settle(kept, {ledger_text.META: kept.meta}) for kept in suspects)

    # -- pages that come and go -------------------------------------------------------------------------------------

    async def _new_pages(self, number: int) -> list[str]:
        """Create empty pages, list them in the index, and only then use them: so a late creation is never read."""
        if not number:
            return []
        assert self.ledger is not None
        epoch, created = self.ledger.epoch, list[Kept]()

        async def create() -> None:
            created.append(await self._create_page(epoch))

        await self._renewing(create() for _ in range(number))
        self._pages |= {kept.name: kept for kept in created}
        self._layout.bytes_of |= {kept.name: 0 for kept in created}
        self._layout.open = created[-1].name
        pages = {**self.ledger.pages, **{kept.name: kept.uid for kept in created}}
        listed = replace(self.ledger, seq=self.ledger.seq + 1, pages=pages)
        listed, texts = self._beside_entries(self.ledger, listed, {})
        await self._write(INDEX, (), listed, texts)
        self._asked_claims = self.claims
        self._remember(listed)
        return [kept.name for kept in created]

    async def _create_page(self, epoch: int) -> Kept:
        """Create a page without entries. It says so, or one that was wiped would look the same."""
        data = ledger_text.encode(Ledger(epoch))
        while True:
            if self._elector.must_quit(self._monotonic()):
                raise LeaseLost("the lease could not be renewed in time")
            # A name is never used again: whether one whose answer was lost has come to be does not matter.
            self._page_number += 1
            name = f"{self._index.name}-page-{epoch}-{self._page_number}"
            try:
                async with self._slots:
                    stored = await self._objects.create(name, data=data)
            except (Conflict, Unavailable) as error:
                log.warning("ledger.write_failed", error=str(error))
                await asyncio.sleep(0.1)
            except ApiError as error:
                raise refused(error) from error
            else:
                kept = Kept(stored.name, stored.uid, stored.resource_version)
                kept.take(data)
                return kept

    async def _delete_emptied(self, name: str) -> None:
        """Delete a page that is no longer listed. Best effort: the next leader deletes what is left."""
        kept = self._pages.pop(name)
        self._witness.gone(name)
        del self._layout.bytes_of[name]
        try:
            await self._objects.delete(name, kept.uid)
        except ApiError as error:
            log.info("ledger.page_not_deleted", page=name, error=str(error))

    async def delete_pages(self) -> None:
        """Delete every page, so that nothing that an earlier leader sent can be written any more.

        To be called before any object is read that a new ledger is to be built from. Raises ApiError, and
        LedgerRefused while one is of another release: then all stay; and as the index does, which is written first.
        """
        found = [page async for page in self._objects.pages()]
        for page in found:
            refuse_unknown(page)
        await self._outbid(max((ledger_text.epoch_of(page.data) for page in found), default=0))
        for page in found:
            await self._objects.delete(page.name, page.uid)
        self._pages, self._layout, self._witness = {}, Layout(), Witness()

    async def replace(self, ledger: Ledger) -> None:
        """Write a rebuilt ledger over whatever is stored. Raises LeaseLost, and LedgerBroken when it was deleted.

        Its pages are written before they are listed: one write of the index puts all of it in force.
        """
        index, pages = await self._spread(ledger)
        stored = await self._read_ours()
        decoded = {name: ledger_text.decode(kept.data) for name, kept in pages.items()}
        index = replace(index, seen=Witness({INDEX: index, **decoded}).seen_by(INDEX))
        data = ledger_text.encode(index)
        self._index.resource_version = stored.resource_version
        # What is removed is what is there now: whoever adds to it meanwhile has it rebuilt once more.
        self._index.take(stored.data)
        removed: dict[str, str | None] = dict.fromkeys(stored.data.keys() - data.keys())
        await self._settle(self._index, removed | data)
        self._index.take(data)
        self._pages, parts = pages, {INDEX: index, **decoded}
        self._layout, self._witness = self._laid_out(parts), Witness(parts)
        self._remember(replace(ledger, pages=index.pages))
        self._asked_claims = None

    async def _spread(self, ledger: Ledger) -> tuple[Ledger, dict[str, Kept]]:
        """Write all but what the index takes on new pages; return the index, and the pages."""
        shares = ledger_pages.distribute(filing.gangs(ledger.entries.values()))
        pages: dict[str, Kept] = {}
        for share in shares[1:]:
            # Many pages take longer than the lease. One whose creation got lost holds nothing, and is in nobody's way.
            await self.renew_if_due()
            kept = await self._create_page(ledger.epoch)
            data = ledger_text.encode(Ledger(ledger.epoch, ledger.seq, share))
            await self._settle(kept, data)
            kept.take(data)
            pages[kept.name] = kept
        return replace(ledger, entries=shares[0], pages={name: kept.uid for name, kept in pages.items()}), pages

    def _laid_out(self, parts: Mapping[str, Ledger]) -> Layout:
        texts = {name: kept.texts for name, kept in self._pages.items()} | {INDEX: self._index.texts}
        return filing.laid_out(parts, texts)

    def _remember(self, ledger: Ledger) -> None:
        self.ledger = self.known = ledger
        metrics.RESERVATIONS.set(len(ledger.entries))
        metrics.LEDGER_BYTES.set(self.entries_bytes)
        metrics.LEDGER_PAGES.set(len(ledger.pages))
        metrics.EPOCH.set(ledger.epoch)
