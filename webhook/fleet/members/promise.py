"""Whether a member's word on the hub's Lease is its last: one whose Tutti is down promises nothing any more."""

from math import inf
from typing import Final

from webhook.core.fleet.silence import Heard
from webhook.untyped.values import seconds

PROMISED_SECONDS: Final = 60.0
"""A promise counts for so long from when it was seen to be for another renewal than before, whatever the clock of who
renewed says. The first that is seen counts if its renewal is no older, nor later by a clock that was set back since.
"""


class Promise:
    """What one cluster promises to one process of a hub."""

    def __init__(self) -> None:
        self._renewal = ""
        self._until_seconds = -inf

    def seconds(self, heard: Heard | None, unix_now: float, now: float) -> int:
        """Return after how many seconds of silence it stops what the hub permitted; 0 where it does not promise that.

        ``heard`` is what stands on the Lease; ``now`` is loop time.
        """
        if heard is None:
            return 0
        if heard.renewal != self._renewal:
            new = self._renewal or abs(unix_now - seconds(heard.renewal)) < PROMISED_SECONDS
            self._renewal, self._until_seconds = heard.renewal, now + PROMISED_SECONDS if new else -inf
        return heard.stops_after_seconds if now < self._until_seconds else 0
