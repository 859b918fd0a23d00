"""What a cycle decided, as the reconciler is to carry it out."""

from dataclasses import dataclass

from webhook.core.ledger.record import Reservation


@dataclass(frozen=True, slots=True)
class Preempted:
    """One admitted gang that must be stopped to make room."""

    uid: str
    by: str
    """Uid of the gang that gets the room."""
    reason: str
    """Kueue's: InClusterQueue, InCohortReclamation, InCohortFairSharing, InCohortReclaimWhileBorrowing."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A gang that is to be stopped because its queue drains."""

    uid: str
    reason: str
    """A word of ``core.reasons.eviction``: metrics count by it."""
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one cycle decided. The engine already counts on it."""

    admitted: tuple[Reservation, ...] = ()
    grown: tuple[Reservation, ...] = ()
    """Reservations of gangs that started below full size and may now have more pods."""
    preempted: tuple[Preempted, ...] = ()
    """They keep their usage until they are released."""
    stopped: tuple[Stopped, ...] = ()
    """Gangs whose queue drains."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.grown or self.preempted or self.stopped)
