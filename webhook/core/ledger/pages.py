"""Which page of the ledger holds which entry, in which order pages are written, and what a leader finds stored.

The index is the first page: a small cluster's ledger is nothing else. Beyond that, entries go to pages of their own, so
that a write costs what it changes. An entry never moves: it is changed and dropped where it was put. All jobs of one
ensemble stand on one page, for they are changed in one write. What becomes free on a page is filled again, so pages
that a few long gangs keep alive do not pile up.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.ledger import text
from webhook.core.ledger.bounds import entry_bytes
from webhook.core.ledger.record import Ledger, Reservation

INDEX: Final = ""
"""What stands for the index where pages are named."""
INDEX_BYTES: Final = 24_576
"""Entries that the index takes: a renewal of the lease is never behind a large write."""
PAGE_BYTES: Final = 32_768
"""Entries that another page takes. A page is stored whole: this is what one release costs."""
PAGES_MAX: Final = 2_000
GANG_BYTES_MAX: Final = 524_288
"""What one ensemble may take, for all of it stands on one page, and an object of the API server has an end."""
REFILLED_BELOW: Final = 0.5
"""A page that is filled to less than this takes new entries again."""


class PagesMismatch(Exception):
    """Index and pages do not belong together. The message says which page and why."""


@dataclass(slots=True)
class Layout:
    """Where each entry stands, and how full each page is."""

    page_of: dict[str, str] = field(default_factory=dict)
    """Uid of an entry to its page."""
    bytes_of: dict[str, int] = field(default_factory=lambda: {INDEX: 0})
    """Page to the bytes of its entries."""
    bytes_in: Counter[str] = field(default_factory=Counter)
    """Namespace to the bytes of its entries."""
    members: dict[str, set[str]] = field(default_factory=dict)
    """Name of an ensemble to the uids of its entries."""
    open: str = INDEX
    """Where new entries go."""

    def put(self, uid: str, page: str, before_bytes: int, now_bytes: int) -> None:
        """Take note that an entry stands on ``page``, and of what it took there and takes now."""
        self.page_of[uid] = page
        self.bytes_of[page] = self.bytes_of.get(page, 0) + now_bytes - before_bytes

    def drop(self, uid: str, before_bytes: int) -> None:
        """Take note that an entry is gone."""
        self.bytes_of[self.page_of.pop(uid)] -= before_bytes

    def room(self, page: str) -> int:
        """Return how many bytes of entries ``page`` may still take."""
        return (INDEX_BYTES if page == INDEX else PAGE_BYTES) - self.bytes_of[page]

    def assign(self, gangs: Sequence[tuple[int, Iterable[str]]]) -> list[str | int]:
        """Return the page of each new gang, given as its bytes and the uids of those that it joins.

        A number stands for a page that has to come to be first: 0 for one, 1 for another, and so on.
        """
        taken: dict[str, int] = {}
        fresh, room = -1, 0
        pages: list[str | int] = []
        for size, joined in gangs:
            home = next((self.page_of[uid] for uid in joined if uid in self.page_of), None)
            if home is not None and self.bytes_of[home] + taken.get(home, 0) + size > GANG_BYTES_MAX:
                home = None
            if home is None and fresh < 0 and not self._takes(self.open, size, taken):
                refilled = self._refilled(size, taken)
                if refilled is None:
                    fresh, room = 0, PAGE_BYTES
                else:
                    self.open = refilled
            if home is None and fresh >= 0:
                if size > room and room < PAGE_BYTES:
                    fresh, room = fresh + 1, PAGE_BYTES
                room -= size
                pages.append(fresh)
                continue
            page = self.open if home is None else home
            taken[page] = taken.get(page, 0) + size
            pages.append(page)
        return pages

    def empty(self) -> list[str]:
        """Return the pages that hold nothing, but for the index and the one that new entries go to."""
        return [page for page, size in self.bytes_of.items() if page not in (INDEX, self.open) and not size]

    def _takes(self, page: str, size: int, taken: Mapping[str, int]) -> bool:
        return size + taken.get(page, 0) <= self.room(page)

    def _refilled(self, size: int, taken: Mapping[str, int]) -> str | None:
        """Return the emptiest page that takes new entries again.

        A page less than half full takes any one gang, though it grow longer than ``PAGE_BYTES`` by that. So another
        page comes to be only when all are half full: there are at most two for each ``PAGE_BYTES`` that ever stood
        there at once, whoever starts and ends gangs of whatever length. The index stays short.
        """
        used = {page: held + taken.get(page, 0) for page, held in self.bytes_of.items()}
        if used[INDEX] >= REFILLED_BELOW * INDEX_BYTES or not self._takes(INDEX, size, taken):
            del used[INDEX]
        least = min(used, key=lambda page: (used[page], page), default=None)
        if least is None or (least != INDEX and used[least] >= REFILLED_BELOW * PAGE_BYTES):
            return None
        return least


# -- the order of writes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one entry."""

    before: Reservation | None
    after: Reservation | None

    @property
    def takes(self) -> bool:
        """It holds more from now on, or may have more pods."""
        if self.after is None:
            return False
        if self.before is None:
            return True
        before = self.before.counts
        return any(count > before.get(name, 0) for name, count in self.after.counts.items())


def stages(changes: Mapping[str, Mapping[str, Change]], index_takes: bool) -> list[dict[str, frozenset[str]]]:
    """Return page to uids for each round of writes, one after the other: take before give.

    Nothing is released or marked before all that is taken is stored: whoever takes over between two writes finds too
    much counted, never too little. ``index_takes``: the index says something new besides entries, such as a claim.
    """
    taking = {page: frozenset(uid for uid, each in here.items() if each.takes) for page, here in changes.items()}
    taking = {page: uids for page, uids in taking.items() if uids}
    if index_takes:
        taking.setdefault(INDEX, frozenset())
    everything = {page: frozenset(here) for page, here in changes.items() if here}
    if index_takes:
        everything.setdefault(INDEX, frozenset())
    if len(taking) == 1:
        # What is given on the same page is stored in the same moment.
        (page,) = taking
        first = {page: everything[page]}
        return _rounds(first, {other: uids for other, uids in everything.items() if other != page})
    giving = {page: uids - taking.get(page, frozenset()) for page, uids in everything.items()}
    return _rounds(taking, {page: uids for page, uids in giving.items() if uids})


def _rounds(*rounds: dict[str, frozenset[str]]) -> list[dict[str, frozenset[str]]]:
    return [each for each in rounds if each]


def with_index(rounds: Sequence[Mapping[str, frozenset[str]]]) -> list[dict[str, frozenset[str]]]:
    """Return the rounds with a write of the index in the last one, if it is in none yet."""
    if any(INDEX in each for each in rounds):
        return [dict(each) for each in rounds]
    last = {**(rounds[-1] if rounds else {}), INDEX: frozenset[str]()}
    return [*(dict(each) for each in rounds[:-1]), last]


def stored_by(uids: Collection[str], rounds: Sequence[Mapping[str, frozenset[str]]]) -> int:
    """Return the number of the round after which all of ``uids`` are stored, of those that are written at all."""
    found = [n for n, each in enumerate(rounds) if any(not here.isdisjoint(uids) for here in each.values())]
    return max(found, default=0)


def distribute(gangs: Iterable[Sequence[Reservation]]) -> list[dict[str, Reservation]]:
    """Return what index and pages of a rebuilt ledger hold, the index first; the parts of a gang stay together."""
    found: list[dict[str, Reservation]] = [{}]
    room = INDEX_BYTES
    for gang in (part for whole in gangs for part in _writable(whole)):
        size = entry_bytes(*gang)
        if size > room and found[-1]:
            found.append({})
            room = PAGE_BYTES
        room -= size
        found[-1] |= {entry.uid: entry for entry in gang}
    return found


def _writable(gang: Sequence[Reservation]) -> Iterable[Sequence[Reservation]]:
    """Return a gang whole, or one by one what no object could hold together."""
    return [gang] if entry_bytes(*gang) <= GANG_BYTES_MAX else [[entry] for entry in gang]


# -- what is found stored ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """One page as it was read."""

    uid: str
    data: Mapping[str, str]


def merged(index: Ledger, pages: Mapping[str, Ledger]) -> Ledger:
    """Return the whole ledger, whose pages were decoded. Raises PagesMismatch when a gang stands on two of them."""
    entries, seq = dict(index.entries), index.seq
    for name, page in pages.items():
        twice = entries.keys() & page.entries.keys()
        if twice:
            raise PagesMismatch(f"page {name} holds {min(twice)}, which stands on another page as well")
        entries.update(page.entries)
        seq = max(seq, page.seq)
    return Ledger(index.epoch, seq, entries, index.claims, index.bookings, index.pages)


def succeeding(
    entries: Mapping[str, Reservation], before: Mapping[str, Ledger], after: Mapping[str, Ledger]
) -> tuple[dict[str, Reservation], tuple[str, ...]]:
    """Return the entries of index and pages ``after``, and the uids of those that differ from ``before``.

    ``entries`` are all that were there before; index and pages that are the same objects are not looked into. Raises
    PagesMismatch when a gang stands on two.
    """
    nothing = Ledger()
    moved = [(before.get(name, nothing), part) for name, part in after.items() if before.get(name) is not part]
    moved += [(part, nothing) for name, part in before.items() if name not in after]
    whole, uids = dict(entries), set[str]()
    for old, new in moved:
        for uid, entry in old.entries.items():
            if new.entries.get(uid) is not entry:
                del whole[uid]
                uids.add(uid)
    for old, new in moved:
        for uid, entry in new.entries.items():
            if old.entries.get(uid) is not entry:
                if uid in whole:
                    raise PagesMismatch(f"{uid} stands on two pages")
                whole[uid] = entry
                uids.add(uid)
    return whole, tuple(sorted(uids))


def unlisted(index: Ledger, found: Mapping[str, Found]) -> list[str]:
    """Return the names of the pages found besides those that ``index`` lists; they are empty.

    Raises PagesMismatch when a listed page is missing, another of its name is there, or one that is not listed holds
    entries: then the list is of an earlier time.
    """
    for name, uid in index.pages.items():
        page = found.get(name)
        if page is None:
            raise PagesMismatch(f"page {name} is listed and missing")
        if page.uid != uid:
            raise PagesMismatch(f"page {name} is not the one that is listed: its uid is {page.uid}, not {uid}")
    beside = [name for name in found if name not in index.pages]
    for name in beside:
        if found[name].data.keys() - {text.META}:
            raise PagesMismatch(f"page {name} holds entries and is not listed: the list is of an earlier time")
    return beside


def read(index: Ledger, name: str, page: Found, decoder: text.Decoder) -> Ledger:
    """Return what a page that ``index`` lists says. Raises LedgerCorrupt, also where a newer version of it was read
    before, and PagesMismatch where it is of a later leader than the index.
    """
    decoded = decoder.decode_newest(page.data)
    if decoded.epoch > index.epoch:
        raise PagesMismatch(f"page {name} is of epoch {decoded.epoch}, the index of {index.epoch}")
    return decoded
