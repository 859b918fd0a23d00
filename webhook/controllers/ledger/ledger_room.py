"""How much more the ledger may take: a ConfigMap has an end, and a write beyond it is refused whole.

One decision can admit thousands of gangs, and at installation thousands may run already. Each asks here before it is
put into the ledger. Only a gang that finds no room is set aside, until there is room for its size; smaller gangs,
preemption, stops and releases go on meanwhile.

No namespace fills the ledger for the others, whatever it may run: it holds at most :data:`SHARE` times what is left. So
a single namespace takes three quarters of the ledger, and the next one three quarters of the rest.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.controllers.gangs import siblings
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.core.ledger import bounds, pages
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.reading.record import JobRecord

ENTRY_BYTES_MIN: Final = 128
"""No entry is shorter: bounds how many admissions are worth deciding about at once."""
SHARE: Final = 3
"""A namespace may take as much of the ledger as so many times what is left of it then."""
TRIED_MIN: Final = 64
"""A full ledger still has so many gangs tried in a cycle: what they are set aside for is said, and others pass."""
FIRST_MAX: Final = 64
"""So many gangs a new leader starts in its first cycle: those that came while nobody led may be hundreds, which need
pages of their own. They follow in the next one.
"""


@dataclass(frozen=True, slots=True)
class _SetAside:
    """A gang that found no room."""

    asked: Mapping[str, Gang | None]
    """Uids of its jobs, and what each asked for."""
    namespace: str
    size_bytes: int
    never: bool
    """It is longer than any may be, or one of its entries: it waits until it asks for something else."""


class LedgerRoom:
    """What one cycle may still put into the ledger, and who waits for room in it."""

    def __init__(self, keeper: LedgerKeeper) -> None:
        self._keeper = keeper
        self._cycles = 0
        """Begun so far, by this leader."""
        self._taken_bytes = 0
        self._taken_in = Counter[str]()
        """The same by namespace."""
        self._set_aside: dict[str, _SetAside] = {}
        """By what distinguishes the gang from all others, in the order in which they found no room."""
        self._gang_of: dict[str, str] = {}
        """Uid of a job to its gang, of those set aside."""
        self._stay: dict[str, tuple[int, Gang | None]] = {}
        """Uids of gangs that run and may not grow, to how long their entries would be, and what they asked for."""

    def begin(self) -> list[str]:
        """Start a cycle; return the uids of those set aside for which there is room by now."""
        self._cycles += 1
        self._forget_taken()
        fit = []
        for gang, waits in list(self._set_aside.items()):
            if not waits.never and self._fits(waits.namespace, waits.size_bytes):
                self._take(waits.namespace, waits.size_bytes)
                fit += self._take_back(gang)
        self._forget_taken()
        return fit

    def _forget_taken(self) -> None:
        self._taken_bytes = 0
        self._taken_in.clear()

    def _take(self, namespace: str, size: int) -> None:
        self._taken_bytes += size
        self._taken_in[namespace] += size

    def _fits(self, namespace: str, size: int) -> bool:
        """Return whether there is room, and the namespace has not more than its share."""
        left = self._left_bytes - size
        held = self._keeper.bytes_in(namespace) + self._taken_in[namespace] + size
        return left >= 0 and held <= SHARE * left

    @property
    def most(self) -> int:
        """More entries than this are not worth deciding about in one cycle."""
        most = max(0, self._left_bytes) // ENTRY_BYTES_MIN + TRIED_MIN
        return min(most, FIRST_MAX) if self._cycles == 1 else most

    def takes(self, *entries: Reservation) -> bool:
        """Put ``entries`` of one namespace in, which runs them anyway; return whether there is room for all of them."""
        size = bounds.entry_bytes(*entries)
        if size > self._left_bytes:
            return False
        self._take(entries[0].namespace, size)
        return True

    def without(
        self, admitted: Sequence[Reservation], unfit: Collection[str], jobs: Mapping[str, JobRecord]
    ) -> set[str]:
        """Return the uids of those of ``admitted`` that find no room, each with all that would start with it.

        They are set aside, with what their ``jobs`` ask for. ``unfit`` of them are not to be put in anyway.
        """
        gangs: dict[str, list[Reservation]] = {}
        for entry in admitted:
            if entry.uid not in unfit:
                gangs.setdefault(siblings.name_of(entry), []).append(entry)
        refused: set[str] = set()
        for name, gang in gangs.items():
            size = bounds.entry_bytes(*gang)
            never = size > pages.GANG_BYTES_MAX or not all(bounds.fits_alone(entry) for entry in gang)
            namespace = gang[0].namespace
            if not never and self._fits(namespace, size):
                self._take(namespace, size)
                continue
            asked = {e.uid: None if (job := jobs.get(e.uid)) is None else job.gang for e in gang}
            self._set_aside[name] = _SetAside(asked, namespace, size, never)
            self._gang_of |= {entry.uid: name for entry in gang}
            refused |= {entry.uid for entry in gang}
        return refused

    def takes_growth(self, grown: Reservation, job: JobRecord | None) -> bool:
        """Return whether the entry of a gang that runs may be written as it would grow. If not, it is told why."""
        if bounds.fits_alone(grown):
            self._stay.pop(grown.uid, None)
            return True
        self._stay[grown.uid] = bounds.entry_bytes(grown), None if job is None else job.gang
        return False

    def forget(self, uid: str) -> list[str]:
        """Set a gang aside no longer: one of its jobs is gone. Return the uids of all its jobs."""
        self._stay.pop(uid, None)
        gang = self._gang_of.get(uid)
        return [] if gang is None else self._take_back(gang)

    def forget_all(self) -> list[str]:
        """Set nobody aside any longer, for the policy is new; return their uids."""
        return [uid for gang in list(self._set_aside) for uid in self._take_back(gang)]

    def holds_back(self, uid: str, asks: Gang | None) -> Reason | None:
        """Return why a gang that ``asks`` so much is set aside; one that asks for something else is not."""
        if uid in self._stay and self._stay[uid][1] != asks:
            del self._stay[uid]
        gang = self._gang_of.get(uid)
        if gang is not None and self._set_aside[gang].asked[uid] != asks:
            self._take_back(gang)
        return self.reason(uid)

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang is set aside, or one that runs may not grow; None when it is not."""
        if uid in self._stay and self._runs(uid):
            return Reason(
                Code.ENTRY_TOO_LARGE,
                f"with them its reservation would take {self._stay[uid][0]} bytes of the ledger, where one job takes "
                f"at most {bounds.STORED_BYTES_MAX}",
                help="it runs on with those that it has; delete the others, or create them as a gang of their own",
            )
        gang = self._gang_of.get(uid)
        if gang is None:
            return None
        waits = self._set_aside[gang]
        size, never, namespace = waits.size_bytes, waits.never, waits.namespace
        if never or size > self._limit_bytes:
            return Reason(
                Code.ENTRY_TOO_LARGE,
                f"its reservation would take {size} bytes of the ledger; one job may take at most "
                f"{bounds.STORED_BYTES_MAX} and a gang of several {pages.GANG_BYTES_MAX}",
                help="use fewer pod sets or resource names, or split it",
            )
        return Reason(
            Code.LEDGER_FULL,
            f"its reservation takes {size} bytes; the ledger holds {self._keeper.entries_bytes} and admits up to "
            f"{self._limit_bytes}, and its namespace {namespace} has {self._keeper.bytes_in(namespace)} of them; "
            f"one namespace may have at most {SHARE} times what is left",
            help="it waits until other gangs end; smaller ones, and those of other namespaces, may pass",
        )

    def _runs(self, uid: str) -> bool:
        return self._keeper.ledger is not None and uid in self._keeper.ledger.entries

    def _take_back(self, gang: str) -> list[str]:
        uids = list(self._set_aside.pop(gang).asked)
        for uid in uids:
            del self._gang_of[uid]
        return uids

    @property
    def _limit_bytes(self) -> int:
        return int(ledger_text.FULL_AT * pages.PAGES_MAX * pages.PAGE_BYTES)

    @property
    def _left_bytes(self) -> int:
        return self._limit_bytes - self._keeper.entries_bytes - self._taken_bytes
