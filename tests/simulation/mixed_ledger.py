"""A ledger whose index and pages are of two times."""

from contextlib import suppress

from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Reservation
from webhook.core.ledger.text import LedgerCorrupt


def all_entries(book: LedgerBook) -> dict[str, Reservation]:
    """Return what index and pages say, each alone, whether or not they belong together."""
    entries: dict[str, Reservation] = {}
    for data in (book.index or {}, *(page.data for page in book.pages.values())):
        with suppress(LedgerCorrupt):
            entries |= ledger_text.decode(data).entries
    return entries
