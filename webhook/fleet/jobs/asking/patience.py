"""How long a gang's copy is left alone, as one process sees it, before the hub takes the next step."""

import asyncio
from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.steps import stopped_there
from webhook.fleet.jobs.asking.choice import OFFER_SECONDS
from webhook.fleet.members.member import Look

SEEN_SECONDS: Final = 0.5
"""So long the controller of a copy's kind is waited for to write that it has seen it."""


class Patience:
    """What is remembered of one gang for that."""

    def __init__(self) -> None:
        self._reserved: tuple[str, float] | None = None
        """The copy that was seen to have a reservation, and since when."""
        self._stopped: tuple[str, float] | None = None
        """The copy that its member has stopped without a word of the hub, and since when."""
        self.look_at_seconds = inf
        """Loop time at which to look again."""
        self.for_status = False
        """It is its controller's first word that is waited for."""

    def moves_on(self, copy: Copy, found: Look | None) -> bool:
        """Return whether a copy with a reservation is soon written by its controller, which has not seen it yet.

        Its permit is bound to the version that is granted, and would come too late for that.
        """
        now = asyncio.get_running_loop().time()
        if self._reserved is None or self._reserved[0] != copy.uid:
            self._reserved = copy.uid, now
        if found is None or found.object is None or found.object.get("status"):
            self.for_status = False
            return False
        self.look_at_seconds = self._reserved[1] + SEEN_SECONDS
        self.for_status = now < self.look_at_seconds
        return self.for_status

    def is_over(self, dispatch: Dispatch, found: Look | None) -> bool:
        """Return whether the gang's member has stopped it, and has had time enough to start it again."""
        self.look_at_seconds = inf
        if dispatch.phase is not DispatchPhase.GRANTED or found is None or not stopped_there(found.sight):
            self._stopped = None
            return False
        now = asyncio.get_running_loop().time()
        if self._stopped is None or self._stopped[0] != dispatch.copy_uid:
            self._stopped = dispatch.copy_uid, now
        self.look_at_seconds = self._stopped[1] + OFFER_SECONDS
        return now >= self.look_at_seconds
