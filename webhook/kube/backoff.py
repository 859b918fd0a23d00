"""One jittered, bounded schedule of waits, for everything that tries again.

The curve is that of client-go's reflector: it doubles from 0.8 to 30 seconds. Each wait is drawn from the upper half of
its bound, so that replicas that failed together do not come back together. Chance is injected: a seed repeats a run.
"""

from random import Random

FIRST_SECONDS = 0.8
MOST_SECONDS = 30.0


class Backoff:
    """Waits that grow with each failure in a row."""

    def __init__(
        self, rng: Random, *, first_seconds: float = FIRST_SECONDS, most_seconds: float = MOST_SECONDS
    ) -> None:
        assert 0 < first_seconds <= most_seconds
        self._rng = rng
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._bound_seconds = first_seconds

    def next_seconds(self) -> float:
        """Return the wait after one more failure, in seconds."""
        bound = self._bound_seconds
        self._bound_seconds = min(self._most_seconds, 2 * bound)
        return self._rng.uniform(bound / 2, bound)

    def reset(self) -> None:
        """Start again from the first wait: something worked."""
        self._bound_seconds = self._first_seconds
