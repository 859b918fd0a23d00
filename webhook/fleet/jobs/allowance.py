"""How often a hub does something that others could have it do all the time: many at once, and then a few a second."""

from math import inf
from typing import Final

AT_ONCE: Final = 40
"""A gang takes some twenty looks to its start, where everything answers at once."""
EACH_SECONDS: Final = 0.25
"""From one to the next after that: a thousand take some four minutes."""


class Allowance:
    """For the looks at one gang (whoever changes its copy all the time costs the others little), or for what a hub
    process tells its gangs (with a member hundreds fall silent together).
    """

    def __init__(self) -> None:
        self._paid_until = -inf

    def wait_seconds(self, now: float) -> float:
        """Count one more; return for how long it has to wait."""
        self._paid_until = self._with_one_more(now)
        return max(0.0, self._paid_until - now)

    def takes(self, now: float) -> bool:
        """Return whether one more is done at this loop time, and count it; who is refused asks again soon."""
        if (paid_until := self._with_one_more(now)) > now:
            return False
        self._paid_until = paid_until
        return True

    def _with_one_more(self, now: float) -> float:
        return max(self._paid_until, now - AT_ONCE * EACH_SECONDS) + EACH_SECONDS
