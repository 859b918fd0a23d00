"""How long a hub is silent: what a member says on the hub's Lease, and when a hub may begin to rely on it (rule P3).

The member counts from when it saw a renewal. The hub counts from when it noted that nobody renews any more. The hub
waits longer than the member's time, for a renewal on its way and for the member's own steps.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from webhook.core.model.gang import GRACE_SECONDS_MAX

SLACK_SECONDS: Final = 60.0
"""In which a renewal that was sent arrives or never does, and the member's Tutti stops what it has to."""
GRACE_SECONDS: Final = 30
"""Of a pod that does not say."""
DIGITS_MAX: Final = 40
RUNTIME: Final = "runtimeRef"
"""Names another object, which says what pods a TrainJob has; what the job itself says of them is laid over it."""


class Heard(NamedTuple):
    """What a member has heard of a hub."""

    renewal: str
    """The time in the Lease, in the hub's words."""
    at_seconds: float
    """Unix time at which the member saw it, by its own clock."""
    stops_after_seconds: int
    """Of silence."""
    silent_seconds: int = 0
    """Of silence that was counted since, whatever the clocks of those say who counted; 0 while there is hardly any."""

    def __str__(self) -> str:
        # Hubs of earlier releases know three words: only of a hub that is silent there are four.
        counted = f" {self.silent_seconds}" if self.silent_seconds else ""
        return f"{self.renewal} {self.at_seconds:.3f} {self.stops_after_seconds}{counted}"

    @classmethod
    def read(cls, written: object) -> "Heard | None":
        """Return what was written; None for anything else."""
        parts = written.split(" ") if isinstance(written, str) and len(written) < 4 * DIGITS_MAX else []
        try:
            renewal, at, stops, *counted = parts
            (silent,) = counted or ["0"]
            return cls(renewal, float(at), int(stops), max(0, int(silent)))
        except ValueError:
            return None


def surely_stopped_seconds(stops_after_seconds: int, grace_seconds: int) -> float:
    """Return after how many seconds without renewals a gang is stopped in a member that promised it, its pods gone."""
    return stops_after_seconds + SLACK_SECONDS + grace_seconds


def longest_grace_seconds(job: Any) -> int:
    """Return the longest termination grace of a job's pods; the longest there is where it does not show all of them."""
    graces = list(_graces(job))
    return min(GRACE_SECONDS_MAX, max(GRACE_SECONDS, *graces)) if graces else GRACE_SECONDS_MAX


def _graces(node: Any) -> Iterator[int]:
    """Yield each grace in an object, and the usual one for each pod spec: whatever has containers is one."""
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            grace = node.get("terminationGracePeriodSeconds")
            if isinstance(grace, int) and not isinstance(grace, bool):
                yield grace
            if "containers" in node:
                yield GRACE_SECONDS
            if RUNTIME in node:
                yield GRACE_SECONDS_MAX
            left += node.values()
        elif isinstance(node, list):
            left += node
