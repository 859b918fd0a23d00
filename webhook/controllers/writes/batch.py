"""What one cycle will write: ledger entries first, then effects."""

from dataclasses import dataclass, field

from webhook.controllers.writes.effects import Effect
from webhook.core.ledger.record import Reservation
from webhook.core.model.pods import PodRecord
from webhook.jobs.reading.record import JobRecord


@dataclass(slots=True)
class Batch:
    """Gathered while the cycle decides, carried out once the ledger is written."""

    put: dict[str, Reservation] = field(default_factory=dict)
    drop: set[str] = field(default_factory=set)
    released: list[Reservation] = field(default_factory=list)
    """Of those dropped, what the engine charges until that is stored."""
    effects: dict[str, Effect] = field(default_factory=dict)
    starts: dict[str, JobRecord] = field(default_factory=dict)
    """By uid."""
    lifts: dict[str, tuple[JobRecord, tuple[PodRecord, ...]]] = field(default_factory=dict)
    """By the gang's uid: pods to let go, as they were read before the ledger is written."""
    again: set[str] = field(default_factory=set)
    """Gangs to look at once more when all of this is stored."""

    def has(self, uid: str) -> bool:
        """Return whether something is done about a gang already."""
        return any(uid in each for each in (self.put, self.drop, self.effects, self.starts, self.lifts))
