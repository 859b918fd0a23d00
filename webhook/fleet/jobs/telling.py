"""Sends events on one job of a hub; nothing depends on them."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

import orjson
import structlog

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Sight
from webhook.core.fleet.text import UnreadableRecord
from webhook.errors import ApiError
from webhook.fleet.jobs.asking.failed import failed_there
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.jobs.events import (
    CHANGED,
    KEPT,
    NEVER,
    QUEUE_MISSING,
    RECORD_REFUSED,
    SILENT,
    STATUS_REFUSED,
    STRANGE_END,
    UNPLACED,
    UNREADABLE,
    bound,
    changed,
    ended,
    halted,
    kept,
    lacking,
    leaves,
    record_refused,
    silent,
    status_refused,
    strange_end,
    unplaced,
    unreadable,
)
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.own import OwnJob, RecordRefused
from webhook.fleet.members.copies import why_unwanted
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import status

log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 60.0
HOUR_SECONDS: Final = 3600.0
"""After which it is told again, for events are not kept much longer; of each hour there is one event."""
SILENT_SECONDS: Final = 30.0
"""Of a member, before its gangs are told: a restart of its API server is no news."""

_REFUSED: Final = (400, 403, 404, 409, 413, 422)
"""Statuses by which an event is there, or will never be."""
UNPLACED_SECONDS: Final = 30.0
"""Without a member, before a gang is told: two rounds of offers."""

Event = Callable[[float], dict[str, Any]]
"""Of the time."""


class Telling:
    """What one job is told."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, names: ClusterNames) -> None:
        self._fleet, self._names = fleet, names
        self._kind = kind
        self._path = f"/api/v1/namespaces/{namespace}/events"
        self._told: dict[str, float] = {}
        """When it was told last what keeps it from going on, by the reason of the event."""
        self._told_last: dict[str, str] = {}
        """Names of the last events of what is told once, by their reasons."""
        self._untold: dict[str, dict[str, Any]] = {}
        """Events of what is told once, by their reasons, that had to wait."""
        self._said: tuple[object, ...] = ()
        """Why it does not run, as this process wrote it last."""
        self._said_at = -inf
        """Loop time at which it did."""
        self._unplaced_since = inf
        """Loop time since when it is to run and no member has it, as far as this process has seen."""

    async def where(self, job: Mapping[str, Any], dispatch: Dispatch, lacks: Sequence[str] = ()) -> None:
        """Say where it runs, and what it ``lacks`` there of what it refers to."""
        await self._send(bound(self._kind, job, dispatch, self._fleet.clock.now()))
        if lacks:
            await self._once(lacking(self._kind, job, dispatch, lacks, self._fleet.clock.now()))

    def says(self, stored: Dispatch, noted: Dispatch) -> bool:
        """Return whether to write a record instead of the one that is ``stored``, which may differ in words alone.

        What another process found is overwritten once a minute only: that one may not reach the same members, and
        would write it back as soon as it sees it changed.
        """
        words = zip(_words(stored), _words(noted), strict=True)
        theirs = any(old and old != new and old not in self._said for old, new in words)
        is_over = bool(stored.waits) and not noted.waits
        rests = asyncio.get_running_loop().time() < self._said_at + AGAIN_SECONDS
        return noted != stored and not (theirs and rests and noted.facts == stored.facts and not is_over)

    def said(self, noted: Dispatch) -> None:
        """Note that this process has written a record."""
        self._said, self._said_at = _words(noted), asyncio.get_running_loop().time()

    async def halted(self, job: Mapping[str, Any], dispatch: Dispatch, which: str, *, failed: bool) -> None:
        """Say why it does not run in the member that has it, once each time."""
        await self._once(halted(self._kind, job, dispatch, which, failed=failed, now=self._fleet.clock.now()))

    async def leaves(self, job: Mapping[str, Any], dispatch: Dispatch) -> None:
        """Say once why it leaves its member or was given up there, where it is to run all the same, or has failed."""
        # By a status of the hub's own operator it may have ended too, while it left a member in which it ran.
        in_it = any(each.member == dispatch.member for each in dispatch.failed)
        if in_it and status.finished(self._kind, job) == "Failed":
            said = failed_there(status.why_failed(self._kind, job))
            await self._once(ended(self._kind, job, dispatch, said, self._fleet.clock.now()))
        elif not why_unwanted(self._kind, job):
            await self._once(leaves(self._kind, job, dispatch, self._fleet.clock.now()))

    async def held_up(self, job: Mapping[str, Any], dispatch: Dispatch, sight: Sight | None) -> float:
        """Say what keeps a job from going on; return the loop time at which to look for that, if there is one."""
        for event in [*self._untold.values()]:
            await self._once(event)
        if dispatch.holds:
            self._unplaced_since = inf
            if dispatch.phase is DispatchPhase.RECALLED:
                await self.leaves(job, dispatch)
            await self._held_up_there(job, dispatch, sight)
            return inf
        return await self._unplaced(job, dispatch)

    async def _unplaced(self, job: Mapping[str, Any], dispatch: Dispatch) -> float:
        """Say that no member has taken it, and why, where that takes long."""
        now = asyncio.get_running_loop().time()
        if why_unwanted(self._kind, job) or dispatch.suspended_by or not self.due(QUEUE_MISSING):
            self._unplaced_since = inf
            return inf
        self._unplaced_since = min(self._unplaced_since, now)
        if now < (due := self._unplaced_since + UNPLACED_SECONDS):
            return due
        await self.hourly(NEVER if dispatch.never else UNPLACED, lambda now: unplaced(self._kind, job, dispatch, now))
        return inf

    async def _held_up_there(self, job: Mapping[str, Any], dispatch: Dispatch, sight: Sight | None) -> None:
        """Say why it does not go on in its member: the name leads to another cluster, or to none that answers."""
        if sight is not None:
            if sight.cluster != dispatch.cluster:
                # Two names may just have been swapped, and the other not have been asked since.
                await self._fleet.see_clusters(self._fleet.members if self.due(CHANGED) else ())
                if self.due(CHANGED) and not await self._names.new_name(dispatch, sight):
                    await self.hourly(CHANGED, lambda now: changed(self._kind, job, dispatch, now))
            return
        member = self._fleet.members.get(dispatch.member)
        if member is None:
            if not (self._fleet.members_known and self.due(SILENT)):
                return
            if await self._names.new_name(dispatch, sight):
                return
            claimed = " and ".join(self._names.claiming(dispatch, sight))
            why = "is not a member of this hub" + (
                f", and {claimed} in its place shows no copy of it" if claimed else ""
            )
        else:
            since = member.health.failing_since
            if since is None or asyncio.get_running_loop().time() - since < SILENT_SECONDS:
                return
            why = f"has not answered for {SILENT_SECONDS:.0f} s or more: {member.health.failure}"
        await self.hourly(SILENT, lambda now: silent(self._kind, job, dispatch, why, now))

    async def kept(self, job: Mapping[str, Any], sight: Sight, dispatch: Dispatch, why: str) -> None:
        """Say what keeps a gang in the member that it is to leave."""
        await self.hourly(KEPT, lambda now: kept(self._kind, job, sight, dispatch, why, now=now))

    async def status_refused(self, job: Mapping[str, Any], member: str, error: ApiError) -> None:
        """Say that the hub's API server refuses what is shown of a copy, which would else end in silence."""
        why = str(error)
        log.warning("fleet.status_refused", job=job["metadata"]["name"], member=member, error=why)
        await self.hourly(STATUS_REFUSED, lambda now: status_refused(self._kind, job, member, why, now))

    async def ends_strangely(self, job: Mapping[str, Any]) -> None:
        """Say that something in the hub wrote that it has ended, which is not believed."""
        await self.hourly(STRANGE_END, lambda now: strange_end(self._kind, job, now))

    async def of_record(self, own: OwnJob, error: Exception) -> None:
        """Say that the record cannot be read, or that the hub's API server refuses it, so that the job does not go on.

        Of any other error nothing is said.
        """
        if isinstance(error, UnreadableRecord):
            reason, event = UNREADABLE, unreadable
        elif isinstance(error, RecordRefused) and error.again:
            log.warning("fleet.record_refused", job=f"{own.namespace}/{own.name}", error=str(error))
            reason, event = RECORD_REFUSED, record_refused
        else:
            return
        if self.due(reason):
            with contextlib.suppress(ApiError):
                job = await own.read()
                await self.hourly(reason, lambda now: event(self._kind, job, str(error), now))

    def due(self, reason: str) -> bool:
        """Whether this was not told for an hour."""
        return self._fleet.clock.now() - self._told.get(reason, -inf) >= HOUR_SECONDS

    async def hourly(self, reason: str, event: Event) -> None:
        """Say what keeps it from going on, once an hour; a little later where many have to be told the same."""
        allowance = self._fleet.telling_of_waits if reason in (NEVER, UNPLACED) else self._fleet.telling
        if self.due(reason) and allowance.takes(asyncio.get_running_loop().time()):
            now = self._fleet.clock.now()
            if await self._send(event(now)):
                self._told[reason] = now

    async def _once(self, event: dict[str, Any]) -> None:
        """Send an event whose name is that of all that it tells, unless it was."""
        name, reason = event["metadata"]["name"], event["reason"]
        if name == self._told_last.get(reason):
            self._untold.pop(reason, None)
            return
        self._untold[reason] = event
        if self._fleet.telling.takes(asyncio.get_running_loop().time()) and await self._send(event):
            self._told_last[reason] = name
            # It may have been told from elsewhere meanwhile, or have become another.
            if self._untold.get(reason) is event:
                del self._untold[reason]

    async def _send(self, event: dict[str, Any]) -> bool:
        """Send an event; return whether that is done with: it was told, perhaps by another process, or it is refused.

        A namespace that takes no events takes none later, and has no more of the allowance of all.
        """
        try:
            await self._fleet.api.request("POST", self._path, body=orjson.dumps(event))
        except ApiError as error:
            return error.status in _REFUSED
        return True


def _words(dispatch: Dispatch) -> tuple[object, ...]:
    return dispatch.waits, dispatch.elsewhere, dispatch.never
