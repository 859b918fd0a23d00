"""What Kueue's workload controller does about a Workload that holds quota, as soon as it looks at it.

Its run-time limit is used up, its pods were not ready in time, an admission check failed: it is evicted. It is not
admitted yet, and its queue has been stopped meanwhile: it gives back what was reserved. Time stands still in a dry run,
so this is looked at once, before the first cycle.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy, StopPolicy
from webhook.core.reasons.eviction import ATTEMPTS_USED_UP, LIMIT_REACHED
from webhook.laboratory.dry_run.workloads.entrant import Surroundings
from webhook.untyped import paths
from webhook.untyped.values import seconds

TIMED_OUT: Final = "PodsReadyTimeout"
CHECK_FAILED: Final = "AdmissionCheck"
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


def overdue(obj: Mapping[str, Any], conditions: Conditions, around: Surroundings, since: float) -> Overdue | None:
    """Return the eviction of a Workload that has held its quota since ``since``, or None when none is due."""
    if any(checks_saying(obj, "Rejected")):
        return Overdue(CHECK_FAILED)
    again = list(checks_saying(obj, "Retry"))
    if again:
        return Overdue(CHECK_FAILED, False, around.now, max(map(_retried_at, again)))
    if not is_admitted(obj, conditions):
        return None
    admitted = conditions.get("Admitted") or {}
    since = seconds(admitted.get("lastTransitionTime")) or since
    limit = paths.find(obj, ("spec", "maximumExecutionTimeSeconds"))
    if type(limit) is int and past_run_seconds(obj) + around.now - since >= limit:
        return Overdue(LIMIT_REACHED)
    return _timed_out(obj, conditions, around, since)


def past_run_seconds(obj: Mapping[str, Any]) -> int:
    """Return how long a Workload ran before its last eviction; Kueue's v1beta1 misspells the field."""
    for name in ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds"):
        spent = paths.find(obj, ("status", name))
        if type(spent) is int:
            return spent
    return 0


def _timed_out(obj: Mapping[str, Any], conditions: Conditions, around: Surroundings, since: float) -> Overdue | None:
    start, now = around.start, around.now
    # Where nobody waits for pods nobody writes that they are ready.
    unready: Mapping[str, Any] | None = {} if around.readiness_is_told and "Admitted" in conditions else None
    ready = conditions.get("PodsReady", unready)
    if ready is None or ready.get("status") in ("True", True):
        return None
    limit: float | None = start.timeout_seconds
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


def is_admitted(obj: Mapping[str, Any], conditions: Conditions) -> bool:
    """Return whether a Workload that holds quota may run. Where nothing is said of that, its checks must be Ready."""
    stated = conditions.get("Admitted")
    if stated is not None:
        return stated.get("status") in ("True", True)
    return all(check.get("state") == "Ready" for check in _checks(obj))


def is_given_back(gang: Gang, name: str | None, policy: Policy) -> bool:
    """Return whether what queue ``name`` has reserved for a gang that is not admitted yet is dropped: that queue or its
    local queue is stopped or gone.
    """
    queue = policy.queues.get(name or "")
    if queue is None or queue.stop_policy is not StopPolicy.NONE or queue.inactive_reason == "Terminating":
        return True
    local = None if gang.queue is None else policy.local_queues.get((gang.namespace, gang.queue))
    if local is None:
        return policy.queue_of(gang.namespace, gang.queue) is None
    return local.stop_policy is not StopPolicy.NONE


def checks_saying(obj: Mapping[str, Any], state: str) -> Iterator[Mapping[str, Any]]:
    """Yield the admission checks of a Workload that are in ``state``."""
    return (check for check in _checks(obj) if check.get("state") == state)


def _checks(obj: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    listed = paths.find(obj, ("status", "admissionChecks"))
    return (check for check in (listed if isinstance(listed, list) else ()) if isinstance(check, dict))


def _retried_at(check: Mapping[str, Any]) -> float:
    delay = check.get("requeueAfterSeconds")
    return seconds(check.get("lastTransitionTime")) + delay if type(delay) is int else 0.0
