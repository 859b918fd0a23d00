"""What stands between a waiting gang and its start: values with the numbers, and the text of each, made here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from webhook.core.notation import counted_jobs, quantity
from webhook.core.notation.counted import counted
from webhook.core.notation.quantity import MILLI


@dataclass(frozen=True, slots=True)
class QuotaMissing:
    """Others hold what it asks."""

    resource: str
    missing: int
    ahead: int = 0
    """Jobs before it, in its queue and in others that wait for the same room: they may take what becomes free."""
    flavor: str = ""
    """Where it lacks the same resource of several."""
    fence: str = ""
    """``ResourceQuota namespace/name`` that has too little left, if that is not the one that the reason is of."""


@dataclass(frozen=True, slots=True)
class TooMuch:
    """It asks more than there is at all, of another resource than the reason names first."""

    resource: str
    asked: int
    where: str
    """Who has that little of it: ``queue research``, ``ResourceQuota team/hard``."""
    limit: int
    flavor: str = ""


@dataclass(frozen=True, slots=True)
class QuotaTooLow:
    """Nobody holds what is missing: no more of it exists now."""

    resource: str
    missing: int
    flavor: str = ""
    """Where it lacks the same resource of several."""


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


Blocker = QuotaMissing | TooMuch | QuotaTooLow | KeptForOthers | StartsBy | StartUnknown


def render(blocker: Blocker) -> str:
    """Return what to tell the owner."""
    match blocker:
        case TooMuch(resource, asked, where, limit, flavor):
            kind = f" of flavor {flavor}" if flavor else ""
            most = quantity.render(limit, resource)
            return f"it also asks for {counted_jobs.amount_text(asked, resource)}{kind}, {where} has {most}"
        case QuotaMissing(resource, missing, ahead):
            before = _before(ahead)
            if resource in counted_jobs.WHICH:
                fewer = ceil(missing / MILLI)
                jobs = "one fewer job" if fewer == 1 else counted(fewer, "fewer job")
                return f"needs {jobs}{counted_jobs.WHICH[resource]} running there{before}, or a higher limit"
            return f"needs {_missing(blocker)}{before}"
        case QuotaTooLow(resource, missing) if resource in counted_jobs.WHICH:
            more = counted_jobs.amount_text(ceil(missing / MILLI) * MILLI, resource)
            return f"needs a limit that is higher by {more}: nobody else holds what it lacks"
        case QuotaTooLow(resource, missing, flavor):
            return f"needs {_amount(resource, missing, flavor)}, which only a higher quota gives"
        case KeptForOthers():
            return "what is free is kept for gangs ahead of it; it starts when they have started and enough is left"
        case StartsBy(seconds):
            return f"it may start in {max(0, seconds):.0f} s, when running gangs reach their run-time limits"
        case StartUnknown(unlimited):
            who = ", ".join(unlimited)
            return f"its start time is unknown: {who} {'has' if len(unlimited) == 1 else 'have'} no run-time limit"


def render_all(blockers: Sequence[Blocker]) -> str:
    """Return what to tell the owner of several at once: what others hold in one list."""
    held = [each for each in blockers if isinstance(each, QuotaMissing) and each.resource not in counted_jobs.WHICH]
    if len(held) < 2:
        return "; ".join(map(render, blockers))
    *others, last = map(_missing, held)
    both = f"needs {', '.join(others)} and {last}"
    before = max(each.ahead for each in held)
    listed = f"{both}{',' if before else ''}{_before(before)}"
    return "; ".join([listed, *(render(each) for each in blockers if each not in held)])


def _before(ahead: int) -> str:
    return f" and {ahead} job{'s' if ahead > 1 else ''} before it" if ahead else ""


def _missing(lack: QuotaMissing) -> str:
    return _amount(lack.resource, lack.missing, lack.flavor) + (f" of {lack.fence}" if lack.fence else "")


def _amount(resource: str, missing: int, flavor: str) -> str:
    more = counted_jobs.named(f"{quantity.render(missing, resource)} more", resource)
    return more + (f" of flavor {flavor}" if flavor else "")
