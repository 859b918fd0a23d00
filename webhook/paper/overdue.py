"""What time has brought to an admitted Workload: its run-time limit is used up, or its pods were not ready in time.

Kueue's workload controller evicts it then. On paper time stands still, so this is looked at once, before the first
cycle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.config import Start
from webhook.controllers.requeues import ATTEMPTS_USED_UP, LIMIT_REACHED
from webhook.jobs import paths
from webhook.jobs.reading import seconds

TIMED_OUT: Final = "PodsReadyTimeout"
Conditions = Mapping[str, Mapping[str, Any]]
"""By type."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """An eviction that is due."""

    reason: str
    leaves: bool = True
    """It is deactivated: it does not wait again."""
    place_seconds: float | None = None
    """Unix time that orders it then; None keeps its place."""
    not_before_seconds: float = 0.0
    """Unix time until which it backs off."""


def overdue(obj: Mapping[str, Any], conditions: Conditions, start: Start, since: float, now: float) -> Overdue | None:
    """Return the eviction of a Workload that has held its quota since ``since``, or None when none is due."""
    admitted = conditions.get("Admitted") or {}
    since = seconds(admitted.get("lastTransitionTime")) or since
    limit = paths.find(obj, ("spec", "maximumExecutionTimeSeconds"))
    spent = paths.find(obj, ("status", "accumulatedPastExecutionTimeSeconds"))
    if type(limit) is int and (spent if type(spent) is int else 0) + now - since >= limit:
        return Overdue(LIMIT_REACHED)
    ready = conditions.get("PodsReady")
    if ready is None or ready.get("status") in ("True", True):
        return None
    limit = start.timeout_seconds
    if ready.get("reason") == "WaitForRecovery":
        since, limit = seconds(ready.get("lastTransitionTime")) or now, start.recovery_seconds
    if limit is None or now - since <= limit:
        return None
    known = paths.find(obj, ("status", "requeueState", "count"))
    times = known if type(known) is int else 0
    if start.attempts is not None and times >= start.attempts:
        return Overdue(ATTEMPTS_USED_UP)
    delay = min(start.backoff_max_seconds, start.backoff_seconds * 2.0 ** min(times, 20))
    return Overdue(TIMED_OUT, False, now if start.place == "Eviction" else None, now + delay)
