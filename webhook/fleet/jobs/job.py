"""One job of the hub, from a look to the step that follows: reads and writes around ``core.fleet.steps``."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

import structlog

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.silence import longest_grace_seconds
from webhook.core.fleet.steps import (
    AfterFailure,
    HubStep,
    Wish,
    eligible,
    is_written_first,
    next_step,
    recalled,
    rests,
    why_not,
)
from webhook.errors import Conflict, Invalid
from webhook.fleet.jobs.allowance import Allowance
from webhook.fleet.jobs.asking.choice import (
    LOOKED_AT_SECONDS,
    OFFER_SECONDS,
    TOLD_SECONDS,
    WAITS_SECONDS,
    Choice,
    Target,
)
from webhook.fleet.jobs.asking.failed import Failed
from webhook.fleet.jobs.asking.meeting import lingers_seconds
from webhook.fleet.jobs.asking.patience import Patience
from webhook.fleet.jobs.asking.pauses import FIRST_SECONDS
from webhook.fleet.jobs.asking.refusal import Refusal
from webhook.fleet.jobs.cluster_names import ClusterNames
from webhook.fleet.jobs.dependencies.bringing import HubBusy
from webhook.fleet.jobs.events import QUEUE_MISSING, queue_missing
from webhook.fleet.jobs.fleet import Fleet, told_of
from webhook.fleet.jobs.granted import Granted
from webhook.fleet.jobs.leaving import Leaving
from webhook.fleet.jobs.own import OwnJob
from webhook.fleet.jobs.own_copy import OwnCopy
from webhook.fleet.jobs.proving import Proving
from webhook.fleet.jobs.showing import Showing
from webhook.fleet.jobs.stopped import Stopped
from webhook.fleet.jobs.telling import Telling
from webhook.fleet.members.copies import is_stopped, stops_nobody, why_over, why_unwanted, wish_of
from webhook.fleet.members.member import Look, Member, NoAnswer, Refused
from webhook.fleet.members.seen import News, Seen, news
from webhook.fleet.members.shown import cleared
from webhook.fleet.members.told import HUB, Waits
from webhook.fleet.policies.propagation import Applying
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import status
from webhook.jobs.reading.gating import queue_label

log = structlog.get_logger(__name__)

LOOKS: Final = 2
"""At one step, where the record is not what was known of it."""
REST_SECONDS: Final = 60.0
"""After which a gang is looked at that waits for nothing: it runs and is seen by each sweep, or it is not to run."""
UNSEEN_SECONDS: Final = 3.0
"""So long an offer stays with a member that does not answer: another process may reach it, which made the offer."""
CONTESTED_SECONDS: Final = 4 * UNSEEN_SECONDS
"""After another process offered a gang to a member that does not answer here: it may take it away again."""
REPEATED: Final = (HubStep.CREATE, HubStep.SWEEP, HubStep.PERMIT, HubStep.DELETE)
"""Steps that come again at once where the member refuses what they write."""


class FleetJob:
    """One job of the hub. What it remembers may be lost at any time: the record on the job is what counts."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str, name: str) -> None:
        self._fleet = fleet
        self._kind, self.namespace, self.name, self._which = kind, namespace, name, (kind.feed, namespace, name)
        self.own = OwnJob(fleet, kind, namespace, name)
        self.last_read, self.looks = self.own.last_read, Allowance()
        self._offered: tuple[Dispatch, float] | None = None
        """The offer that is open, and since when it was seen to be."""
        self._contested_until = -inf
        self.waits_for = ""
        """The member whose ledger decides what comes next."""
        self.look_at_seconds = inf
        """Loop time at which to look, for no watch shows what comes next: pods that go, a member that answers again."""
        self.rests_until = 0.0
        """Loop time before which no look is needed that nothing has asked for."""
        self.choice = Choice()
        self._refusals: dict[str, str] = {}
        """Members that could not be asked at the last look, and why."""
        self._never = False
        """By what was heard so far it can start in no member, whatever ends."""
        self._applying = Applying()
        self._uncounted = ""
        """Why it is offered to nobody: it names no queue, and no queue of the hub has given it a slot."""
        self._queue = ""
        """Its LocalQueue, whose check may name the members that will do."""
        self._proving, self._patience, self._refusal, self._leaving = Proving(), Patience(), Refusal(), Leaving()
        self.names, self._stopped = ClusterNames(fleet, kind, namespace, name), Stopped(fleet, namespace)
        self._failed, self.telling = Failed(fleet, self.names), Telling(fleet, kind, namespace, self.names)
        self._granted = Granted(self._refusal, self._failed, self._stopped)
        self._showing = Showing(kind, self.own, self.telling)
        self._copy = OwnCopy(
            fleet, kind, namespace, name, last_read=self.last_read, showing=self._showing, telling=self.telling
        )

    async def step(self) -> HubStep:
        """Look, and take one step; NOTHING when there is none, or a watch will show what comes of it.

        Raises ApiError, UnreadableRecord.
        """
        self.last_read.begin()
        self.rests_until = 0.0
        for _ in range(LOOKS):
            before = self.own.record
            found, ahead = await self._look_twice(before)
            # The member first, the record after it: what the record does not say then was not decided before the look.
            job = await self.own.read(is_written=is_written_first(before, None if found is None else found.sight))
            dispatch = self.own.take(job)
            if before.holds and not dispatch.holds and dispatch.offer == before.offer:
                await self.telling.leaves(job, dispatch)
            if settled := dispatch.facts == before.facts:
                break
        self.waits_for = dispatch.member if dispatch.phase in (DispatchPhase.OFFERED, DispatchPhase.RECALLED) else ""
        self.look_at_seconds = self._leaving.look_at(dispatch) if dispatch.phase is DispatchPhase.RECALLED else inf
        if not settled:
            return HubStep.NOTHING
        if found is not None and found.sight.copy is not None:
            self.last_read.copy(found.sight.copy.uid, found.sight.copy.version)
        found = self._failed.look(dispatch, found)
        sight = None if found is None else found.sight
        job = await self._showing.without_strange_end(job, dispatch, sight)
        wish = wish_of(self._kind, job, self._fleet.uid)
        self.look_at_seconds = min(self.look_at_seconds, await self.telling.held_up(job, dispatch, sight))
        self._applying.look(self._fleet.propagations, job)
        self._queue, self._uncounted = queue_label(job, self._kind) or "", self._fleet.why_uncounted(job)
        target = await self._target(wish, dispatch, found, ahead)
        after = await self._after_failure(wish, dispatch, found)
        moves, complete = target is not None, self._fleet.members_known and not self._left_in()
        step = next_step(wish, dispatch, sight, moves=moves, complete=complete, after_failure=after)
        try:
            if name := await self.names.new_name_due(dispatch, sight):
                await self.own.write(job, dispatch.known_as(name))
                return HubStep.FOLLOW
            self.look_at_seconds = min(self.look_at_seconds, self.names.look_at_seconds)
            step = await self._take(step, job, dispatch, found, target)
            self.last_read.end()
            if step is HubStep.NOTHING and rests(wish, self.own.record, sight):
                self.rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            return step
        except (Conflict, Invalid) as error:
            log.info("fleet.record_moved_on", job=f"{self.namespace}/{self.name}", step=step, error=str(error))
            await self.telling.of_record(self.own, error)
            return HubStep.NOTHING

    def knows(self, old: Seen | None, new: Seen | None) -> bool:
        """Return whether no look is needed for a state of its copy that a watch shows, or only later: that is noted."""
        if new is not None and self.last_read.has_copy(new.uid, new.resource_version):
            return True
        if old is None or new is None or old.uid != new.uid or self._patience.for_status:
            return False
        changed = news(old.marks, new.marks)
        if changed is News.STATUS:
            self.look_at_seconds = min(self.look_at_seconds, due := self._showing.wait_until())
            return due < inf
        return changed is News.NOTHING

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look(self, member: str, phase: DispatchPhase = DispatchPhase.NOWHERE) -> Look | None:
        try:
            return await self._fleet.member(member).look(self._kind, self.namespace, self.name, phase)
        except NoAnswer as error:
            log.debug("fleet.no_answer", error=str(error))
            return None

    async def _look_twice(self, before: Dispatch) -> tuple[Look | None, dict[str, Look | None]]:
        """Look at the member that a record names, and meanwhile at that in which something has ended."""
        freed = self.choice.freed_in
        if before.phase is not DispatchPhase.OFFERED or freed in ("", before.member) or self._fleet.hesitance(freed):
            return await self._look(before.member, before.phase), {}
        found, ahead = await asyncio.gather(self._look(before.member, before.phase), self._look(freed))
        return found, {freed: ahead}

    async def _target(
        self, wish: Wish, dispatch: Dispatch, found: Look | None, ahead: Mapping[str, Look | None]
    ) -> Target | None:
        """Return where to offer the gang now; None to leave it where it is. ``ahead``: members looked at already."""
        self._refusals, self._never = {}, False
        if not wish.runs:
            # What members said is of another time once it is wanted again.
            self.choice = Choice()
            return None
        if dispatch.holds and not self._patience.is_over(dispatch, found):
            self.look_at_seconds = min(self.look_at_seconds, self._patience.look_at_seconds)
            return None
        if self._uncounted:
            self._refusals[HUB] = self._uncounted
            return None
        if (candidates := self._candidates(dispatch)) <= self._fleet.tried(dispatch.failed):
            # All have had their try, or a name has just been given to another cluster.
            await self._fleet.see_clusters(candidates)
            candidates = self._candidates(dispatch)
        self._never = bool(candidates) and candidates <= self.choice.never and not self._fleet.silent
        paused = self.choice.pauses.at(asyncio.get_running_loop().time())
        self._refusals, candidates = {**paused, **self._refusals}, candidates - paused.keys()
        if HUB in paused:
            return None
        if left_in := told_of(self._left_in(), dispatch.member):
            self._refusals |= left_in
            return None
        if dispatch.member and dispatch.member not in self._fleet.members:
            self._refusals[dispatch.member] = "is not a member of this hub"
        # Those that did not answer when they were last asked would keep it from the others.
        answer_not = {name for name in candidates if self._fleet.members[name].health.passed_by}
        self._refusals |= {name: self._fleet.why_not(wish, name, None) for name in answer_not - {dispatch.member}}
        turn = sorted(await self._turn(wish, dispatch, found, candidates, answer_not), key=self._fleet.hesitance)
        if dispatch.member in candidates and (why := self._fleet.why_not(wish, dispatch.member, found)):
            self._refusals[dispatch.member] = why
        for name in turn:
            look = ahead[name] if name in ahead else await self._look(name)
            self._refusals[name] = why = why_not(wish, None if look is None else look.sight)
            if look is not None and not why:
                if not (why := self._fleet.swept.why_not_done(name, look.sight.cluster)):
                    return Target(name, look.sight.cluster, look.object is None)
                self._refusals[name] = why
                continue
            if (member := self._fleet.members.get(name)) is not None and not member.health.failure:
                self.choice.unfit(name)
        return None

    def _left_in(self) -> dict[str, str]:
        left = self._fleet.swept.left_in(self._which, self.own.came_after)
        return {**left, HUB: self._fleet.unread} if self._fleet.unread else left

    def _candidates(self, dispatch: Dispatch) -> set[str]:
        """Return the members that the gang's policy allows and in which it has not failed; note why not the others."""
        rules, tried = (self._applying.policy, self.namespace, self._queue), self._fleet.tried(dispatch.failed)
        self._refusals, self.choice.ranks = self._fleet.left_out(*rules), self._fleet.ranks(self._applying.policy)
        allowed, later = self._fleet.members.keys() - self._refusals.keys(), self._fleet.may_come(*rules)
        if (fresh := allowed - tried) or later.keys() - tried:
            self._refusals |= dict.fromkeys(allowed - fresh, "has failed to run it before") | ({} if fresh else later)
            return fresh
        return allowed

    async def _after_failure(self, wish: Wish, dispatch: Dispatch, found: Look | None) -> AfterFailure:
        """Return what a gang does that has failed: each member it may run in is tried once, if its policy says so."""
        copy = None if found is None or dispatch.phase is not DispatchPhase.GRANTED else found.sight.copy
        if found is None or copy is None or not copy.failed or not wish.runs:
            return AfterFailure.END
        why, policy = status.why_failed(self._kind, found.object or {}), self._applying.policy
        if self._fleet.unread:
            return self._failed.held_up(why, self._fleet.unread)
        if policy.toleration_seconds is None:
            return AfterFailure.END
        others = await self._failed.others(dispatch, policy, self.namespace, self._queue)
        after = await self._failed.after(wish, dispatch, policy, others, self._look, why=why, left_in=self._left_in())
        self.look_at_seconds = min(self.look_at_seconds, self._failed.look_at_seconds)
        return after

    async def _turn(
        self, wish: Wish, dispatch: Dispatch, found: Look | None, candidates: set[str], answer_not: set[str]
    ) -> list[str]:
        """Return the members to ask, the best first; none while the one that has the offer may still take it."""
        if dispatch.phase is DispatchPhase.OFFERED:
            now, others = asyncio.get_running_loop().time(), candidates - answer_not
            unseen = found is None or found.sight.cluster != dispatch.cluster
            if self._offered is None or self._offered[0].offer != dispatch.offer:
                self._offered = dispatch, now
                self._contested_until = now + CONTESTED_SECONDS if unseen else self._contested_until
            age = now - self._offered[1]
            if found is None or unseen:
                if age < UNSEEN_SECONDS:
                    self.look_at_seconds = now + UNSEEN_SECONDS - age
                    return []
            elif eligible(wish, found.sight):
                waits = found.sight.reserved or (
                    not self.choice.moves(dispatch.member, others) and await self._stays(dispatch, found, age, others)
                )
                return [] if waits else self.choice.in_turn(dispatch.member, others, told_no=True)
        return self.choice.in_turn(dispatch.member, candidates - answer_not if dispatch.holds else candidates)

    async def _stays(self, dispatch: Dispatch, found: Look, age: float, members: set[str]) -> bool:
        """Hear the member that has the offer, which answers; return whether it is to keep it."""
        now, copy = asyncio.get_running_loop().time(), found.sight.copy
        told = Waits(self._refusal.words(dispatch))
        if age < LOOKED_AT_SECONDS:
            # Soon its member says why it waits, which no watch shows.
            self.look_at_seconds = now + max(0.0, TOLD_SECONDS - age)
        if copy is not None and age >= TOLD_SECONDS:
            with contextlib.suppress(NoAnswer):
                told = await self._fleet.member(dispatch.member).told.why_waiting(self.namespace, copy.uid)
        member = self._fleet.members.get(dispatch.member)
        if age >= OFFER_SECONDS and not told.why and member is not None:
            # Its Tutti may be down: gangs that another member can have should not wait for it, one after another.
            member.health.took(age)
        self.choice.hears(dispatch.member, told, self._fleet.clock.now())
        spared = copy is not None and copy.offer == dispatch.offer and stops_nobody(found.object)
        age -= lingers_seconds(self._kind, found.object, dispatch)
        return not self.choice.gives_up(
            dispatch.member, age, told.why, members, stopped_nobody=spared, contested=now < self._contested_until
        )

    # -- acting -------------------------------------------------------------------------------------------------------

    async def _take(
        self, step: HubStep, job: dict[str, Any], dispatch: Dispatch, found: Look | None, target: Target | None
    ) -> HubStep:
        copy, member = None if found is None else found.sight.copy, self._fleet.members.get(dispatch.member)
        kind, namespace, name = self._kind, self.namespace, self.name
        if step in REPEATED and self._refused(dispatch).rests(dispatch, asyncio.get_running_loop().time()):
            step = HubStep.NOTHING
        try:
            match step:
                case HubStep.OFFER if target is not None:
                    return await self._offer(job, dispatch, copy, target)
                case HubStep.WITHDRAW:
                    await self.own.write(job, dispatch.withdrawn(why_unwanted(kind, job)))
                    await self._copy.leave(dispatch, copy)
                case HubStep.CREATE:
                    if await self._create(job, dispatch):
                        return self._watches(dispatch)
                case HubStep.SWEEP if member is not None and copy is not None:
                    await member.delete(kind, namespace, name, copy, as_read=True)
                case HubStep.GRANT if copy is not None and self._patience.moves_on(copy, found):
                    self.look_at_seconds, self.own.known = self._patience.look_at_seconds, job
                    return HubStep.NOTHING
                case HubStep.GRANT if copy is not None and found is not None:
                    promised = self._fleet.member(dispatch.member).stops_after_seconds
                    granted = dispatch.granted(copy.uid, copy.version, promised, longest_grace_seconds(found.object))
                    await self.own.write(job, granted)
                    if await self._permit(job, granted, found):
                        return self._watches(granted)
                case HubStep.PERMIT:
                    if await self._permit(job, dispatch, found):
                        return self._watches(dispatch)
                case HubStep.REPORT:
                    job = await self._showing.report(job, found)
                    if why_unwanted(kind, job):
                        ended = recalled(dispatch, copy, f"it has ended in {dispatch.member}")
                        await self._copy.delete(await self.own.write(job, ended), dispatch, found)
                case HubStep.RECALL | HubStep.FAIL_OVER:
                    why = await self._why_recalled(job, dispatch, copy)
                    leaves = recalled(dispatch, None if is_stopped(kind, job) else copy, why, self._failed.noted)
                    await self._copy.delete(await self.own.write(job, leaves), dispatch, found)
                case HubStep.DELETE:
                    await self._copy.delete(job, dispatch, found)
                case HubStep.PROVE if member is not None and found is not None:
                    return await self._prove(job, member, dispatch, found)
                case _:
                    job = await self._say_why(job, dispatch, found)
                    self.look_at_seconds = min(await self._showing.mirror(job, dispatch, found), self.look_at_seconds)
                    if dispatch.phase is DispatchPhase.NOWHERE and (left := cleared(kind, job)) is not None:
                        await self._showing.store(job, left)
                    return HubStep.NOTHING
        except Refused as error:
            self._hears(error)
            return step
        except NoAnswer as error:
            log.info("fleet.no_answer", step=step, error=str(error))
            self.look_at_seconds = 0.0
            return HubStep.NOTHING
        return step

    async def _offer(self, job: dict[str, Any], dispatch: Dispatch, copy: Copy | None, target: Target) -> HubStep:
        """Offer it to another member. Raises NoAnswer."""
        epoch, name = max(self._fleet.epoch, dispatch.offer.epoch), target.member
        elsewhere, said = self._elsewhere(name), self.choice.word(name, {})
        offered = dispatch.offered(epoch, name, target.cluster, elsewhere, said, never=self._never)
        await self.own.write(job, offered)
        self.telling.said(offered)
        self._offered = offered, asyncio.get_running_loop().time()
        self.choice.offered()
        creates = self._create(job, offered) if target.empty else asyncio.sleep(0, False)
        # If nothing could be created the deletion ends by itself: it is of the copy as it was read.
        created, _ = await asyncio.gather(creates, self._copy.leave(dispatch, copy))
        return self._watches(offered) if created else HubStep.OFFER

    def _watches(self, dispatch: Dispatch) -> HubStep:
        """Look again when its member shows what it does with a copy as it was just written; or says why it waits."""
        self.waits_for = ""
        self._refusal.over()
        if dispatch.phase is DispatchPhase.OFFERED:
            now = asyncio.get_running_loop().time()
            self.waits_for, self._offered, self.look_at_seconds = dispatch.member, (dispatch, now), now + TOLD_SECONDS
        return HubStep.NOTHING

    async def _why_recalled(self, job: Mapping[str, Any], dispatch: Dispatch, copy: Copy | None) -> str:
        if why := why_unwanted(self._kind, job):
            return why
        did = await self._granted.why_recalled(dispatch, copy)
        refused, member = self._refusal.of_permit(dispatch, copy), dispatch.member
        now, unix_now = asyncio.get_running_loop().time(), self._fleet.clock.now()
        if refused and self._refusal.is_hubs:
            # Any other member would keep room for it, and not get its permit either.
            why = f"could not permit it in {member} ({refused})"
            self.choice.pauses.begin(HUB, dispatch.offer, why, now, unix_now, most_seconds=FIRST_SECONDS)
            return f"{member} {did}"
        # What was done to this copy there may be done to the next one.
        self.choice.failed_by(member, did)
        if refused:
            self.choice.pauses.begin(member, dispatch.offer, did, now, unix_now)
        return f"{member} {did}"

    def _hears(self, refused: Refused) -> None:
        """Take in why its member did not take what was written there last, or the hub could not write it."""
        record = self.own.record
        # What was only offered is offered to another member at once, if there is one; once its permit is refused, the
        # member gives the room back in time, and is asked after the others then.
        now, is_hubs = asyncio.get_running_loop().time(), isinstance(refused, HubBusy)
        self._refused(record).heard(record, str(refused), now, is_hubs=is_hubs)

    def _refused(self, dispatch: Dispatch) -> Refusal:
        return self._leaving.refusal if dispatch.phase is DispatchPhase.RECALLED else self._refusal

    async def _say_why(self, job: dict[str, Any], dispatch: Dispatch, found: Look | None) -> dict[str, Any]:
        """Write why a gang is nowhere, or still waits in the member that was asked, or is in the one that it leaves;
        return the job as it is then. Raises NoAnswer.
        """
        if dispatch.phase is DispatchPhase.NOWHERE:
            told = self._elsewhere("") if self._refusals else ()
            stays = why_over(self._kind, job) or self._fleet.unread
            by = dispatch.suspended_by if stays else self._applying.policy.suspends
            job = await self._note(job, dispatch, dispatch.still_nowhere(told, by))
            if self._uncounted and self._refusals:
                await self.telling.hourly(QUEUE_MISSING, lambda now: queue_missing(self._kind, job, now))
        elif dispatch.phase is DispatchPhase.OFFERED and self._offered is not None:
            if asyncio.get_running_loop().time() >= self._offered[1] + WAITS_SECONDS:
                waits = self.choice.word(dispatch.member, self._refusals) or dispatch.waits
                elsewhere = self._elsewhere(dispatch.member) or dispatch.elsewhere
                noted = replace(dispatch, waits=waits, elsewhere=elsewhere, never=self._never)
                job = await self._note(job, dispatch, noted)
        elif dispatch.phase is DispatchPhase.GRANTED and found is not None:
            job = await self._say_why_not_there(job, dispatch, found.sight)
        elif dispatch.phase is DispatchPhase.RECALLED and found is not None and found.sight.cluster == dispatch.cluster:
            member = self._fleet.member(dispatch.member)
            if said := await self._leaving.words(member, self.namespace, dispatch, found):
                job = await self._note(job, dispatch, replace(dispatch, waits=said))
                await self.telling.kept(job, found.sight, dispatch, said)
        return job

    async def _say_why_not_there(self, job: dict[str, Any], dispatch: Dispatch, sight: Sight) -> dict[str, Any]:
        """Write why a gang does not run in the member that has it, or no longer, once it does; return the job."""
        said = await self._granted.words(dispatch, sight)
        self.look_at_seconds = min(self.look_at_seconds, self._granted.look_at_seconds)
        if said is None:
            return job
        job, copy = await self._note(job, dispatch, replace(dispatch, waits=said)), sight.copy
        if said and self.own.record.waits == said and copy is not None and copy.permitted:
            await self.telling.halted(job, self.own.record, self._granted.which, failed=copy.failed)
        return job

    async def _note(self, job: dict[str, Any], dispatch: Dispatch, noted: Dispatch) -> dict[str, Any]:
        """Write what people are to read of it, if that is worth a write; return the job as it is then."""
        if self.telling.says(dispatch, noted):
            job = await self.own.write(job, noted)
            self.telling.said(noted)
        return job

    async def _create(self, job: dict[str, Any], dispatch: Dispatch) -> bool:
        spares = len(self._candidates(dispatch)) > 1 and not self.choice.stops_others
        return await self._copy.create(job, dispatch, stops_nobody=spares)

    async def _permit(self, job: Mapping[str, Any], dispatch: Dispatch, found: Look | None) -> bool:
        return await self._copy.permit(job, dispatch, found, brings=self._applying.policy.brings)

    async def _prove(self, job: dict[str, Any], member: Member, dispatch: Dispatch, found: Look) -> HubStep:
        if not await self._proving.complete(member, (self._kind, self.namespace, self.name), dispatch, found.sight):
            await self._say_why(job, dispatch, found)
            return HubStep.NOTHING
        if self._proving.proves(dispatch):
            await self.own.write(job, dispatch.proven_gone())
        return HubStep.PROVE

    def _elsewhere(self, member: str) -> tuple[str, ...]:
        """Return why it is in none of the others, as far as they are members."""
        return self.choice.told(self._refusals, self._fleet.members, member)
