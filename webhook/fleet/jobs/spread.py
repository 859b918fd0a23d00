"""How many gangs a hub tells at once what keeps them from going on: with a member hundreds fall silent together."""

from math import inf
from typing import Final

AT_ONCE: Final = 40
EACH_SECONDS: Final = 0.25
"""From one to the next after that: a thousand are told within some four minutes."""


class Spread:
    """Of one hub process, over all its gangs."""

    def __init__(self) -> None:
        self._paid_until = -inf

    def takes(self, now: float) -> bool:
        """Return whether one more is told at this loop time, and count it; who is not is asked about again soon."""
        paid_until = max(self._paid_until, now - AT_ONCE * EACH_SECONDS) + EACH_SECONDS
        if paid_until > now:
            return False
        self._paid_until = paid_until
        return True
