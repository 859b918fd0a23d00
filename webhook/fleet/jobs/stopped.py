"""Why its member has stopped a gang that may run there, in that member's words."""

import asyncio
import contextlib
from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.sight import Copy
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.members.member import NoAnswer
from webhook.fleet.members.told import Stop

AGAIN_SECONDS: Final = 5.0
"""From one question to the next."""


class Stopped:
    """What one process has heard of it, for one gang."""

    def __init__(self, fleet: Fleet, namespace: str) -> None:
        self._fleet, self._namespace = fleet, namespace
        self._copy = ""
        """The uid of the copy that this is of."""
        self._ask_at = -inf
        """Loop time at which to ask again."""
        self._stop = Stop()
        """What is known of this stop."""
        self._earlier = ""
        """The stop after which it ran again."""

    def forget(self) -> None:
        """Note that it runs: whatever stops it next is another stop."""
        if self._stop.which:
            self._earlier, self._stop, self._ask_at = self._stop.which, Stop(), -inf

    @property
    def which(self) -> str:
        """Different for each stop that is known of."""
        return self._stop.which

    async def words(self, dispatch: Dispatch, copy: Copy) -> str:
        """Return why its member has stopped a copy; nothing where that is not known yet."""
        now = asyncio.get_running_loop().time()
        if self._copy != copy.uid:
            self._copy, self._ask_at, self._stop, self._earlier = copy.uid, -inf, Stop(), ""
        if now >= self._ask_at:
            self._ask_at = now + AGAIN_SECONDS
            with contextlib.suppress(NoAnswer):
                told = self._fleet.member(dispatch.member).told
                self._stop = await told.why_stopped(self._namespace, copy.uid, self._earlier)
        return self._stop.why

    async def told(self, dispatch: Dispatch, copy: Copy) -> str:
        """Return why a copy does not run that may, in words that follow its member's name; nothing while unknown."""
        said = await self.words(dispatch, copy)
        return f"has stopped it ({said})" if said else self._fleet.idle(dispatch.member)

    @property
    def look_at_seconds(self) -> float:
        """Loop time at which to look again: what is not said yet no watch tells."""
        return inf if self._stop.why else self._ask_at
