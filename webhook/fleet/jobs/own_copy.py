"""One gang's copy in a member, as the hub writes it: created, permitted and deleted, each by what was read of it."""

import contextlib
from collections.abc import Mapping
from typing import Any

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.sight import Copy
from webhook.fleet.jobs.dependencies.bringing import bring
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.last_read import LastRead
from webhook.fleet.jobs.showing import Showing
from webhook.fleet.jobs.telling import Telling
from webhook.fleet.members.copies import copy_made
from webhook.fleet.members.member import Look, NoAnswer
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import status
from webhook.untyped import paths


class OwnCopy:
    """What a hub writes to the copy of one gang."""

    def __init__(
        self,
        fleet: Fleet,
        kind: JobKind,
        namespace: str,
        name: str,
        *,
        last_read: LastRead,
        showing: Showing,
        telling: Telling,
    ) -> None:
        self._fleet = fleet
        self._kind, self._namespace, self._name = kind, namespace, name
        self._last_read, self._showing, self._telling = last_read, showing, telling

    async def create(self, job: dict[str, Any], dispatch: Dispatch, *, stops_nobody: bool) -> bool:
        """Create the copy of an offer that is stored, where nothing of its name was seen; return whether it was.

        Raises NoAnswer, Refused.
        """
        made = copy_made(self._kind, job, self._fleet.uid, dispatch, stops_nobody=stops_nobody)
        return self._last_read.wrote(await self._fleet.member(dispatch.member).create(self._kind, made))

    async def permit(self, job: Mapping[str, Any], dispatch: Dispatch, found: Look | None, *, brings: bool) -> bool:
        """Permit a copy whose grant is stored; return whether it was still as granted.

        ``brings``: what the job refers to comes first. Raises ApiError, NoAnswer, Refused.
        """
        member, uid = self._fleet.member(dispatch.member), paths.find(job, ("metadata", "uid"))
        lacks = await bring(self._fleet, self._kind, job, dispatch, found) if brings or self._fleet.unread else ()
        if (written := await member.permit(self._kind, self._namespace, self._name, uid, dispatch)) is not None:
            await self._telling.where(job, dispatch, lacks)
        return self._last_read.wrote(written)

    async def delete(self, job: dict[str, Any], dispatch: Dispatch, found: Look | None) -> None:
        """Delete the copy of a gang whose recall is stored. Raises ApiError, NoAnswer, Refused."""
        copy, member = None if found is None else found.sight.copy, self._fleet.member(dispatch.member)
        if copy is None or copy.uid != dispatch.copy_uid or copy.deleting:
            return
        shows_its_end = copy.finished and status.finished(self._kind, job) is not None
        if shows_its_end:
            # Its controller may have counted on since: what is deleted is what was shown.
            await self._showing.report_last(job, found)
        await member.delete(self._kind, self._namespace, self._name, copy, as_read=shows_its_end)

    async def leave(self, before: Dispatch, copy: Copy | None) -> None:
        """Delete the copy of an offer that is over, as it was read: it may yet take the room that another waits for.

        A member that does not answer is swept when it does. Raises Refused.
        """
        if copy is not None and copy.offer == before.offer and not (copy.permitted or copy.deleting):
            with contextlib.suppress(NoAnswer):
                member = self._fleet.member(before.member)
                await member.delete(self._kind, self._namespace, self._name, copy, as_read=True)
