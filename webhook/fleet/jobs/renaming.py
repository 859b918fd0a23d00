"""By which member's name the cluster that has a gang is reached now: names may be swapped, or given to others."""

import asyncio
from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.sight import Sight
from webhook.fleet.jobs.fleet import Fleet
from webhook.jobs.kinds.kind import JobKind

AGAIN_SECONDS: Final = 5.0
"""From one change of the name in a record to the next: two processes of a hub may know different ones for a while."""
ASKED_SECONDS: Final = 60.0
"""From one question for another name to the next, while that in the record does not answer this process."""


class Renaming:
    """What one gang's record calls its member."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, name: str) -> None:
        self._fleet = fleet
        self._which = kind, namespace, name
        self._from_seconds = -inf
        self.look_at_seconds = inf
        """Loop time at which a new name may be asked or written, where there is one."""

    async def due(self, dispatch: Dispatch, sight: Sight | None) -> str:
        """Return the name to write now; nothing where it stays, or is not to change yet."""
        claimed, now = bool(self._fleet.claim_it(dispatch, sight)), asyncio.get_running_loop().time()
        self.look_at_seconds = self._from_seconds if claimed and now < self._from_seconds else inf
        if not claimed or now < self._from_seconds:
            return ""
        name = await self._fleet.new_name(*self._which, dispatch, sight)
        if name or sight is None:
            self._from_seconds = now + (ASKED_SECONDS if sight is None else AGAIN_SECONDS)
        return name
