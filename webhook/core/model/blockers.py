"""What stands between a waiting gang and its start: values with the numbers, and the text of each, made here only."""

from dataclasses import dataclass
from math import ceil

from webhook.core.model import counted_jobs, quantity
from webhook.core.model.quantity import MILLI


@dataclass(frozen=True, slots=True)
class QuotaMissing:
    """Others hold what it asks."""

    resource: str
    missing: int
    ahead: int = 0
    """Jobs before it, in its queue and in others that wait for the same room: they may take what becomes free."""


@dataclass(frozen=True, slots=True)
class QuotaTooLow:
    """Nobody holds what is missing: no more of it exists now."""

    resource: str
    missing: int


@dataclass(frozen=True, slots=True)
class KeptForOthers:
    """What is free is promised to others."""


@dataclass(frozen=True, slots=True)
class StartsBy:
    """It heads a Backfill queue and has room booked."""

    seconds: float
    """From now."""


@dataclass(frozen=True, slots=True)
class StartUnknown:
    """It heads a Backfill queue, and nobody knows when those end that hold what it asks."""

    unlimited: tuple[str, ...]
    """``namespace/name`` of gangs without a run-time limit."""


Blocker = QuotaMissing | QuotaTooLow | KeptForOthers | StartsBy | StartUnknown


def render(blocker: Blocker) -> str:
    """Return what to tell the owner."""
    match blocker:
        case QuotaMissing(resource, missing, ahead):
            before = f" and {ahead} job{'s' if ahead > 1 else ''} before it" if ahead else ""
            if resource in counted_jobs.WHICH:
                fewer = ceil(missing / MILLI)
                jobs = "one fewer job" if fewer == 1 else f"{fewer} fewer jobs"
                return f"needs {jobs}{counted_jobs.WHICH[resource]} running there{before}, or a higher limit"
            return f"needs {_amount(resource, missing)}{before}"
        case QuotaTooLow(resource, missing) if resource in counted_jobs.WHICH:
            more = counted_jobs.amount_text(ceil(missing / MILLI) * MILLI, resource)
            return f"needs a limit that is higher by {more}: nobody else holds what it lacks"
        case QuotaTooLow(resource, missing):
            return f"needs {_amount(resource, missing)}, which only a higher quota gives"
        case KeptForOthers():
            return "what is free is kept for gangs ahead of it; it starts when they have started and enough is left"
        case StartsBy(seconds):
            return f"it may start in {max(0, seconds):.0f} s, when running gangs reach their run-time limits"
        case StartUnknown(unlimited):
            who = ", ".join(unlimited)
            return f"its start time is unknown: {who} {'has' if len(unlimited) == 1 else 'have'} no run-time limit"


def _amount(resource: str, missing: int) -> str:
    return f"{quantity.render(missing, resource)} more {resource}"
