"""What one term of a reconciler knows of each gang besides the stored objects: one record, in one phase.

``NEXT`` is the whole table: what happens to a gang, and where that leads from each phase in which it may happen.

    APART ──submitted──▶ WAITING ──admitted──▶ RESERVED ──stopped──▶ STOPPING ──written──▶ VOIDED
      ▲ ▲                  │                     │ ▲                     │                   │
      │ └────withdrawn─────┘                     │ └─── adopted, read    │                   │
      └──────────────────────released, lost──────┴───────────────────────┴───────────────────┘

A term begins without records and reads the ledger; what an earlier one knew is never relied on.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.reasons.reasons import Reason
from webhook.jobs.reading.record import Requeue


class Phase(Enum):
    """Where a gang stands with the reconciler."""

    APART = "apart"
    """It neither waits in the engine nor holds anything: ended, held back, or still to be cleared of its last run."""
    WAITING = "waiting"
    """It waits in the engine."""
    RESERVED = "reserved"
    """It holds a reservation: its pods may run."""
    STOPPING = "stopping"
    """Its entry says that it stops. A start that was sent before may land yet."""
    VOIDED = "voided"
    """It stops, and its job was written since: no earlier start can land any more (ledger rule 4)."""


class Event(Enum):
    """What changes the phase of a gang."""

    SUBMITTED = "submitted to the engine"
    WITHDRAWN = "taken out of the engine, or turned back after it was admitted"
    ADMITTED = "admitted by a plan that goes into the ledger"
    ADOPTED = "found running, and charged"
    READ_RUNNING = "read in a ledger"
    READ_STOPPING = "read in a ledger as stopping"
    LOST = "no longer in a ledger that was read"
    STOPPED = "its entry says from now on that it stops"
    REBOUND = "what binds it to its ensemble has changed in its entry"
    WRITTEN = "its job, or each pod of it that waits, was written to stop it"
    RELEASED = "its entry is dropped"


_P, _E = Phase, Event
_HOLDING: Final = (_P.RESERVED, _P.STOPPING, _P.VOIDED)

NEXT: Final[Mapping[Event, Mapping[Phase, Phase]]] = {
    _E.SUBMITTED: dict.fromkeys((_P.APART, _P.WAITING), _P.WAITING),
    _E.WITHDRAWN: dict.fromkeys((_P.APART, _P.WAITING), _P.APART),
    _E.ADMITTED: {_P.WAITING: _P.RESERVED},
    _E.ADOPTED: dict.fromkeys((_P.APART, _P.WAITING), _P.RESERVED),
    # The ledger as it is stored is right, whatever was believed.
    _E.READ_RUNNING: dict.fromkeys(_P, _P.RESERVED),
    _E.READ_STOPPING: {**dict.fromkeys(_P, _P.STOPPING), _P.VOIDED: _P.VOIDED},
    _E.LOST: {**dict.fromkeys(_HOLDING, _P.APART), _P.APART: _P.APART, _P.WAITING: _P.WAITING},
    _E.STOPPED: dict.fromkeys(_HOLDING, _P.STOPPING),
    # A gang that stops is written once more: its owner reads there how much of the quorum has been made.
    _E.REBOUND: {_P.RESERVED: _P.RESERVED, _P.STOPPING: _P.STOPPING, _P.VOIDED: _P.STOPPING},
    # A job without an entry is written too; that says nothing of an entry to come.
    _E.WRITTEN: {**{phase: phase for phase in _P}, _P.STOPPING: _P.VOIDED},
    _E.RELEASED: dict.fromkeys(_HOLDING, _P.APART),
}
"""Event to phase before to phase after. What is not here cannot happen."""


@dataclass(frozen=True, slots=True)
class Charged:
    """What engine and fences were told of a gang that runs."""

    reservation: Reservation
    given_back: Mapping[str, int]
    spared: Mapping[str, int]
    gang: Gang | None
    """Of plain pods, which may change while they run."""


@dataclass(slots=True)
class Writes:
    """What became of the writes to one job and its pods."""

    task: asyncio.Task[None] | None = None
    """One under way."""
    stored_version: int = 0
    """The job's resourceVersion after the last one of ours."""
    stored_pods: dict[str, int] = field(default_factory=dict)
    """Uids of pods to theirs, as far as they were not read since."""
    failures: int = 0
    rests_until: float = 0.0
    """Loop time before which the job is left alone."""
    denied_version: int = 0
    """The job's resourceVersion at which its last write found another version or nothing; 0 where it did not."""
    refusals: int = 0
    """So many in a row."""
    why: str = ""
    """What the last one that failed was answered; empty once one has not."""
    open: bool = False
    """The last one met another version, or nobody knows its outcome."""


@dataclass(slots=True)
class GangRecord:
    """One gang: a job, or the plain pods of one group."""

    uid: str
    phase: Phase = Phase.APART
    asked: Gang | None = None
    """What waits in the engine; None in any phase but WAITING."""
    withheld: Reason | None = None
    """Why it waits outside the engine."""
    broken_by: str = ""
    """The defect on which we failed when it was logged last."""
    charged: Charged | None = None
    """None in APART and WAITING, and until it is told."""
    requeue: Requeue | None = None
    """What the stop that is under way writes on its job."""
    started_seconds: float = 0.0
    """Unix time at which the last write that starts it was over, whatever came of it."""
    unstarted_since: float = 0.0
    """The ``since_seconds`` of a reservation that this term has made, while nobody has told its controller to make pods
    for it. What an earlier term reserved, that one may have started.
    """
    written_at: float = 0.0
    """Loop time at which its job was written to stop it, of a gang that is VOIDED."""
    proved_gone: bool = False
    """A list has shown that it has no pod left."""
    whole_since: float = 0.0
    """The ``since_seconds`` of a reservation of which its controller owed no pod when it was looked at last."""
    lost_seconds: float = 0.0
    """Unix time since when such a gang lacks pods after all, which were deleted; 0 while it lacks none."""
    left_seconds: float = 0.0
    """Unix time at which its job was first seen to have ended, to be deleted or gone, or to be suspended to stop it."""
    left_version: int = 0
    """The job's resourceVersion then, where it was only to be deleted or suspended; else 0."""
    writes: Writes = field(default_factory=Writes)
    rests_until: float = 0.0
    """Unix time before which nothing is due of it, should it not change: 0 until that is known."""

    @property
    def holds(self) -> bool:
        """Return whether the engine charges it."""
        return self.phase in _HOLDING

    def started(self, now: float) -> None:
        """Take note that a write that starts it is over, whatever came of it."""
        self.started_seconds, self.unstarted_since = now, 0.0

    def on(self, event: Event) -> None:
        """Take note of ``event``, and forget what only the phase before needed."""
        after = NEXT[event].get(self.phase)
        assert after is not None, f"{self.uid} is {self.phase.value} and cannot be {event.value}"
        if not (self.holds and after in _HOLDING):
            self.charged = None
            self.proved_gone = False
            self.unstarted_since = self.whole_since = self.lost_seconds = self.left_seconds = 0.0
            self.left_version = 0
            self.rests_until = 0.0
        if after is not Phase.WAITING:
            self.asked = None
        self.phase = after


class GangRecords:
    """All of them, by uid."""

    def __init__(self) -> None:
        self._by_uid: dict[str, GangRecord] = {}

    def __iter__(self) -> Iterator[GangRecord]:
        return iter(self._by_uid.values())

    def find(self, uid: str) -> GangRecord | None:
        """Return what is known of a gang, None for nothing."""
        return self._by_uid.get(uid)

    def of(self, uid: str) -> GangRecord:
        """Return the record of a gang, a new one where nothing was known."""
        record = self._by_uid.get(uid)
        if record is None:
            record = self._by_uid[uid] = GangRecord(uid)
        return record

    def forget(self, uid: str) -> None:
        """Drop all that is known of a gang when nothing of it is stored any more."""
        self._by_uid.pop(uid, None)
