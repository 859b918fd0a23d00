"""Keeps the ledger of a View as it is stored: index and pages, put together whenever either was read."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import orjson
import structlog

from webhook import metrics
from webhook.cluster.ledger_book import LedgerBook, newer
from webhook.cluster.listener import Listener
from webhook.cluster.view import View
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Changes, Ledger
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.model.frozen import frozen
from webhook.core.notation import names
from webhook.kube.plain import Plain
from webhook.untyped import paths
from webhook.wire.watch import version_number

log = structlog.get_logger(__name__)

APART_SECONDS_PER_PAGE: Final = 0.0002
"""How long changes of pages gather before they are put together, for each page: 20 ms at 10,000 gangs."""

WHILE_UNREAD: Final = (
    "what was read before counts, and pods of gangs that it does not name are refused, until a leader has rebuilt the "
    "ledger; if none does, its own log and events say why"
)


@frozen
class StoredPage:
    """One page of the ledger as it is stored."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    data: Mapping[str, str]


class LedgerFeed:
    """What was read of index and pages."""

    def __init__(
        self,
        view: View,
        listener: Callable[[], Listener],
        on_holding: Callable[[], None],
        index_seen: Callable[[int, str | None], None],
    ) -> None:
        """``on_holding`` is called after a queue came to hold gangs, or holds none any more; ``index_seen`` is told the
        resourceVersion of the index, and the record of the lease.
        """
        self._index_seen = index_seen
        self._view = view
        self._listener = listener
        self._on_holding = on_holding
        self._book = LedgerBook()
        self.decoder = self._book.decoder
        self._read: Ledger | None = None
        """What was read last. What the view has instead a leader put there, who knows of it before it can be read.
        Where there is none, what is read stands, though it be older: a backup was restored.
        """
        self._corrupt = ""
        """Why the ledger cannot be read, as it was logged."""
        self._due = 0.0
        """Loop time before which nothing is put together again."""
        self._timer: asyncio.TimerHandle | None = None

    def index_changed(self, _feed: str, _old: Plain | None, new: Plain | None) -> None:
        """Take in the index. Before the first ledger is written it holds only the lease."""
        document = {} if new is None else new.document
        if new is not None:
            lease = paths.find(document, ("metadata", "annotations", names.LEASE_ANNOTATION))
            self._index_seen(new.resource_version, lease if isinstance(lease, str) else None)
        self._book.index = document.get("data") or None
        self._read_soon()

    def read_page(self, raw: bytes) -> StoredPage:
        """Return a page as it is stored, with no text that is kept already: another entry of it is what changes."""
        document = orjson.loads(raw)
        metadata = document["metadata"]
        name, data = metadata["name"], document.get("data") or {}
        version = version_number(metadata["resourceVersion"])
        return StoredPage(metadata["uid"], metadata["namespace"], name, version, self.decoder(name).kept(data))

    def page_changed(self, _feed: str, old: StoredPage | None, new: StoredPage | None) -> None:
        """Take in one page."""
        if new is not None:
            self._book.pages[new.name] = Found(new.uid, new.data)
            self._listener().page_read(new.name, new.resource_version)
        elif old is not None:
            self._book.pages.pop(old.name, None)
            self._listener().page_deleted(old.name)
        self._read_soon()

    def follow(self) -> None:
        """Take the ledger that is read from now on, where a leader here said what it is."""
        if self._view.leads:
            self._view.leads = False
            self._put_together()

    def _read_soon(self) -> None:
        """Read at once, unless that was done a moment ago: one commit writes many pages, and each time costs what
        runs.
        """
        loop = asyncio.get_running_loop()
        if not self._view.synced or loop.time() >= self._due:
            self._put_together()
        elif self._timer is None:
            self._timer = loop.call_at(self._due, self._put_together)

    def _put_together(self) -> None:
        """Take what index and pages say together; while one of them lags behind the other, what was read before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            parts = self._book.parts()
            if parts is None or not self._view.leads:
                self._take(self._book.merged(parts), self._book.changes)
            # Else a leader here knows what it wrote, and meets whoever else writes.
            self._corrupt = ""
        except PagesMismatch:
            return
        except LedgerCorrupt as error:
            self._log_corrupt(str(error))
            self._take(None, None)
        finally:
            metrics.LEDGER_UNTRUSTED.set(not self._view.ledger_trusted)
        if self._view.take_holding_moved():
            self._on_holding()

    def _log_corrupt(self, why: str) -> None:
        """Log it once: it is read again at each write, though that is a renewal of the lease."""
        if why != self._corrupt:
            self._corrupt = why
            log.error("ledger.corrupt", error=why, then=WHILE_UNREAD)

    def _take(self, ledger: Ledger | None, changes: Changes | None) -> None:
        ahead = self._view.ledger is not self._read and self._view.ledger_trusted
        if ledger is None or newer(ledger, self._view.ledger) or not ahead:
            self._read = ledger
            self._view.set_ledger(ledger, changes)
            self._listener().ledger_changed(changes)
        pages = 0 if ledger is None else len(ledger.pages)
        self._due = asyncio.get_running_loop().time() + pages * APART_SECONDS_PER_PAGE
