"""A ledger whose index and pages are of two times."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.notation import names


def take_in(book: LedgerBook, config_maps: Iterable[Mapping[str, Any]]) -> None:
    """Have ``book`` say what is stored of the ledger. What a page held that was deleted or damaged is held on, until a
    new index lists it no more.
    """
    book.index = None
    for document in config_maps:
        metadata, data = document["metadata"], document.get("data") or {}
        if metadata["name"] == names.LEDGER_NAME:
            book.index = data
        elif (metadata.get("labels") or {}).get(names.LEDGER_PAGE) == names.LEDGER_NAME:
            _take_page(book, metadata["name"], Found(metadata["uid"], data))


def _take_page(book: LedgerBook, name: str, page: Found) -> None:
    known = book.pages.get(name)
    if known is not None and known.data is page.data:
        return
    try:
        if page.data:
            ledger_text.decode(page.data)
    except LedgerCorrupt:
        book.pages.setdefault(name, page)
    else:
        book.pages[name] = page


def read_whole(book: LedgerBook) -> Ledger | None:
    """Return the ledger that index and pages make; None where they make none."""
    try:
        return book.read()
    except (LedgerCorrupt, PagesMismatch):
        return None


def all_entries(book: LedgerBook) -> dict[str, Reservation]:
    """Return what index and pages say, each alone, whether or not they belong together."""
    entries: dict[str, Reservation] = {}
    for data in (book.index or {}, *(page.data for page in book.pages.values())):
        with suppress(LedgerCorrupt):
            entries |= ledger_text.decode(data).entries
    return entries


class PutBack:
    """An old copy that somebody puts into the ledger, until a leader has judged whether to believe it."""

    def __init__(self) -> None:
        self._done = False
        self._found: Ledger | None = None

    def done(self, book: LedgerBook) -> None:
        """Take note of what is there now."""
        self._done, self._found = True, read_whole(book)

    def is_judged(self, ledger: Ledger | None) -> bool:
        """Return whether a leader that read what was put there has written more than that it takes over."""
        if not self._done or ledger is None:
            return False
        found = self._found
        if found is None:
            return True
        written = ledger.seq - found.seq > ledger.epoch - found.epoch
        return ledger.epoch > found.epoch and (written or ledger.entries != found.entries)
