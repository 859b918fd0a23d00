"""For how long a member is not asked that had room for a gang and refused what it needs to start. Pure.

A quota, a webhook or a policy of the member may refuse the same each time, and each time it keeps the room for half a
minute. Where it is the hub that cannot read what it needs, the hub pauses, and not for longer each time. What is
remembered may be lost at any time.
"""

from typing import Final, NamedTuple

from webhook.core.fleet.dispatch import Offer
from webhook.core.notation.moments import time_text

FIRST_SECONDS: Final = 30.0
MOST_SECONDS: Final = 600.0


class _Pause(NamedTuple):
    offer: Offer
    """Of the copy that was refused."""
    seconds: float
    until: float
    """Loop time."""
    why: str


class Pauses:
    """The members of one gang that pause, each twice as long as the last time."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    def begin(
        self, member: str, offer: Offer, why: str, now: float, unix_now: float, *, most_seconds: float = MOST_SECONDS
    ) -> None:
        """Note at this loop time, and Unix time, that a member has refused an offer's copy, in words that follow its
        name. Once an offer: what follows may have to be tried again.
        """
        last = self._pauses.get(member)
        if last is not None and last.offer == offer:
            return
        # Where that was long ago, the first pause is the short one again.
        again = last is not None and now < last.until + MOST_SECONDS
        seconds = min(most_seconds, 2 * last.seconds) if again and last is not None else FIRST_SECONDS
        told = f"{why}, and is asked again at {time_text(int(unix_now + seconds))}"
        self._pauses[member] = _Pause(offer, seconds, now + seconds, told)

    def at(self, now: float) -> dict[str, str]:
        """Return the members that are not asked at this loop time, each with why."""
        return {member: pause.why for member, pause in self._pauses.items() if now < pause.until}
