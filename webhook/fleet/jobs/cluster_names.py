"""The members' names that lead, or are said to lead, to the cluster that has a gang.

Any member may say that it is another one's cluster. The uid of a copy there is told to no other: who shows that very
copy is that cluster.
"""

import asyncio
import contextlib
from math import inf
from typing import Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.failed_in import FailedIn
from webhook.core.fleet.sight import Sight
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.members.member import NoAnswer
from webhook.jobs.kinds.kind import JobKind

NAME_HOLDS_SECONDS: Final = 15.0
"""Without an answer, before a member's name is no longer taken to lead where it did."""
AGAIN_SECONDS: Final = 5.0
"""From one change of the name in a record to the next: two processes of a hub may know different ones for a while."""
ASKED_SECONDS: Final = 60.0
"""From one question for another name to the next, while that in the record does not answer this process."""


class ClusterNames:
    """By which names the cluster of one gang is reached."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, name: str) -> None:
        self._fleet = fleet
        self._which = kind, namespace, name
        self._from_seconds = -inf
        self.look_at_seconds = inf
        """Loop time at which a new name may be asked for or written, where there is one."""

    async def new_name_due(self, dispatch: Dispatch, sight: Sight | None) -> str:
        """Return the name to write into the record now; nothing where it stays, or is not to change yet."""
        claimed, now = bool(self.claiming(dispatch, sight)), asyncio.get_running_loop().time()
        self.look_at_seconds = self._from_seconds if claimed and now < self._from_seconds else inf
        if not claimed or now < self._from_seconds:
            return ""
        name = await self.new_name(dispatch, sight)
        if name or sight is None:
            self._from_seconds = now + (ASKED_SECONDS if sight is None else AGAIN_SECONDS)
        return name

    def claiming(self, dispatch: Dispatch, sight: Sight | None) -> list[str]:
        """Return the members that say they are the cluster which has a gang, where the one in its record is not.

        What that one's name leads to is not known once it has not answered for a while.
        """
        member, now = self._fleet.members.get(dispatch.member), asyncio.get_running_loop().time()
        silent_since = inf if member is None or member.health.failing_since is None else member.health.failing_since
        answers = now - silent_since < NAME_HOLDS_SECONDS if sight is None else sight.cluster == dispatch.cluster
        if not dispatch.holds or (member is not None and answers):
            return []
        return self._others(dispatch)

    async def new_name(self, dispatch: Dispatch, sight: Sight | None) -> str:
        """Return the one of them that has the gang's very copy; nothing where none shows it.

        The copy of what is leaving may be gone by then. There it is enough that the former name answers for another
        cluster: no other member can have changed that.
        """
        claiming = self.claiming(dispatch, sight)
        for member in claiming:
            with contextlib.suppress(NoAnswer):
                if await self.shows(member, dispatch):
                    return member
        leads_elsewhere = sight is not None and dispatch.phase is DispatchPhase.RECALLED
        return claiming[0] if claiming and leads_elsewhere else ""

    async def shows(self, member: str, dispatch: Dispatch) -> bool:
        """Return whether a member has the very copy that a record names. Raises NoAnswer."""
        sight = (await self._fleet.member(member).look(*self._which, DispatchPhase.RECALLED)).sight
        copy = sight.copy
        return copy is not None and (sight.cluster, copy.uid) == (dispatch.cluster, dispatch.copy_uid)

    async def failed_in(self, dispatch: Dispatch) -> tuple[FailedIn, ...]:
        """Return where a gang has failed whose copy is in the member that its record names.

        Who says that it is that cluster, and does not show that copy, may be right: then only names are noted. So may
        one that does not answer now.
        """
        shown_by, disputed = [dispatch.member], False
        for member in self._others(dispatch):
            shows = False
            with contextlib.suppress(NoAnswer):
                shows = await self.shows(member, dispatch)
            shown_by += [member] * shows
            disputed |= not shows
        if disputed:
            return tuple(map(FailedIn, shown_by))
        return (FailedIn(dispatch.member, dispatch.cluster),)

    def _others(self, dispatch: Dispatch) -> list[str]:
        members = self._fleet.members.items()
        return sorted(name for name, each in members if each.uid == dispatch.cluster and name != dispatch.member)
