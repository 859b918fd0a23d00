"""How much more the ledger may take: a ConfigMap has an end, and a write beyond it is refused whole.

One decision can admit thousands of gangs, and at installation thousands may run already. Each asks here before it is
put into the ledger; one that finds no room waits as for quota, and is looked at again when the ledger has shrunk.
"""

from collections.abc import Collection, Sequence
from typing import Final

from webhook.controllers.gangs import siblings
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Reservation
from webhook.core.model.reasons import Code, Reason

ENTRY_BYTES_MIN: Final = 128
"""No entry is shorter: bounds how many admissions are worth deciding about at once."""


class LedgerRoom:
    """What one cycle may still put into the ledger."""

    def __init__(self, keeper: LedgerKeeper) -> None:
        self._keeper = keeper
        self._taken_bytes = 0
        self._refused_at: int | None = None
        """Size at which something found no room; smaller, it may find some."""

    def begin(self) -> None:
        """Start a cycle: what the one before put in is in the stored ledger."""
        self._taken_bytes = 0
        if self._refused_at is not None and self._keeper.entries_bytes < self._refused_at:
            self._refused_at = None

    @property
    def full(self) -> bool:
        """Nothing new is to be admitted."""
        return self._refused_at is not None or self._left_bytes <= 0

    @property
    def most(self) -> int:
        """No more entries than this can find room."""
        return max(0, self._left_bytes) // ENTRY_BYTES_MIN + 1

    def takes(self, *entries: Reservation) -> bool:
        """Put ``entries`` in if there is room for all of them together; return whether there is."""
        size = sum(ledger_text.size_bytes({entry.uid: ledger_text.encode_entry(entry)}) for entry in entries)
        if size > self._left_bytes:
            self._refused_at = self._keeper.entries_bytes + self._taken_bytes
            return False
        self._taken_bytes += size
        return True

    def without(self, admitted: Sequence[Reservation], unfit: Collection[str]) -> set[str]:
        """Return the uids of those of ``admitted`` that find no room, each with all that would start with it.

        ``unfit`` of them are not to be put in anyway.
        """
        gangs: dict[str, list[Reservation]] = {}
        for entry in admitted:
            if entry.uid not in unfit:
                gangs.setdefault(siblings.name_of(entry), []).append(entry)
        return {entry.uid for gang in gangs.values() if not self.takes(*gang) for entry in gang}

    def reason(self) -> Reason:
        """Return why a gang waits while the ledger is full."""
        return Reason(
            Code.LEDGER_FULL,
            f"the ledger has {self._keeper.size_bytes} of {ledger_text.BYTES_MAX} bytes",
            help="it waits until other gangs end",
        )

    @property
    def _left_bytes(self) -> int:
        return int(ledger_text.FULL_AT * ledger_text.BYTES_MAX) - self._keeper.entries_bytes - self._taken_bytes
