"""The state of each gang in the engine, and all that may change it. Names are kube-scheduler's where it has one.

``TRANSITIONS`` is the whole of it: what happens, from which states, into which. Gangs of one queue that ask the same
are an equivalence class and are active or unschedulable together: the class has that state (``pending_queue``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class GangState(Enum):
    """Where a gang stands."""

    ABSENT = "absent"
    """The engine does not know it."""
    NO_QUEUE = "no queue"
    """It names a queue that does not exist."""
    BACKOFF = "backoff"
    """It is not considered before its time."""
    ACTIVE = "active"
    """It is to be decided about."""
    UNSCHEDULABLE = "unschedulable"
    """It was decided about and is blocked, until one of its wake keys changes."""
    CLAIMING = "claiming"
    """Others are being stopped for it, and what they leave is kept for it."""
    RESERVED = "reserved"
    """It holds a reservation."""
    STOPPING = "stopping"
    """It holds one and is being stopped."""

    __hash__ = object.__hash__
    """Enum's own hashes the name, in Python."""


class Event(Enum):
    """What changes the state of a gang."""

    SUBMITTED = "submitted"
    POLICY_CHANGED = "policy changed"
    BACKOFF_OVER = "backoff over"
    BLOCKED = "blocked"
    WOKEN = "woken"
    PREEMPTS = "others are stopped for it"
    CLAIM_LAPSED = "claim lapsed"
    ADMITTED = "admitted"
    RESTORED = "restored from the ledger"
    STOPPED = "stopped"
    WITHDRAWN = "withdrawn"
    RELEASED = "released"

    __hash__ = object.__hash__
    """Enum's own hashes the name, in Python."""


@dataclass(frozen=True, slots=True)
class Transition:
    """From which states an event may come, and into which it leads."""

    sources: tuple[GangState, ...]
    targets: tuple[GangState, ...]


def _row(sources: tuple[GangState, ...], *targets: GangState) -> Transition:
    return Transition(sources, targets)


_S = GangState
_DECIDED_BY_CLASS: Final = (_S.ACTIVE, _S.UNSCHEDULABLE)
_QUEUED: Final = (_S.NO_QUEUE, _S.BACKOFF, *_DECIDED_BY_CLASS)
_WAITING: Final = (*_QUEUED, _S.CLAIMING)
HOLDING: Final = (_S.RESERVED, _S.STOPPING)
"""States of gangs that hold a reservation."""

TRANSITIONS: Final[Mapping[Event, Transition]] = {
    Event.SUBMITTED: _row((_S.ABSENT, *_WAITING), *_QUEUED),
    Event.POLICY_CHANGED: _row(_WAITING, *_QUEUED),
    Event.BACKOFF_OVER: _row((_S.BACKOFF,), *_DECIDED_BY_CLASS),
    Event.BLOCKED: _row((_S.ACTIVE,), _S.UNSCHEDULABLE),
    Event.WOKEN: _row((_S.UNSCHEDULABLE,), _S.ACTIVE),
    Event.PREEMPTS: _row((_S.ACTIVE,), _S.CLAIMING),
    Event.CLAIM_LAPSED: _row((_S.CLAIMING,), *_DECIDED_BY_CLASS),
    Event.ADMITTED: _row((_S.ACTIVE, _S.CLAIMING), _S.RESERVED),
    Event.RESTORED: _row((_S.ABSENT, *_WAITING, *HOLDING), *HOLDING),
    Event.STOPPED: _row((_S.RESERVED,), _S.STOPPING),
    Event.WITHDRAWN: _row(_WAITING, _S.ABSENT),
    # Its job may have changed meanwhile and wait to start again.
    Event.RELEASED: _row(HOLDING, _S.ABSENT, *_QUEUED),
}


ALLOWED: Final = frozenset(
    (event, before, after) for event, row in TRANSITIONS.items() for before in row.sources for after in row.targets
)
"""What happens, in which state a gang may be then, and which it may come into. Looked up for each gang that comes."""
