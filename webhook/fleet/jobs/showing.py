"""Shows the status of one gang's copy on the hub's job: not each that its member writes, but how it ends at once."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Sight
from webhook.errors import ApiError, Invalid
from webhook.fleet.jobs.own import OwnJob
from webhook.fleet.jobs.telling import Telling
from webhook.fleet.members.member import Look
from webhook.fleet.members.shown import ending, ends_strangely, shown
from webhook.jobs.kinds.kind import JobKind
from webhook.untyped import paths

SHOWN_SECONDS: Final = 1.0
"""From one status that is shown to the next, and from the permit to the first."""


class Showing:
    """What one gang's job shows, and when."""

    def __init__(self, kind: JobKind, own: OwnJob, telling: Telling) -> None:
        self._kind, self._own, self._telling = kind, own, telling
        self._next_seconds = -inf

    def rest(self) -> None:
        """Show none for a while."""
        self._next_seconds = self._now() + SHOWN_SECONDS

    def wait_until(self) -> float:
        """Return the loop time at which the next status is shown; infinity where that is now."""
        return self._next_seconds if self._now() < self._next_seconds else inf

    async def without_strange_end(self, job: dict[str, Any], dispatch: Dispatch, sight: Sight | None) -> dict[str, Any]:
        """Return the job without a status by which it would have ended, where no member has said that; and say so.

        As the status then differs from the member's, that is shown in its place.
        """
        if not ends_strangely(self._kind, job, dispatch, None if sight is None else sight.copy):
            return job
        await self._telling.ends_strangely(job)
        return {key: value for key, value in job.items() if key != "status"}

    async def mirror(self, job: dict[str, Any], dispatch: Dispatch, found: Look | None) -> float:
        """Show the member's status while the gang runs there; return the loop time to do that if it is not yet shown.

        Raises ApiError.
        """
        if dispatch.phase is not DispatchPhase.GRANTED or found is None or found.object is None:
            return inf
        copy = found.sight.copy
        # How it ends is shown when it has, and is known not to run again elsewhere: a Job cannot take that back.
        if copy is None or copy.finished or ending(paths.find_mapping(found.object, ("status",))):
            return inf
        # A copy that was not started yet has nothing to show.
        if copy.uid != dispatch.copy_uid or not copy.permitted or (copy.suspended and not job.get("status")):
            return inf
        told = self._told(job, found)
        if told is not None and (due := self.wait_until()) < inf:
            return due
        await self.report(job, found)
        return inf

    async def report(self, job: dict[str, Any], found: Look | None) -> dict[str, Any]:
        """Show the status of the copy that was found; return the job as it is then. Raises ApiError."""
        told = self._told(job, found)
        return job if told is None else await self.store(job, told)

    async def report_last(self, job: dict[str, Any], found: Look | None) -> None:
        """Show what was counted since the end was shown, unless that is refused. Raises ApiError where it may be not.

        Nothing waits for it: the end is shown already.
        """
        if (told := self._told(job, found)) is None:
            return
        try:
            await self._own.write_status(job, told)
        except ApiError as error:
            if not error.status or not (isinstance(error, Invalid) or self._own.statuses.is_refused):
                raise

    async def store(self, job: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Show a status; return the job as it is then. Raises ApiError."""
        self.rest()
        try:
            return await self._own.write_status(job, told)
        except ApiError as error:
            if error.status and self._own.statuses.is_refused:
                await self._telling.status_refused(job, self._own.record.member, error)
            raise

    def _told(self, job: Mapping[str, Any], found: Look | None) -> Mapping[str, Any] | None:
        """Return what is to be shown; None where it is shown already, or nothing was found."""
        told = None if found is None or found.object is None else found.object.get("status")
        if not isinstance(told, dict) or (fitting := shown(self._kind, job, told)) == job.get("status"):
            return None
        return fitting

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
