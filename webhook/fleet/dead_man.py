"""The dead-man switch of a hub: a member that is silent for long enough has stopped by itself what it was granted (P3).

Each hub process renews a Lease in each member. When a member has not answered for a while, one of them notes that in
the hub's cluster, and from then on nobody renews: every process reads the notes just before it does. As long as the
same note stands the member hears nothing, and after its promised time it stops what this hub has permitted there, for
good. Each process counts for itself from when it saw the note first. When the time is over, each gang whose grant
says that its member promised so is written as nowhere, and the member is noted as lost, as ``tutti fleet lost`` does;
when it is back it is swept before its Lease is renewed.

A member that answers, and in which its Lease cannot be renewed, is not noted: it stops by itself what it has, and is
offered nothing until it hears the hub again.

A member that was taken away while it has gangs hears nothing either: it is noted at once, and counted on like that.

A cluster may be reached by several names. It hears the hub by each of them, so what it has is given up only when all
have been silent for long enough: also each that has not answered this process, for another one may reach it. A member
that answers, says it is that cluster, and has nothing of the gang does not count: any could say so.

A note is read after the job that is given up, and the job is written only as it was read: whoever granted it again
meanwhile, in a member that had come back, has changed it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import structlog

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.silence import longest_grace_seconds, surely_stopped_seconds
from webhook.core.fleet.text import UnreadableRecord
from webhook.core.notation.moments import time_text
from webhook.errors import ApiError, Conflict, Invalid, NotFound
from webhook.fleet import lost
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.job import FleetJob
from webhook.fleet.members.copies import JobName, dispatch_of
from webhook.fleet.members.member import Member, NoAnswer

log = structlog.get_logger(__name__)

RENEW_SECONDS: Final = 5.0
FAILING_SECONDS: Final = 15.0
"""A member that does not answer for this long is noted as silent."""
OLD_SECONDS: Final = 15.0
"""Notes that were read longer ago say nothing of whether the Lease may be renewed."""
RENEWALS_WITHOUT_A_PROMISE: Final = 2
"""After so many renewals a member that promises nothing is offered gangs all the same."""


@dataclass
class _Silence:
    """What one process knows of one member."""

    failing_since: float | None = None
    renewals: int = 0
    note: tuple[str, int] = ("", 0)
    """The note that was seen last, and how often the hub's cluster had been set back then."""
    since: float = 0.0
    """Loop time at which this very note was seen first."""


class DeadMan:
    """Of one hub process, for all its members."""

    def __init__(self, fleet: Fleet, jobs: Mapping[JobName, FleetJob], rng: Random) -> None:
        self._fleet = fleet
        self._jobs = jobs
        self._rng = rng
        self._known: dict[str, _Silence] = {}
        self._unread = set[JobName]()
        """Jobs that could not be read when that was last tried."""
        for name in fleet.members:
            self.join(name)
        log.warning(
            "fleet.dead_man",
            rests_on="a member stops gangs of a silent hub while its API server and its Tutti run; see docs/fleet.md",
        )

    def join(self, name: str) -> None:
        """Begin with a member: nothing is offered to it before its Lease is renewed."""
        self._known[name] = _Silence()
        self._fleet.silent.add(name)

    async def look(self, member: Member) -> None:
        """Renew the Lease in a member, or see how long that was left alone. Raises ApiError, NoAnswer."""
        name, known, now = member.name, self._known[member.name], asyncio.get_running_loop().time
        began = now()
        gone, silent = await lost.noted(self._fleet.api), await lost.noted(self._fleet.api, lost.SILENT)
        note = silent.get(name, ""), self._fleet.set_backs
        if note != known.note:
            # Who has just seen it end gives its member time to answer before it is noted again.
            known.note, known.since, known.failing_since = note, now(), None
        if note[0] or name in gone:
            self._fleet.silent.add(name)
            known.renewals = 0
            if await _answers(member):
                if name not in gone:
                    # Another may be about to note it again: first it is renewed.
                    await lost.came_back(self._fleet.api, name, note[0], lost.SILENT)
                    await self._renew(member, known, began)
            elif note[0]:
                await self._give_up_all(name, note[0], now() - known.since)
            else:
                # Its name may lead to a cluster that is reached by others too.
                await self._note(name, known, "it was declared lost, and does not answer")
        else:
            await self._renew(member, known, began)

    async def look_at_absent(self) -> None:
        """See how long former members that still have gangs were left alone. Raises ApiError."""
        if not self._fleet.members_known:
            return
        held = {job.own.record.member for job in self._jobs.values() if job.own.record.holds}
        await self._forget(self._known.keys() - self._fleet.members.keys() - held)
        for name in sorted(held - self._fleet.members.keys()):
            known, now = self._known.setdefault(name, _Silence()), asyncio.get_running_loop().time
            silent = await lost.noted(self._fleet.api, lost.SILENT)
            note = silent.get(name, ""), self._fleet.set_backs
            if name in self._fleet.members:
                continue
            if not note[0]:
                await self._note(name, known, "it has gangs but is not a member")
            elif note != known.note:
                known.note, known.since = note, now()
            else:
                await self._give_up_all(name, note[0], now() - known.since)

    async def _forget(self, names: set[str]) -> None:
        """End the notes of former members whose gangs left by other ways than being given up: nothing else would."""
        for name, known in [(name, self._known[name]) for name in sorted(names)]:
            if self._known[name] is not known:
                # It joined again while the note of another one was ended.
                continue
            when = known.note[0]
            if when and name not in await lost.noted(self._fleet.api):
                await lost.came_back(self._fleet.api, name, when, lost.SILENT)
            if self._known[name] is known:
                # It may have joined again meanwhile.
                del self._known[name]

    async def _note(self, name: str, known: _Silence, error: str) -> None:
        """Write down that nobody renews the Lease in a member any more, and count from then."""
        when = f"{time_text(int(self._fleet.clock.now()))} {self._rng.getrandbits(32):08x}"
        await lost.note(self._fleet.api, name, when, lost.SILENT)
        now = asyncio.get_running_loop().time()
        known.note, known.since, known.failing_since = (when, self._fleet.set_backs), now, None
        log.error("fleet.silent", member=name, error=error)

    async def _renew(self, member: Member, known: _Silence, read_at: float) -> None:
        loop = asyncio.get_running_loop()
        if (began := loop.time()) - read_at >= OLD_SECONDS:
            return
        try:
            await member.renew(self._fleet.uid, self._fleet.clock.now())
        except NoAnswer as error:
            known.failing_since = began if known.failing_since is None else known.failing_since
            if loop.time() - known.failing_since >= FAILING_SECONDS:
                if await _answers(member):
                    # It stops by itself what it has, and would stop what comes: each is seen to be gone, and moves on.
                    self._fleet.silent.add(member.name)
                    known.renewals = 0
                else:
                    await self._note(member.name, known, str(error))
            raise
        known.failing_since, known.renewals = None, known.renewals + 1
        if member.stops_after_seconds or known.renewals >= RENEWALS_WITHOUT_A_PROMISE:
            self._fleet.silent.discard(member.name)

    async def lengthen(self, member: Member) -> None:
        """Write down that a cluster has been told since the grant to stop its gangs only later, whatever its name.

        Apart from the renewals: the hub's own API server may hang, and the member is to hear the hub all the same.
        """
        promised, cluster = member.stops_after_seconds, member.uid
        later = [which for which, job in self._jobs.items() if _promises_less(job.own.record, cluster, promised)]
        await self._of_each(later, lambda job: self._lengthen(job, member, cluster, promised))

    async def _lengthen(self, job: FleetJob, member: Member, cluster: str, promised: int) -> None:
        before = job.own.record
        # What a member promises that only says it is this cluster is of no gang there: it is asked before the hub is.
        if before.member != member.name and not await job.names.shows(member.name, before):
            return
        stored = await job.own.read()
        dispatch = dispatch_of(stored)
        if dispatch.copy_uid == before.copy_uid and _promises_less(dispatch, cluster, promised):
            await job.own.write(stored, replace(dispatch, stops_after_seconds=promised))

    async def _give_up_all(self, member: str, note: str, waited: float) -> None:
        """Give up what has surely stopped in a member that still does not answer, or is none any more."""
        there = [which for which, job in self._jobs.items() if _has(job.own.record, member)]
        reached = set[str]()
        await self._of_each(there, lambda job: self._give_up(job, member, note, waited, reached))

    async def _of_each(self, jobs: Iterable[JobName], work: Callable[[FleetJob], Awaitable[None]]) -> None:
        """Do something with the record of each of these jobs.

        One that cannot be read comes last the next time, and of its kind none after it: each may take long to fail.
        """
        failed = set[str]()
        self._unread &= self._jobs.keys()
        for which in sorted(jobs, key=lambda each: (each in self._unread, each)):
            if which[0] in failed or (job := self._jobs.get(which)) is None:
                continue
            try:
                await work(job)
            except (Conflict, Invalid, NotFound, UnreadableRecord) as error:
                log.info("fleet.record_moved_on", job="/".join(which), error=str(error))
                await job.telling.of_record(job.own, error)
            except (ApiError, NoAnswer) as error:
                failed.add(which[0])
                self._unread.add(which)
                log.warning("fleet.not_answered", job="/".join(which), error=str(error))
            else:
                self._unread.discard(which)

    async def _give_up(self, job: FleetJob, member: str, note: str, waited: float, reached: set[str]) -> None:
        stored = await job.own.read()
        dispatch = dispatch_of(stored)
        promised = dispatch.stops_after_seconds
        if not _has(dispatch, member) or not promised:
            return
        # The copy keeps its grace, whatever its job has come to say since.
        needed = surely_stopped_seconds(promised, dispatch.grace_seconds or longest_grace_seconds(stored.get("spec")))
        if waited < needed:
            return
        # After the job: as long as this very note stands, nobody has renewed the Lease.
        silent = await lost.noted(self._fleet.api, lost.SILENT)
        if silent.get(member) != note or not await self._silent_by_all_names(job, dispatch, silent, needed, reached):
            return
        if member not in await lost.noted(self._fleet.api):
            await lost.note(self._fleet.api, member, time_text(int(self._fleet.clock.now())))
        gone = dispatch.lost(f"nothing was heard from {member} for {waited:.0f} s")
        await job.own.write(stored, gone)
        await job.telling.leaves(stored, gone)

    async def _silent_by_all_names(
        self, job: FleetJob, dispatch: Dispatch, notes: Mapping[str, str], seconds: float, reached: set[str]
    ) -> bool:
        """Return whether each name that may lead to a gang's cluster has been noted as silent for so long.

        ``reached`` are those that may by what was seen of another gang: they are not asked again for this one.
        """
        if not self._fleet.members_known:
            return False
        now = asyncio.get_running_loop().time()
        members = self._fleet.members.values()
        named = {each.name for each in members if _may_lead_to(dispatch.cluster, each)} | set(self._fleet.unjoined)
        for name in sorted(named):
            known, note = self._known.get(name), notes.get(name, "")
            noted = known is not None and note and known.note == (note, self._fleet.set_backs)
            if known is not None and noted and now - known.since >= seconds:
                continue
            if name in reached:
                return False
            if not await self._has_nothing(name, job, dispatch):
                reached.add(name)
                log.warning("fleet.not_given_up", job="/".join((job.namespace, job.name)), may_be_reached_by=name)
                return False
        return True

    async def _has_nothing(self, name: str, job: FleetJob, dispatch: Dispatch) -> bool:
        """Return whether a member answers, and has nothing of a gang: neither its copy nor what may be left of that."""
        if (member := self._fleet.members.get(name)) is None:
            return False
        try:
            if await member.cluster() != dispatch.cluster:
                return True
            # The name of the job alone is told: whoever knows the copy's uid could say that it has that copy.
            return not (await job.names.shows(name, dispatch) or await member.leftovers([job.own.which]))
        except NoAnswer:
            return False


def _promises_less(dispatch: Dispatch, cluster: str, seconds: int) -> bool:
    return dispatch.cluster == cluster and dispatch.holds and 0 < dispatch.stops_after_seconds < seconds


def _has(dispatch: Dispatch, member: str) -> bool:
    return dispatch.member == member and dispatch.holds


def _may_lead_to(cluster: str, member: Member) -> bool:
    """Return whether a member's name leads to a cluster, or may have come to: it has not answered for a while."""
    since, now = member.health.failing_since, asyncio.get_running_loop().time()
    return member.uid in ("", cluster) or (since is not None and now - since >= FAILING_SECONDS)


async def _answers(member: Member) -> bool:
    # What was asked just before may have been refused a moment's answer by something in it that hangs.
    await member.health.rested()
    try:
        await member.cluster()
    except NoAnswer:
        return False
    return True
