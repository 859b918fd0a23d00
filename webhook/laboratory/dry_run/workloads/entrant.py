"""One gang as a file states it: it waits, holds a reservation or is being stopped; or there is nothing to decide."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.config import Start
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy
from webhook.core.model.settings import EngineSettings
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import MAX_JOBS
from webhook.core.reasons.reasons import Reason
from webhook.jobs.pricing.context import ReadContext


def is_ours(resource: str) -> bool:
    """Return whether a resource is one that only Tutti counts: nobody states it, and nobody is shown its flavor."""
    return resource == MAX_JOBS or FlavorResource("", resource).is_internal


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What gangs are read with."""

    context: ReadContext
    policy: Policy
    settings: EngineSettings
    now: float
    """Unix time."""
    start: Start
    """What happens to a gang that does not become whole in time."""
    readiness_is_told: bool = False
    """The configuration is that of a Kueue that waits for pods, which writes of each gang whether they are ready."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A gang that takes part."""

    gang: Gang
    """As it waits, or would wait again after a stop."""
    reservation: Reservation | None = None
    """What it holds; one with ``stopping`` set still holds it for the first cycle."""
    reclaimed: Mapping[str, int] = field(default_factory=dict)
    """Reserved pods of each set that have ended for good."""
    withheld: Reason | None = None
    """Why it waits without being considered."""
    leaves: bool = False
    """Once stopped it does not wait again."""
    written_off: bool = False
    """Kueue counts what it holds no more, though its pods may still run."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An object about which there is nothing to decide."""

    object: str
    """``Kind namespace/name``."""
    why: str
