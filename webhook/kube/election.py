"""Leader election without I/O, over client-go's leader record.

The record is text that somebody else reads and conditionally writes; time is a monotonic clock passed in. Upstream
rules kept (client-go leaderelection): a lease is judged expired only by how long *this* process has seen it unchanged,
never by the times written in it; a leader gives up before anybody may take over (renew < lease). Two electors with
distinct identities therefore never both lead while their clocks run at the same rate. Safety does not rest on that: a
take-over raises the ledger's epoch by compare-and-swap.

In addition to upstream: each term has an identity of its own. A term that finds an earlier term of its own process
takes over like anybody else, with another transition, because writes of the earlier one may still be on their way. And
a record says where the process of its holder listens: whoever learns there that it is dead need not wait for the lease
to run out. Should that be wrong, two lead for a moment, which the epoch makes harmless.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.core.notation import names
from webhook.core.notation.problem import shown
from webhook.wire.times import micro_time_text, unix_seconds

RENEW_DUE_AT: Final = 1 / 3
"""Share of the renew deadline after which to renew; two more attempts fit behind it."""
LEASE_SECONDS_MAX: Final = 600.0
"""A longer lease in a record is not believed: a slip of an editor must not keep everybody out for ever."""


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """client-go's LeaderElectionRecord. Times are for people; nothing here decides by them."""

    holder: str
    """Empty once released."""
    lease_seconds: float
    acquired: str
    renewed: str
    transitions: int
    address: str = ""
    """Where the holder's process listens for as long as it lives, as ``host:port``; empty where that is not told."""

    def ended_seconds(self) -> float | None:
        """Return when the lease ends unless it is renewed, by its holder's clock; None where that cannot be read."""
        renewed = readable_seconds(self.renewed)
        return None if renewed is None else renewed + self.lease_seconds


def readable_seconds(time: str) -> float | None:
    """Return a time of a record as Unix seconds; None where it cannot be read."""
    try:
        return unix_seconds(time)
    except (ValueError, OverflowError):
        return None


def parse(text: str) -> LeaderRecord | None:
    """Return the record written as ``text``, or None when it is not one (then nobody holds it)."""
    try:
        fields = json.loads(text)
        return LeaderRecord(
            holder=str(fields.get("holderIdentity") or ""),
            lease_seconds=min(max(0.0, float(fields.get("leaseDurationSeconds") or 0)), LEASE_SECONDS_MAX),
            acquired=str(fields.get("acquireTime") or ""),
            renewed=str(fields.get("renewTime") or ""),
            transitions=int(fields.get("leaderTransitions") or 0),
            address=str(fields.get("holderAddress") or ""),
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def leader_of(config_map: Mapping[str, Any]) -> LeaderRecord | None:
    """Return who leads by the ledger's ConfigMap; None where it says nothing of that."""
    return parse((config_map["metadata"].get("annotations") or {}).get(names.LEASE_ANNOTATION) or "")


def told(text: str | None) -> str:
    """Return in words who leads by a stored record, and since when."""
    record = None if text is None else parse(text)
    if record is None or not record.holder:
        return "nobody leads by the lease"
    since = "a time not written" if readable_seconds(record.acquired) is None else record.acquired
    return f"{shown(repr(record.holder))} leads, since {since}"


def render(record: LeaderRecord) -> str:
    """Return the JSON text of ``record``, field by field as client-go writes it (whole seconds, rounded up).

    The address comes after these, where there is one: client-go passes over it.
    """
    fields: dict[str, object] = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": -int(-record.lease_seconds // 1),
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaderTransitions": record.transitions,
    }
    if record.address:
        fields["holderAddress"] = record.address
    return json.dumps(fields, separators=(",", ":"))


class Elector:
    """One candidate. ``now`` is monotonic seconds, ``unix_now`` is what people read in the record.

    The driver reads the record, tells it to ``observe``, and, when it ``may_acquire`` or a renewal is due, writes
    ``record()`` conditionally; once that write is known to be stored it calls ``renewed`` with the moment *before* it
    was sent. A leader that ``must_quit`` steps down.
    """

    def __init__(
        self,
        identity: str,
        lease_seconds: float = 5.0,
        renew_seconds: float = 4.0,
        retry_seconds: float = 1.0,
        *,
        process: str = "",
        address: str = "",
    ) -> None:
        """``identity`` is of one term; those of all terms of one ``process`` begin with its name and an underscore.

        ``address`` is what our records say of where the process listens.
        """
        assert identity, "an elector needs an identity of its own"
        assert lease_seconds > renew_seconds > retry_seconds > 0
        self.identity = identity
        self._process = process or identity
        self._address = address
        self.retry_seconds = retry_seconds
        """How often a candidate looks again."""
        self.attempt_seconds = renew_seconds / 2
        """How long one request for the record may take: another attempt fits into the renew deadline."""
        self._lease_seconds = lease_seconds
        self.renew_seconds = renew_seconds
        """How long a leader leads that cannot renew."""
        self._seen: LeaderRecord | None = None
        self._seen_text: str | None = None
        self._seen_at = 0.0
        self._absent = True
        self._dead: tuple[str, int] | None = None
        """Holder and transition of a term whose process is known to be dead."""
        self._died_at = 0.0
        self._pending: LeaderRecord | None = None
        self._held: LeaderRecord | None = None
        self._renewed_at = 0.0
        self._deposed = False

    # -- following --------------------------------------------------------------------------------------------------

    def observe(self, text: str | None, now: float) -> None:
        """Take in the record as just read; None when there is none. ``now`` is not before the read was answered."""
        record = None if text is None else parse(text)
        self._absent = record is None
        if record is None:
            # A lease that was seen alive may still be lived by: losing its record does not end it earlier.
            return
        if self._held is not None and not self._deposed:
            if record.transitions < self._held.transitions:
                return  # Written before our take-over; it came late, through a cache.
            self._deposed = not self._is_of_our_term(record)
        if text != self._seen_text:
            if (record.holder, record.transitions) == self._dead and now - self._died_at >= self.attempt_seconds:
                self._dead = None
            self._seen_text, self._seen, self._seen_at = text, record, now

    def _is_of_our_term(self, record: LeaderRecord) -> bool:
        # A successor may carry our own identity (a restarted process): only the transition tells it from us.
        term = self._held or self._pending
        same_term = term is None or record.transitions == term.transitions
        return same_term and record.holder in (self.identity, "")

    @property
    def holder(self) -> str:
        """Who holds the lease as last seen; empty when nobody does."""
        return self._seen.holder if self._seen is not None and not self._absent else ""

    @property
    def other(self) -> LeaderRecord | None:
        """The record of another process that holds the lease, as last seen; None where none does."""
        return None if self._seen is None or self._is_free(self._seen) else self._seen

    def died(self, record: LeaderRecord, now: float) -> None:
        """Take note that the process that holds the lease by ``record`` is dead: it will not renew it.

        Should a renewal of it be seen later than its last request can take, it lives.
        """
        self._dead, self._died_at = (record.holder, record.transitions), now

    def may_acquire(self, now: float) -> bool:
        """Return whether a conditional write of ``record`` may be tried.

        It may when nobody was seen to hold the lease, it was released, it ran out before our eyes, its last holder was
        an earlier term of this process, which is over, or the process of that is dead.
        """
        seen = self._seen
        if seen is None or self._is_free(seen):
            return True
        return now >= self._seen_at + max(self._lease_seconds, seen.lease_seconds)

    def _is_free(self, seen: LeaderRecord) -> bool:
        ours = seen.holder == self._process or seen.holder.rpartition("_")[0] == self._process
        return not seen.holder or ours or (seen.holder, seen.transitions) == self._dead

    def may_acquire_in(self, now: float) -> float:
        """Return in how many seconds ``may_acquire``, unless the lease is renewed; 0 when it may."""
        seen = self._seen
        if seen is None or self.may_acquire(now):
            return 0.0
        return self._seen_at + max(self._lease_seconds, seen.lease_seconds) - now

    # -- leading ----------------------------------------------------------------------------------------------------

    def record(self, unix_now: float) -> str:
        """Return the record to write: a renewal while we lead, otherwise a take-over with one more transition.

        Where the stored record was lost, and we saw none, the count begins again. It only tells terms of one identity
        from each other; a late write of an earlier one then conflicts, or makes an index without a ledger.
        """
        time = micro_time_text(unix_now)
        if self._held is not None and not self._deposed:
            self._pending = replace(self._held, renewed=time)
        else:
            before = self._seen.transitions if self._seen else 0
            self._pending = LeaderRecord(self.identity, self._lease_seconds, time, time, before + 1, self._address)
        return render(self._pending)

    def renewed(self, sent_at: float, earlier: str | None = None) -> None:
        """Note that the last ``record`` is stored, or an ``earlier`` one whose answer was lost; ``sent_at`` is a moment
        before the write of that one was sent.
        """
        if earlier is not None:
            self._pending = parse(earlier)
        assert self._pending is not None, "nothing was written"
        if self._held is None or self._deposed:
            self._deposed = False
            self._renewed_at = sent_at
        self._held = self._pending
        self._renewed_at = max(self._renewed_at, sent_at)
        self._seen, self._seen_text, self._seen_at, self._absent = self._held, render(self._held), sent_at, False

    def leading(self, now: float) -> bool:
        """Return whether we lead: we wrote the record, nobody has superseded it, and its renew deadline is ahead."""
        return self._held is not None and not self._deposed and now < self.quit_at

    @property
    def led(self) -> bool:
        """Whether the lease was ours and was not handed back, though it may have run out."""
        return self._held is not None

    def last_renewal(self, now: float) -> str:
        """Return in words when the lease was renewed last; empty when it is not ours."""
        if self._held is None:
            return ""
        return f"the lease was renewed last at {self._held.renewed}, {now - self._renewed_at:.1f} s ago"

    @property
    def quit_at(self) -> float:
        """Monotonic time at which a leader that has not renewed must have stepped down."""
        return self._renewed_at + self.renew_seconds

    @property
    def renew_at(self) -> float:
        """Monotonic time from which on ``record`` is to be written again."""
        return self._renewed_at + self.renew_seconds * RENEW_DUE_AT

    def renew_due(self, now: float) -> bool:
        """Return whether it is time to write ``record`` again."""
        return now >= self.renew_at

    def must_quit(self, now: float) -> bool:
        """Return whether we led and may no longer: superseded, or not renewed in time."""
        return self._held is not None and not self.leading(now)

    def is_ours(self, text: str | None) -> bool:
        """Return whether a stored record is one that we wrote in this term."""
        record = None if text is None else parse(text)
        return record is not None and record.holder == self.identity and self._is_of_our_term(record)

    def released(self, unix_now: float) -> str:
        """Return the record that hands the lease back, and stop leading: from here on ``may_acquire`` starts afresh."""
        held = self._held or LeaderRecord("", self._lease_seconds, micro_time_text(unix_now), "", 0)
        self._held = self._pending = None
        return render(replace(held, holder="", renewed=micro_time_text(unix_now)))
