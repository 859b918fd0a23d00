"""What the ledger of a member says, put together from its index and pages as they are read.

Pure: objects in, entries out. Only what is not as it was read last is decoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from webhook.cluster.ledger_book import LedgerBook
from webhook.core.fleet.sight import Copy
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Reservation
from webhook.untyped import paths
from webhook.untyped.values import text


@dataclass(frozen=True, slots=True)
class MemberLedger:
    """The ledger of one member."""

    stands: bool
    """False where there is none: then it says of nothing that it is gone."""
    knows_permits: bool
    entries: Mapping[str, Reservation]
    """By the uid of the copy or job that they are for."""


NO_LEDGER: Final = MemberLedger(False, False, {})


def reserves(ledger: MemberLedger | None, copy: Copy | None) -> bool:
    """Return whether a ledger was read that has a reservation for a copy."""
    return ledger is not None and copy is not None and copy.uid != "" and copy.uid in ledger.entries


def why_unread(ledger: MemberLedger | None) -> str:
    """Return why a ledger does not say whether a member's Tutti knows permits, in words that follow its name."""
    if ledger is None:
        return "has a ledger that cannot be read"
    return "" if ledger.stands else "has no Tutti, or its ledger is not there"


class LedgerReader:
    """Reads one member's ledger time and again."""

    def __init__(self) -> None:
        self._book = LedgerBook()

    def page(self, config_map: Mapping[str, Any]) -> dict[str, Found]:
        """Return a page by its name; the one that was read last where it is the same."""
        name, uid = (text(paths.find(config_map, ("metadata", key))) for key in ("name", "uid"))
        read, before = Found(uid, _data(config_map)), self._book.pages.get(name)
        return {name: before if before is not None and before == read else read}

    def read(self, index: Mapping[str, Any], pages: Mapping[str, Found]) -> MemberLedger | None:
        """Return what index and pages say together; None where they cannot be read, which proves nothing."""
        book, data = self._book, _data(index)
        book.index, book.pages = book.index if book.index == data else data, dict(pages)
        try:
            ledger = book.read()
            knows = orjson.loads((book.index or {})[ledger_text.META]).get(ledger_text.PERMITS) is True
        except (ledger_text.LedgerCorrupt, PagesMismatch, KeyError, ValueError):
            return None
        return None if ledger is None else MemberLedger(True, knows, ledger.entries)


def _data(config_map: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in paths.find_mapping(config_map, ("data",)).items()}
