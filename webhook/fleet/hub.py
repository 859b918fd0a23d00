"""All jobs of a hub, each driven by itself.

A job is asked for its next step, until there is none, when a watch has shown something of it (``watching``), and every
few seconds in case none did. A member that hangs delays the steps of its own gangs; offers pass it by. Any number of
hub processes may run at once: the record on each job is what they agree by.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

import structlog

from webhook import metrics
from webhook.clock import Clock
from webhook.core.fleet.steps import HubStep
from webhook.core.fleet.text import UnreadableRecord
from webhook.errors import ApiError, NotFound
from webhook.fleet import lost, watching
from webhook.fleet.attempts import attempt
from webhook.fleet.dead_man import RENEW_SECONDS, DeadMan
from webhook.fleet.home import Home
from webhook.fleet.jobs.fleet import Fleet
from webhook.fleet.jobs.job import REST_SECONDS, FleetJob
from webhook.fleet.members.copies import JobName
from webhook.fleet.members.member import Member
from webhook.fleet.members.seen import Seen
from webhook.fleet.policies.propagation import Propagation
from webhook.fleet.sweeping import Sweeper
from webhook.jobs.kinds.kind import JobKind
from webhook.kube.api import Api
from webhook.kube.informer import Informer

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.5
"""How often the hub's API server is asked where it stands, and what no watch would tell is looked at."""
AGAIN_SECONDS: Final = 5.0
"""After which every job is looked at that waits for something, whatever the watches say."""
STEPS_MAX: Final = 20
"""Of one job at a look."""


class Hub:
    """One hub process."""

    def __init__(
        self,
        api: Api,
        members: Mapping[str, Api],
        kinds: Mapping[str, JobKind],
        *,
        clock: Clock,
        rng: Random,
        hides_neighbours: bool = False,
        dead_man: bool = False,
    ) -> None:
        self.kinds = {each.feed: each for kind in kinds.values() if kind.dispatchable for each in kind.every_version}
        reached = {name: Member(name, member, hides_neighbours=hides_neighbours) for name, member in members.items()}
        self.fleet, self._home = Fleet(api, reached, clock), Home(api, self.kinds.values())
        self.fleet.swept.make_due(reached)
        self._rng = rng
        self._own = watching.OwnJobsFeed(api, self.kinds.values(), self._changed, rng=rng)
        self._propagations = watching.PropagationFeed(api, self._propagation_changed, rng=rng)
        self.set_up = watching.SetUpFeed(api, partial(self._propagation_changed, None), rng=rng)
        self._rules: list[Informer[Any]] = [*self._propagations.informers, *self.set_up.informers.values()]
        self._propagations_changed, self._propagations_read = True, False
        """Until it was read what users want, nothing is offered, and nothing has failed."""
        self._suspends = True
        """Some policy suspends dispatching, which is written on the jobs that it is of."""
        self._rules_rest_until = self._began = 0.0
        self._hides_neighbours = hides_neighbours
        self._following: dict[str, asyncio.Task[None]] = {}
        """What looks at each member, while the hub runs."""
        self._named = asyncio.Event()
        """The hub's uid is known, and with it what its copies are labelled by."""
        self._lost_read_since = 0
        """After how many of them it was read which members are lost."""
        self._jobs: dict[JobName, FleetJob] = {}
        self._dead_man = DeadMan(self.fleet, self._jobs, rng) if dead_man else None
        self._sweeper = Sweeper(
            self.fleet,
            self._home,
            self.kinds,
            self._jobs,
            unlisted=self._own.unlisted,
            wake=self._wake,
            read_lost=self._read_lost,
            on_swept=self._look_again,
        )
        self._driven: dict[JobName, asyncio.Task[None]] = {}
        self._copies: dict[str, dict[str, JobName]] = {}
        """Of which job each copy in a member is, by the member and the copy's uid."""
        self._woken: dict[JobName, list[Callable[[], bool]]] = {}
        """Jobs of which something was shown while they were looked at, and whether the look has read it."""
        self._unreadable: set[JobName] = set()
        """Jobs whose record could not be read at the last look."""
        self._again_seconds = 0.0
        self._offers = False
        """As of the last tick: nothing is waited for before anything is offered."""
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def problems(self) -> list[str]:
        """What keeps it from placing jobs, or those of some kind."""
        if not self.fleet.uid:
            return ["its own API server has not answered yet"]
        unread = watching.why_unread(self._rules, watching.UNREAD_SECONDS)
        return [*([unread] if unread else []), *self._own.problems]

    async def run(self) -> None:
        """Place jobs until cancelled. Raises AnotherHub, in a group."""
        watches: list[Informer[Any]] = [*self._own.informers.values(), *self._rules]
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._for_ever(self._tick, TICK_SECONDS), name="jobs")
                if self._dead_man is not None:
                    absent = self._for_ever(self._dead_man.look_at_absent, RENEW_SECONDS)
                    tasks.create_task(absent, name="members that were taken away")
                for informer in watches:
                    tasks.create_task(informer.run(), name=informer.name)
                for member in self.fleet.members.values():
                    self._begin(member)
        finally:
            self._tasks = None
            self._own.close()
            for task in self._driven.values():
                task.cancel()
            for member in self.fleet.members.values():
                member.stop()

    def join(self, name: str, api: Api) -> Member:
        """Take in a new member, which is swept before anything is offered (rule P4)."""
        member = self.fleet.members[name] = Member(name, api, hides_neighbours=self._hides_neighbours)
        self.fleet.swept.make_due([name])
        if self._dead_man is not None:
            self._dead_man.join(name)
        self._begin(member)
        return member

    def leave(self, name: str) -> Member:
        """Stop asking a member, and return it; gangs that it has wait until it is back or declared lost (rule P3)."""
        if (following := self._following.pop(name, None)) is not None:
            following.cancel()
        self.fleet.swept.leave(name)
        self.fleet.silent.discard(name)
        self._sweeper.leave(name)
        self._copies.pop(name, None)
        left = self.fleet.members.pop(name)
        left.stop()
        left.health.leave()
        return left

    def _begin(self, member: Member) -> None:
        member.health.follow()
        if self._tasks is not None:
            self._following[member.name] = self._tasks.create_task(self._follow(member), name=member.name)

    async def _follow(self, member: Member) -> None:
        """Watch and sweep one member."""
        await self._named.wait()
        copies = self._copies[member.name] = {}
        woken = partial(self._wake_waiting, member.name)
        watches = [*watching.ledger(member, woken, name=member.name, rng=self._rng)]
        changed = partial(self._copy_changed, copies)
        watches += watching.copies(
            member, self.kinds.values(), self.fleet.uid, changed, name=member.name, rng=self._rng
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweeper.keep_swept(member), name=f"{member.name} sweep")
            if self._dead_man is not None:
                renewing = self._for_ever(partial(self._dead_man.look, member), RENEW_SECONDS)
                tasks.create_task(renewing, name=f"{member.name} lease")
                lengthening = self._for_ever(partial(self._dead_man.lengthen, member), RENEW_SECONDS)
                tasks.create_task(lengthening, name=f"{member.name} promise")
            for informer in watches:
                tasks.create_task(informer.run(), name=informer.name)

    async def _for_ever(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await attempt(work)
            await asyncio.sleep(seconds)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        if not self.fleet.uid:
            self.fleet.uid = await self._home.uid()
            # By now the clock is the one that hubs before this one had: an epoch of theirs is not used again.
            self.fleet.epoch = int(self.fleet.clock.now())
            self._named.set()
        await self._notice_set_back()
        waited = asyncio.get_running_loop().time() - self._began
        if (unread := watching.why_unread(self._rules, waited)) is None:
            return
        if self.fleet.unread != unread:
            # What was taken before was a part of it.
            self._rules_rest_until = 0.0
        self._take_rules()
        self.fleet.unread = unread
        self._propagations_read = True
        self._propagations.read_left_out(asyncio.get_running_loop().time())
        now, offered = asyncio.get_running_loop().time(), self._offers
        self._offers = self.fleet.members_known and self.fleet.swept.complete
        if due := now >= self._again_seconds or (self._offers and not offered):
            self._again_seconds = now + AGAIN_SECONDS
            await self._home.check(self.fleet.uid)
            await self._read_lost()
        # That of which the newest version was read shows a set-back, however much was written since.
        newest = max(self._jobs, key=lambda which: self._jobs[which].last_read.newest, default=None)
        for which, job in sorted(self._jobs.items()):
            if job.look_at_seconds <= now or (due and (now >= job.rests_until or which == newest)):
                self._wake(which)

    def _take_rules(self) -> None:
        """Have jobs placed by what users want now: who submits a job has often said so just before.

        Whoever changes one of many policies all the time takes no more than a tenth of the hub's time by that.
        """
        now = asyncio.get_running_loop().time
        if self._propagations_changed and (began := now()) >= self._rules_rest_until:
            self.fleet.set_up = self.set_up.set_up()
            self.fleet.propagations = self._propagations.policies()
            self._suspends = any(each.suspends for policies in self.fleet.propagations.values() for each in policies)
            self._propagations_changed = False
            self._rules_rest_until = now() + 9 * (now() - began)

    async def _read_lost(self) -> None:
        """Learn which members were declared lost: none of them is waited for, and each is swept when it answers."""
        noted = await lost.noted(self.fleet.api)
        await self._notice_set_back()
        set_back = self._lost_read_since != self.fleet.set_backs
        self._lost_read_since = self.fleet.set_backs
        for name in self.fleet.swept.note_lost(noted, set_back=set_back):
            self.fleet.swept.make_due({name} & self.fleet.members.keys())
            log.warning("fleet.lost", member=name)

    def _look_again(self) -> None:
        """Look at every job at the next tick."""
        self._again_seconds = 0.0

    async def _notice_set_back(self) -> None:
        """Begin again as after a loss of the record when the hub's API server is at an earlier version than before."""
        if (version := await self._home.set_back_to()) is not None:
            await self._home.check(self.fleet.uid)
            self.fleet.begin_again(version)

    def _changed(self, kind: str, old: Seen | None, new: Seen | None, listed: bool) -> None:
        """Take in what a list or a watch has shown of the hub's own jobs."""
        if new is not None:
            which = (kind, new.namespace, new.name)
            if (job := self._jobs.get(which)) is None:
                job = self._jobs[which] = FleetJob(self.fleet, self.kinds[kind], new.namespace, new.name)
                job.own.came_after = 0 if listed else self.fleet.swept.times_due
            job.own.is_shown(new.job)
            if new.untouched and not (self._suspends or self._propagations_changed):
                job.rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            else:
                self._wake(which, partial(job.last_read.has_own, new.resource_version, self.fleet.set_backs))
        elif old is not None:
            self._jobs.pop((kind, old.namespace, old.name), None)
            self._note_unreadable((kind, old.namespace, old.name), unreadable=False)

    def _propagation_changed(self, propagation: Propagation | None) -> None:
        if propagation is not None and propagation.problems:
            log.warning(
                "fleet.propagation", propagation=str(propagation), problems=[str(each) for each in propagation.problems]
            )
        self._propagations_changed = True

    def _copy_changed(self, copies: dict[str, JobName], kind: str, old: Seen | None, new: Seen | None) -> None:
        changed = new or old
        assert changed is not None
        which = (kind, changed.namespace, changed.name)
        if old is not None:
            copies.pop(old.uid, None)
        if new is not None:
            copies[new.uid] = which
        if (job := self._jobs.get(which)) is not None:
            self._wake(which, partial(job.knows, old, new))

    def _wake_waiting(self, member: str, came: frozenset[str], went: frozenset[str]) -> None:
        """Look at the gangs that wait for a reservation in a member to come or to go, or that may find room there."""
        copies = self._copies.get(member, {})
        known = [copies[uid] for uid in came if uid in copies]
        if not went and len(known) == len(came):
            for which in sorted(known):
                self._wake(which)
            return
        for which, job in sorted(self._jobs.items()):
            if went and job.waits_for not in ("", member):
                job.choice.freed(member)
                self._wake(which)
            elif job.waits_for == member:
                self._wake(which)

    def _wake(self, which: JobName, is_read: Callable[[], bool] = lambda: False) -> None:
        """Have a job looked at, unless its last look has read what it is woken for."""
        if which not in self._jobs or not self.fleet.uid or not self._propagations_read:
            return
        if which in self._driven:
            self._woken.setdefault(which, []).append(is_read)
        elif not is_read():
            self._driven[which] = asyncio.create_task(self._drive(which, self._jobs[which]), name="/".join(which))

    async def _drive(self, which: JobName, job: FleetJob) -> None:
        try:
            for _ in range(STEPS_MAX):
                await asyncio.sleep(job.looks.wait_seconds(asyncio.get_running_loop().time()))
                self._woken.pop(which, None)
                self._take_rules()
                step = await job.step()
                self._note_unreadable(which, unreadable=False)
                if step is HubStep.NOTHING and all(is_read() for is_read in self._woken.get(which, ())):
                    return
        except NotFound:
            return
        except UnreadableRecord as error:
            self._note_unreadable(which, unreadable=True)
            log.warning("fleet.job_not_placed", job="/".join(which), error=str(error))
            await job.telling.of_record(job.own, error)
        except ApiError as error:
            log.warning("fleet.job_not_placed", job="/".join(which), error=str(error))
        except Exception:
            # One job must not stop the others.
            log.exception("fleet.job_broken", job="/".join(which))
        finally:
            self._woken.pop(which, None)
            self._driven.pop(which, None)

    def _note_unreadable(self, which: JobName, *, unreadable: bool) -> None:
        if unreadable != (which in self._unreadable):
            self._unreadable ^= {which}
            metrics.UNREADABLE_DISPATCHES.set(len(self._unreadable))
