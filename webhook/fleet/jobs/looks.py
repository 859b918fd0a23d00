"""How often a hub looks at one gang: whoever changes a copy all the time costs the others little."""

from math import inf
from typing import Final

LOOKS_AT_ONCE: Final = 40
"""A gang takes some twenty to its start, where everything answers at once."""
EACH_SECONDS: Final = 0.25
"""From one to the next after that."""


class Looks:
    """The looks at one gang."""

    def __init__(self) -> None:
        self._paid_until = -inf

    def wait_seconds(self, now: float) -> float:
        """Note one more look; return for how long it has to wait."""
        self._paid_until = max(self._paid_until, now - LOOKS_AT_ONCE * EACH_SECONDS) + EACH_SECONDS
        return max(0.0, self._paid_until - now)
