"""The sweeps of a hub's members: every copy there that no record speaks of is settled (rule P4).

A member is swept before anything from before is offered, and every few seconds from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from webhook.core.fleet import strays
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy
from webhook.core.fleet.strays import Verdict
from webhook.core.fleet.text import UnreadableRecord
from webhook.core.model.gang import GRACE_SECONDS_MAX
from webhook.core.notation.shortened import shortened
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from webhook.fleet import lost
from webhook.fleet.attempts import attempt
from webhook.fleet.home import Home
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.job import FleetJob
from webhook.fleet.jobs.own import OwnJob
from webhook.fleet.members.copies import FoundCopy, JobName, dispatch_of
from webhook.fleet.members.member import Member, Refused
from webhook.fleet.members.told import REASON_CHARACTERS
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import collection_path
from webhook.jobs.reading import status
from webhook.untyped import paths

log = structlog.get_logger(__name__)

_HUNG: Final = (0, 504)
"""HTTP statuses of what is not answered in time: of its kind nothing more is asked in this sweep."""
SWEEP_SECONDS: Final = 5.0
SWEEP_AGAIN_SECONDS: Final = 1.0
"""After which a member that answers is swept again while it must be before anything is offered."""


class Sweeper:
    """What one hub process sweeps its members with."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        kinds: Mapping[str, JobKind],
        jobs: Mapping[JobName, FleetJob],
        *,
        unlisted: Callable[[int], Awaitable[set[str]]],
        wake: Callable[[JobName], None],
        read_lost: Callable[[], Awaitable[None]],
        on_swept: Callable[[], None],
    ) -> None:
        """``unlisted`` as ``OwnJobsFeed.unlisted``; ``on_swept`` hears that what waited for a member may go on."""
        self._fleet, self._swept, self._home, self._kinds, self._jobs = fleet, fleet.swept, home, kinds, jobs
        self._unlisted, self._wake, self._read_lost, self._on_swept = unlisted, wake, read_lost, on_swept
        self._delayed: dict[str, set[JobName]] = {}
        """By member the gangs whose copies have kept it from counting as swept, which each of them does once."""

    def leave(self, name: str) -> None:
        """Forget a member that is none any more."""
        self._delayed.pop(name, None)

    async def keep_swept(self, member: Member) -> None:
        """Sweep a member for ever; sooner again while all offers wait for it, and what it had is on its way out."""
        while True:
            await attempt(partial(self._sweep_shown, member))
            waited_for = member.name in self._swept.due and not member.health.failure
            await asyncio.sleep(SWEEP_AGAIN_SECONDS if waited_for else SWEEP_SECONDS)

    async def _sweep_shown(self, member: Member) -> None:
        try:
            with member.rested_on("sweep"):
                await self._sweep(member)
        except Exception as error:
            self._swept.unended[member.name] = shortened(str(error), REASON_CHARACTERS) or type(error).__name__
            raise
        self._swept.unended.pop(member.name, None)
        await member.see_leader()

    async def _sweep(self, member: Member) -> None:
        """Settle every copy of this hub in a member that no record speaks of."""
        wanted, fleet, swept, name = self._sweep_wanted(member), self._fleet, self._swept, member.name
        # By their names leftovers in a member are found.
        unlisted = await self._unlisted(fleet.set_backs)
        swept.note_unlisted(unlisted)
        expected = {which for which, job in self._jobs.items() if job.own.runs_in(name)}
        # Up to what is left there: another cluster has none of it.
        with member.one_cluster():
            cluster, (copies, unseen) = await member.cluster(), await member.copies(self._kinds.values(), fleet.uid)
            before = swept.apart_in(name, cluster)
            # What is not shown has not gone.
            apart = {which: why for which, why in before.items() if which[0] in unseen}
            strange = list[FoundCopy]()
            for found in copies:
                which = _named(found)
                if which in expected and not wanted and self._jobs[which].own.runs_as_read(cluster, found.copy):
                    expected.discard(which)
                elif which[0] in unlisted:
                    apart[which] = "has a copy of it, and the hub cannot list its kind"
                else:
                    strange.append(found)
            # Kinds that are listed again are swept before any of their jobs are offered, as all was after the start.
            relisted = any(name in due for kind, due in swept.unlisted.items() if kind not in unlisted)
            relisted |= not swept.unseen_in(name, cluster).keys() <= unseen.keys()
            # Before it was swept nothing is offered to it, nor to another cluster to which its name leads now.
            first = relisted or not swept.is_done(name, cluster)
            verdicts, unsettled = await self._settle_all(member, cluster, strange, wanted=first)
            for which in sorted(each for each in expected if each[0] not in unseen):
                self._wake(which)
            # Whoever keeps a pod from going keeps no other gang waiting.
            known = [which for which in (self._jobs if wanted or relisted else before) if which[0] not in unseen]
            left = dict.fromkeys(
                await self._left(member, known), "still has pods of an earlier copy, or room reserved for it"
            )
        swept.set_apart(name, cluster, left | apart | unsettled)
        # What made it due again meanwhile may not have been there yet when its first part was read.
        if strays.swept(verdicts) and wanted == self._sweep_wanted(member):
            if wanted:
                await self._note_swept(member, cluster, unlisted, unseen)
            else:
                swept.note_done(name, cluster, unlisted, unseen)
                self._delayed.pop(name, None)
        if not member.knows_permits or member.health.trouble:
            await member.check()

    async def _settle_all(
        self, member: Member, cluster: str, copies: Collection[FoundCopy], *, wanted: bool
    ) -> tuple[list[Verdict], dict[JobName, str]]:
        """Settle copies; return what was done, and, each with why, the gangs that are to be set apart.

        ``wanted``: before anything is offered, of some kind or to this cluster at least.
        Raises AnotherHub, ApiError, NoAnswer.
        """
        verdicts, apart, hung = list[Verdict](), dict[JobName, str](), dict[str, str]()
        delayed = self._delayed.setdefault(member.name, set())
        # A member may list others each time. Of the hub's jobs one that comes and goes still delays the others once.
        gone = delayed - {_named(found) for found in copies}
        delayed -= {which for which in gone if which not in self._jobs}
        known = delayed if wanted else self._swept.apart_in(member.name, cluster)
        for found in copies:
            which = _named(found)
            if which[0] in hung:
                apart[which] = hung[which[0]]
                continue
            try:
                verdict, refused = await self._settle(member, cluster, found)
            except UnreadableRecord:
                # Its own steps tell of it. No other gang has to wait for somebody to mend it.
                apart[which] = "has a copy of it, but the record on the job cannot be read"
                continue
            except ApiError as error:
                # Where the hub's own cluster answers nothing at all, this raises too: that is no matter of one job.
                await self._home.check(self._fleet.uid)
                said = shortened(str(error), REASON_CHARACTERS)
                apart[which] = f"has a copy of it, and the hub cannot read the job: {said}"
                log.info("fleet.not_settled", member=member.name, job="/".join(which), error=said)
                hung |= {which[0]: apart[which]} if error.status in _HUNG else {}
                continue
            if verdict is not Verdict.KEEP and which in known:
                # Whoever changes it all the time, or refuses what settles it, does not hold up everybody.
                apart[which] = refused or "still has an earlier copy of it"
                continue
            verdicts.append(verdict)
            if wanted and verdict is not Verdict.KEEP:
                delayed.add(which)
        return verdicts, apart

    async def _left(self, member: Member, jobs: Iterable[JobName]) -> set[JobName]:
        """Return of which of these jobs pods or room are left in a member though the copy is gone."""
        known = [(self._kinds[kind], namespace, name) for kind, namespace, name in jobs]
        return await member.leftovers(known) if known else set()

    async def _note_swept(self, member: Member, cluster: str, unlisted: set[str], unseen: Mapping[str, str]) -> None:
        """Note that a member was swept that had to be. Raises ApiError, NoAnswer."""
        set_backs = self._fleet.set_backs
        if when := self._swept.lost.get(member.name):
            # With new credentials it may be due for another cluster by now, of which this sweep says nothing.
            with member.one_cluster():
                await lost.came_back(self._fleet.api, member.name, when)
                await self._read_lost()
            if member.name in self._swept.lost:
                # It was noted again meanwhile: only a sweep ends that note.
                return
            self._swept.forget_other_clusters(member.name, cluster)
        if set_backs == self._fleet.set_backs:
            self._swept.note_done(member.name, cluster, unlisted, unseen)
            self._delayed.pop(member.name, None)
            log.info("fleet.swept", member=member.name, but_for=sorted(unseen))
            self._on_swept()

    def _sweep_wanted(self, member: Member) -> tuple[int, str] | None:
        """Return since when a member has to be swept before anything is offered, in whatever form; None: it is."""
        if member.name not in self._swept.due:
            return None
        return self._fleet.set_backs, self._swept.lost.get(member.name, "")

    async def _settle(self, member: Member, cluster: str, found: FoundCopy) -> tuple[Verdict, str]:
        """Do with a copy what its record asks for; return KEEP where no gang of the hub has to wait for more.

        And in words that the member refuses it, where it does.
        Raises AnotherHub, ApiError, NoAnswer, UnreadableRecord.
        """
        try:
            return await self._settled(member, cluster, found), ""
        except (Conflict, Forbidden, Invalid, NotFound, Refused) as error:
            log.info("fleet.not_settled", member=member.name, job=f"{found.namespace}/{found.name}", error=str(error))
            refused = f"refuses to let an earlier copy of it go: {error}" if isinstance(error, Refused) else ""
            return Verdict.WAIT, refused

    async def _settled(self, member: Member, cluster: str, found: FoundCopy) -> Verdict:
        kind, namespace, name, copy = found
        if strays.leaves(copy):
            return Verdict.KEEP
        job = OwnJob(self._fleet, kind, namespace, name)
        own, dispatch = await self._record(kind, job, copy.job)
        apart = (kind.feed, namespace, name) in self._swept.apart_in(member.name, cluster)
        # A kind that is listed only now is settled as all was after the start.
        apart |= kind.feed in self._swept.unlisted or kind.feed in self._swept.unseen_in(member.name, cluster)
        swept = self._swept.is_done(member.name, cluster) and not apart
        complete = self._fleet.members_known and self._swept.knows_all_of(kind.feed)
        verdict = strays.verdict(copy, cluster, dispatch, swept=swept, complete=complete and not apart)
        if verdict is Verdict.ADOPT and dispatch is not None and _is_over(kind, own, copy, dispatch):
            verdict = Verdict.END
        if verdict is Verdict.WAIT and dispatch is not None:
            # The record is not behind where the very copy that it names has its permit: then any other may go. There
            # are two such copies only where a member was given up that was not lost.
            named = await self._fleet.permitted(kind, namespace, name, dispatch)
            verdict = verdict if named is None or named.deleting else Verdict.END
        if verdict in (Verdict.SWEEP, Verdict.END):
            await member.delete(kind, namespace, name, copy, as_read=verdict is Verdict.SWEEP)
            return Verdict.KEEP if dispatch is None else verdict
        if verdict is Verdict.REVOKE and await member.revoke(kind, namespace, name, copy) is not None:
            return Verdict.KEEP
        if verdict is Verdict.ADOPT and own is not None and dispatch is not None:
            promised = member.stops_after_seconds
            # What a list shows of a copy does not say how long its pods take.
            adopted = dispatch.adopted(
                copy.offer, member.name, cluster, copy.uid, promised, grace_seconds=GRACE_SECONDS_MAX
            )
            # Since it was listed its record may have left it, on proof that it is gone.
            if await self._fleet.permitted(kind, namespace, name, adopted) is None:
                return Verdict.WAIT
            await job.write(own, adopted)
        return verdict

    async def _record(self, kind: JobKind, job: OwnJob, uid: str) -> tuple[dict[str, Any] | None, Dispatch | None]:
        """Return the hub's job of this uid and its record, read after the copy; None where there is none."""
        try:
            own = await job.read()
        except NotFound:
            # Gone, or its whole kind is not served at the moment, which says nothing of the job: then this is NotFound.
            await self._fleet.api.request("GET", collection_path(kind), query={"limit": "1"})
            own = {}
        if paths.find(own, ("metadata", "uid")) != uid:
            await self._home.check(self._fleet.uid)
            return None, None
        return own, dispatch_of(own)


def _is_over(kind: JobKind, own: Mapping[str, Any] | None, copy: Copy, dispatch: Dispatch) -> bool:
    """Return whether a job of the hub has ended without this copy, which was given up.

    An operator in the hub may say so of a kind without ``managedBy`` while its copy runs on: that is believed only
    where the job was offered again since.
    """
    if own is None or dispatch.phase is not DispatchPhase.NOWHERE or status.finished(kind, own) is None:
        return False
    return kind.managed_by is not None or copy.offer < dispatch.offer


def _named(found: FoundCopy) -> JobName:
    return found.kind.feed, found.namespace, found.name
