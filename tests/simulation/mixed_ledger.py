"""The ledger as it is stored, also where index and pages are of two times, or the index is gone."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.notation import names


class StoredLedger:
    """What is stored of the ledger, whole or not. What a page held that was deleted or damaged is held on, until a new
    index lists it no more.
    """

    def __init__(self) -> None:
        self._book = LedgerBook()
        self._index: Mapping[str, str] | None = None
        """The last that made a whole with its pages."""

    def take_in(self, config_maps: Iterable[Mapping[str, Any]]) -> None:
        """Take note of all objects of the ledger that there are."""
        self._book.index = None
        for document in config_maps:
            metadata, data = document["metadata"], document.get("data") or {}
            if metadata["name"] == names.LEDGER_NAME:
                self._book.index = data
            elif (metadata.get("labels") or {}).get(names.LEDGER_PAGE) == names.LEDGER_NAME:
                self._take_page(metadata["name"], Found(metadata["uid"], data))

    def _take_page(self, name: str, page: Found) -> None:
        known = self._book.pages.get(name)
        if known is not None and known.data is page.data:
            return
        try:
            if page.data:
                ledger_text.decode(page.data)
        except LedgerCorrupt:
            self._book.pages.setdefault(name, page)
        else:
            self._book.pages[name] = page

    def whole(self) -> Ledger | None:
        """Return the ledger that index and pages make; None where they make none."""
        try:
            ledger = self._book.read()
        except (LedgerCorrupt, PagesMismatch):
            return None
        if ledger is not None:
            self._index = self._book.index
        return ledger

    def held_on(self, before: Mapping[str, Reservation]) -> Mapping[str, Reservation]:
        """Return what counts while there is no whole: by the last index that made one, with its pages as they are now,
        since a leader that has not noticed goes on writing there. Where one of these was made again: what did
        ``before``.
        """
        self._book.index = self._index
        whole = self.whole()
        return before if whole is None else whole.entries

    def all_entries(self, before: Mapping[str, Reservation]) -> dict[str, Reservation]:
        """Return what was held ``before``, and what index and pages say, each alone, belonging together or not.
        A gang that was started again may have had fewer pods when an old copy was made.
        """
        entries = dict(before)
        for data in (self._book.index or {}, *(page.data for page in self._book.pages.values())):
            with suppress(LedgerCorrupt):
                said = ledger_text.decode(data).entries
                entries |= {uid: _more_of(entries.get(uid, entry), entry) for uid, entry in said.items()}
        return entries


def _more_of(before: Reservation, entry: Reservation) -> Reservation:
    """Return the later of two entries of one gang, with as many pods of each set as either says."""
    later, other = (before, entry) if before.since_seconds > entry.since_seconds else (entry, before)
    sets = {each.name: each for each in later.pod_sets}
    for each in other.pod_sets:
        if each.name not in sets or sets[each.name].count < each.count:
            sets[each.name] = each
    return replace(later, pod_sets=tuple(sets.values()))


class PutBack:
    """An old copy that somebody puts into the ledger, until a leader has judged whether to believe it, or has deleted a
    page without a look into it.
    """

    def __init__(self, name: str) -> None:
        """``name`` is that of the object."""
        self._name, self._done = name, False
        self._found: Ledger | None = None

    def done(self, stored: StoredLedger) -> None:
        """Take note of what is there now."""
        self._done, self._found = True, stored.whole()

    def is_judged(self, ledger: Ledger | None) -> bool:
        """Return whether a leader that read what was put there has written more than that it takes over."""
        if not self._done or ledger is None:
            return False
        found = self._found
        if found is None or (self._name in found.pages and self._name not in ledger.pages):
            return True
        if ledger.epoch == found.epoch:
            # Who led when it was put there may not notice: what he still writes judges nothing.
            self._found = ledger
        written = ledger.seq - found.seq > ledger.epoch - found.epoch
        return ledger.epoch > found.epoch and (written or ledger.entries != found.entries)
