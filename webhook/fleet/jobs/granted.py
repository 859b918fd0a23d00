"""What is said of a gang that a member has and that does not run there, in words that follow the member's name."""

from math import inf

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.steps import stopped_there, why_recalled
from webhook.fleet.jobs.asking.failed import Failed
from webhook.fleet.jobs.asking.refusal import REFUSED_SECONDS, Refusal
from webhook.fleet.jobs.stopped import Stopped


class Granted:
    """What one process knows of it, for one gang."""

    def __init__(self, refusal: Refusal, failed: Failed, stopped: Stopped) -> None:
        self._refusal, self._failed, self._stopped = refusal, failed, stopped
        self.look_at_seconds = inf
        """Loop time at which to look again: what is not said yet no watch tells."""

    async def words(self, dispatch: Dispatch, sight: Sight) -> str | None:
        """Return it; nothing where the gang runs there, and None where nothing is known that is new."""
        self.look_at_seconds, copy = inf, sight.copy
        if refused := self._refusal.of_permit(dispatch, copy):
            if self._refusal.is_hubs:
                return f"has not got its permit yet ({refused}), which is tried again every {REFUSED_SECONDS:.0f} s"
            return f"refuses its permit ({refused}), and is asked again every {REFUSED_SECONDS:.0f} s"
        if copy is None or not copy.permitted:
            return None
        if copy.failed:
            return self._failed.words or None
        if stopped_there(sight):
            said = await self._stopped.told(dispatch, copy)
            self.look_at_seconds = self._stopped.look_at_seconds
            return said or None
        self._stopped.forget()
        return ""

    @property
    def which(self) -> str:
        """Different for each time that it was stopped there."""
        return self._stopped.which

    async def why_recalled(self, dispatch: Dispatch, copy: Copy | None) -> str:
        """Return what the member did that a gang which is to run leaves it."""
        if refused := self._refusal.of_permit(dispatch, copy):
            return f"{'did not get' if self._refusal.is_hubs else 'refused'} its permit ({refused})"
        if copy is not None and copy.failed and copy.uid == dispatch.copy_uid:
            return self._failed.said
        did = why_recalled(dispatch, copy)
        said = await self._stopped.words(dispatch, copy) if copy is not None and copy.permitted else ""
        return f"{did} ({said})" if said else did
