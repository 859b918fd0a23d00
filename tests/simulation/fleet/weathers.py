"""Stories of one fault that lasts while all else is well, so that what becomes of it has a bound in seconds."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from random import Random
from typing import Any

from tests.simulation.fleet.crashes import HUB_LINK
from tests.simulation.fleet.links import CUTS, Fault, Link
from tests.simulation.fleet.rules import Json, ended, jobs, reserved
from tests.simulation.fleet.story import Story
from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Side
from webhook.clock import LoopClock
from webhook.controllers.gangs.requeues import PERMIT_SECONDS
from webhook.controllers.gangs.silent_hubs import LOOK_SECONDS as HEARD_SECONDS
from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.silence import GRACE_SECONDS, longest_grace_seconds, surely_stopped_seconds
from webhook.core.notation import names
from webhook.fleet.dead_man import FAILING_SECONDS, RENEW_SECONDS
from webhook.fleet.jobs.unstored import REST_SECONDS_MAX
from webhook.fleet.lost import SILENT, give_up, noted
from webhook.fleet.members.copies import copy_read, why_unwanted
from webhook.fleet.members.member import ANSWER_SECONDS
from webhook.fleet.sweeping import SWEEP_SECONDS
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

STRIKES = 2
MOVED_SECONDS = 15.0
"""After which nothing is offered to a member that does not answer, while another may have it."""
KNOWN_SLOW_SECONDS = 30.0
"""After which a member is known to be slow, and the looks at it have ended that had begun before."""
OFFERED_SECONDS = 3.0
"""After which a gang that is nowhere is offered to a member that is quick."""
CONTACT_SECONDS = 15.0
"""After which nothing of the past is left in a member that answers again."""
NOTE_SECONDS = 15.0
"""So much longer a member counts as lost."""
REQUEUE_SECONDS = 5.0
"""A member takes to give room back."""
RESTART_SECONDS = 6.0
"""After which a hub that died is there again."""
LOOK_SECONDS = 0.5
TOLD_SECONDS = 25.0
"""After which a gang is told that the hub's API server refuses its record, though it says that it is busy, at times."""
UNDER_WAY_SECONDS = 6.0
"""After which nothing is decided any more by what was read before a link was cut."""
NOTED_SECONDS = FAILING_SECONDS + 3 * (RENEW_SECONDS + ANSWER_SECONDS)
"""After which a silence is noted, or seen to be over."""
STOPS_SECONDS = RENEW_SECONDS + 2 * HEARD_SECONDS + 5.0
"""So much later than a hub is silent a member has stopped what it had."""
LINGERS_SECONDS = 45.0
"""Pods are kept for less."""


class OneFault(Story, ABC):
    """One fault after another, each of one member."""

    rough = False
    jobs = 6
    runtimes = (1, 40)

    def _weather(self) -> Iterable[Coroutine[Any, Any, None]]:
        return ()

    async def _strike(self) -> None:
        for _ in range(STRIKES):
            await asyncio.sleep(self.chance.uniform(2, 20))
            await self._strike_at(await self._busy())

    @abstractmethod
    async def _strike_at(self, member: str) -> None:
        """Have the fault meet a member."""

    async def _busy(self) -> str:
        """Return a member that has or may get a gang, if one is found within a while."""
        phase = self.chance.choice(
            (DispatchPhase.OFFERED, DispatchPhase.GRANTED, DispatchPhase.GRANTED, DispatchPhase.RECALLED)
        )
        found = await self._found(lambda uid, record: record.phase is phase)
        return self.chance.choice([record.member for record in found.values()] or sorted(self.world.members))

    async def _found(self, wanted: Callable[[str, Dispatch], bool]) -> dict[str, Dispatch]:
        """Return the records of which this holds, as soon as there is one; none after a while."""
        for _ in range(1000):
            if found := {uid: record for uid, record in self.rules.records().items() if wanted(uid, record)}:
                return found
            await asyncio.sleep(0.03)
        return {}

    def _kill_hubs(self) -> None:
        for process in self.living:
            process.kill()

    def _copies(self, member: str) -> dict[str, str]:
        """Return the copies in a member and the hub's jobs that they are of, by uid."""
        found = {}
        for _, job in jobs(self.world.members[member]):
            if offer := _notes(job).get(names.OFFER):
                found[job["metadata"]["uid"]] = offer.partition(" ")[0]
        return found

    def _held(self, member: str, *phases: DispatchPhase) -> set[str]:
        records = self.rules.records().items()
        return {uid for uid, record in records if record.member == member and record.phase in phases}

    def _waiting(self, kind: str, job: Json, member: str) -> bool:
        """Return whether a gang is to run, and another member than ``member`` may have it."""
        name = job["metadata"]["name"]
        taken = {where for where, which, theirs in self.rules.foreign if (which, theirs) == (kind, name)}
        others = self.world.members.keys() - taken - {*self.bare, member}
        return bool(others) and not why_unwanted(KINDS[kind], job) and not ended(job, kind)

    def _nowhere(self, member: str) -> set[str]:
        """Return the gangs that are to run and are in no member, though another than ``member`` may have them."""
        return {
            job["metadata"]["uid"]
            for kind, job in jobs(self.world.hub)
            if self._waiting(kind, job, member) and self._record(job["metadata"]["uid"]).phase is DispatchPhase.NOWHERE
        }

    def _record(self, uid: str) -> Dispatch:
        return self.rules.records().get(uid, NOWHERE)

    async def _check_settled(self, before: Mapping[str, Collection[str]]) -> None:
        """See that of the copies that were in members at contact only those are left that a record names."""
        strays = {member: self._strays(member, copies) for member, copies in before.items()}
        # A gang that has just gone to another member leaves a copy for the next sweep.
        await asyncio.sleep(SWEEP_SECONDS + LOOK_SECONDS)
        for member, found in strays.items():
            for uid in found & self._strays(member, found):
                self.rules.say(f"copy {uid} is left in {member} {CONTACT_SECONDS} s after contact, and not swept")

    def _strays(self, member: str, among: Collection[str]) -> set[str]:
        copies = self._copies(member)
        return {uid for uid in copies.keys() & among if not self._named(member, uid, self._record(copies[uid]))}

    def _named(self, member: str, uid: str, record: Dispatch) -> bool:
        here = record.copy_uid == uid if record.holds else record.phase is DispatchPhase.OFFERED
        return here and record.cluster == self.rules.clusters[member]


class CutOff(OneFault):
    """A member is not reached for long: what runs there stays, what was offered moves on, its room is given back."""

    async def _strike_at(self, member: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._begin(member)
        end = began + self.chance.uniform(10, 90)
        await asyncio.sleep(UNDER_WAY_SECONDS)
        granted = self._held(member, DispatchPhase.GRANTED)
        since: dict[str, float] = {}
        while loop.time() < end:
            await asyncio.sleep(LOOK_SECONDS)
            for uid in granted - self._held(member, DispatchPhase.GRANTED):
                self.rules.say(f"{uid} does not stay in {member}, from which nothing is heard: {self._record(uid)}")
            if loop.time() > began + MOVED_SECONDS:
                self._check_moved(member)
            self._check_room(member, since, loop.time())
        before = self._copies(member)
        self._end(member)
        await asyncio.sleep(CONTACT_SECONDS)
        await self._check_settled({member: before})

    def _begin(self, member: str) -> None:
        self._cut(member, self.chance.choice(CUTS))

    def _end(self, member: str) -> None:
        self.states[member] = Fault.PASS

    def _check_moved(self, member: str) -> None:
        offered = self._held(member, DispatchPhase.OFFERED)
        for kind, job in jobs(self.world.hub):
            if job["metadata"]["uid"] in offered and self._waiting(kind, job, member):
                name = job["metadata"]["name"]
                self.rules.say(f"{name} is offered to {member}, which has not answered for {MOVED_SECONDS} s")

    def _check_room(self, member: str, since: dict[str, float], now: float) -> None:
        """See that no room is held in a member for a permit that does not come."""
        side = self.world.members[member]
        held = reserved(side) & {
            job["metadata"]["uid"]
            for kind, job in jobs(side)
            if names.OFFER in _notes(job) and not copy_read(KINDS[kind], job).permitted
        }
        for uid in since.keys() - held:
            del since[uid]
        for uid in held:
            if now - since.setdefault(uid, now) > PERMIT_SECONDS + REQUEUE_SECONDS:
                self.rules.say(f"{member} holds room for {uid} for longer than {PERMIT_SECONDS} s without a permit")


class Slow(OneFault):
    """A member answers each request just in time: no gang that another may have waits for it to be offered."""

    async def _strike_at(self, member: str) -> None:
        loop = asyncio.get_running_loop()
        self._cut(member, Fault.SLOW)
        end = loop.time() + self.chance.uniform(45, 100)
        await asyncio.sleep(KNOWN_SLOW_SECONDS)
        since: dict[str, float] = {}
        while loop.time() < end:
            since = {uid: since.get(uid, loop.time()) for uid in self._nowhere(member)}
            for uid, began in since.items():
                if loop.time() - began > OFFERED_SECONDS:
                    self.rules.say(f"{uid} is offered to nobody for {OFFERED_SECONDS} s while {member} is slow")
            await asyncio.sleep(LOOK_SECONDS)
        self.states[member] = Fault.PASS


class Denied(OneFault):
    """Somebody's webhook refuses all writes of jobs, in a member or in the hub, where each job that waits is told."""

    async def _strike_at(self, member: str) -> None:
        loop, where = asyncio.get_running_loop(), self.chance.choice((HUB_LINK, member))
        self._cut(where, Fault.DENIED)
        end = loop.time() + self.chance.uniform(10, 90)
        since: dict[str, float] = {}
        while loop.time() < end:
            await asyncio.sleep(LOOK_SECONDS)
            if where != HUB_LINK:
                continue
            since = {uid: since.get(uid, loop.time()) for uid in self._nowhere("")}
            late = {uid for uid, began in since.items() if loop.time() - began > TOLD_SECONDS}
            for uid in late - self._uids_told("DispatchRefused"):
                self.rules.say(f"{uid} waits for {TOLD_SECONDS} s, and is not told that its record is refused")
        self.states[where] = Fault.PASS
        denied = self._nowhere("")
        await asyncio.sleep(REST_SECONDS_MAX + OFFERED_SECONDS)
        for uid in denied & self._nowhere(""):
            if self._record(uid) == NOWHERE:
                self.rules.say(f"{uid} is offered to nobody {REST_SECONDS_MAX} s after nothing is refused any more")

    def _uids_told(self, reason: str) -> set[str]:
        events = self.world.hub.cluster.server.store.items(("", "events"), NAMESPACE)
        return {each.object["involvedObject"]["uid"] for each in events if each.object["reason"] == reason}


class Astray(CutOff):
    """The name of a member leads to another cluster, which is empty: that proves nothing."""

    async def _strike(self) -> None:
        async with SimulatedCluster(Random(9), namespaces=("tutti-system",)) as self._other:
            await super()._strike()

    def _begin(self, member: str) -> None:
        self._lead(member, self._other.api(HUB_ACCOUNT))

    def _end(self, member: str) -> None:
        self._lead(member, None)

    def _lead(self, member: str, to: SimulatedApi | None) -> None:
        for process in self.living:
            process.links[member].astray = to


class WrongCredentials(Astray):
    """The credentials of a member are those of another cluster for a while, which answers slowly at times."""

    def _begin(self, member: str) -> None:
        self._slow = self.chance.random() < 0.5
        super()._begin(member)

    def _lead(self, member: str, to: SimulatedApi | None) -> None:
        for process in self.living:
            right = process.links[member]
            wrong = None if to is None else Link(to, self._other_state(), member, lambda write, moment: None)
            process.hub.fleet.reach(member, right if wrong is None else wrong)

    def _other_state(self) -> dict[str, Fault]:
        return dict.fromkeys(self.states, Fault.SLOW if self._slow else Fault.PASS)


class Swapped(OneFault):
    """Two names lead to each other's cluster for a while: what is in these is followed, and what is there stays."""

    async def _strike_at(self, member: str) -> None:
        other = self.chance.choice(sorted(self.world.members.keys() - {member}))
        self._lead(member, other)
        self._lead(other, member)
        await asyncio.sleep(self.chance.uniform(10, 90))
        before = {name: self._copies(name) for name in (member, other)}
        self._lead(member, None)
        self._lead(other, None)
        await asyncio.sleep(CONTACT_SECONDS)
        await self._check_settled(before)

    def _lead(self, member: str, to: str | None) -> None:
        for process in self.living:
            process.links[member].astray = None if to is None else self.world.members[to].cluster.api(HUB_ACCOUNT)


class DeclaredLost(OneFault):
    """A member does not answer and is declared lost; some time later it is there all the same."""

    async def _strike_at(self, member: str) -> None:
        self._cut(member, self.chance.choice(CUTS))
        await asyncio.sleep(self.chance.uniform(0, 20))
        self.rules.forgiven.add(member)
        held = self._held(member, DispatchPhase.GRANTED, DispatchPhase.RECALLED)
        self.excused |= {*held, *self._copies(member).values()}
        async for _ in give_up(self.world.hub.admin, KINDS, member, LoopClock(), dry_run=False, force=True):
            pass
        restarted = self.chance.random() < 0.5
        if restarted:
            self._kill_hubs()
        await asyncio.sleep(MOVED_SECONDS + restarted * RESTART_SECONDS)
        records = self.rules.records()
        for kind, job in jobs(self.world.hub):
            uid = job["metadata"]["uid"]
            if uid in held and self._waiting(kind, job, member) and records[uid].phase is DispatchPhase.NOWHERE:
                self.rules.say(f"{job['metadata']['name']} was given up in {member} and is offered to nobody")
        await asyncio.sleep(self.chance.uniform(0, 30))
        before = self._copies(member)
        self.states[member] = Fault.PASS
        await asyncio.sleep(CONTACT_SECONDS)
        self.rules.forgiven.discard(member)
        self.rules.look()
        await self._check_settled({member: before})
        await asyncio.sleep(NOTE_SECONDS)
        if member in await noted(self.world.hub.admin):
            self.rules.say(f"{member} is back and still noted as lost")


class Silent(OneFault):
    """A member does not answer for so long that it has stopped by itself what its hub had permitted there."""

    runtimes = (60, 300)
    silent_hub_seconds = 20.0

    async def _strike(self) -> None:
        # A hub that has just started is heard of first, and gangs come.
        await asyncio.sleep(self.chance.uniform(20, 60))
        await self._strike_at(await self._busy())

    async def _strike_at(self, member: str) -> None:
        began = asyncio.get_running_loop().time()
        self._cut(member, self.chance.choice(CUTS))
        await asyncio.sleep(UNDER_WAY_SECONDS)
        held = self._held(member, DispatchPhase.GRANTED)
        # Of pods that a job does not show, a SparkApplication's, a hub waits for the longest grace there is.
        shown = {
            job["metadata"]["uid"]
            for _, job in jobs(self.world.hub)
            if longest_grace_seconds(job["spec"]) == GRACE_SECONDS
        }
        promised = {uid for uid in held & shown if self._record(uid).stops_after_seconds}
        self.excused |= {*held, *self._copies(member).values()}
        surely = surely_stopped_seconds(int(self.silent_hub_seconds), GRACE_SECONDS)
        counted_from = 0.0
        if self.chance.random() < 0.3:
            # The next process counts for itself.
            await asyncio.sleep(self.chance.uniform(0, surely / 2))
            self._kill_hubs()
            counted_from = asyncio.get_running_loop().time() - began + RESTART_SECONDS
        await asyncio.sleep(max(0.0, began + NOTED_SECONDS + self.silent_hub_seconds + STOPS_SECONDS - self._now()))
        for uid in self._running(member) & held:
            self.rules.say(f"{uid} still runs in {member}, which has heard nothing of its hub for too long")
        while self._now() < began + surely:
            await asyncio.sleep(LOOK_SECONDS)
            for uid in held - self._held(member, DispatchPhase.GRANTED, DispatchPhase.RECALLED):
                self.rules.say(f"{uid} was given up in {member} before it has surely stopped")
        await asyncio.sleep(max(0.0, began + counted_from + NOTED_SECONDS + surely + NOTED_SECONDS - self._now()))
        for uid in promised & self._held(member, DispatchPhase.GRANTED, DispatchPhase.RECALLED):
            self.rules.say(f"{uid} waits for {member}, which has surely stopped it")
        for uid in (held - promised) - self._held(member, DispatchPhase.GRANTED, DispatchPhase.RECALLED):
            self.rules.say(f"{uid} was given up in {member}, which had not promised to stop it")
        before = self._copies(member)
        self.states[member] = Fault.PASS
        await asyncio.sleep(CONTACT_SECONDS + NOTE_SECONDS)
        await self._check_settled({member: before})
        if member in {*await noted(self.world.hub.admin), *await noted(self.world.hub.admin, SILENT)}:
            self.rules.say(f"{member} is back and still noted as lost or silent")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _running(self, member: str) -> set[str]:
        """Return the hub's jobs of which a copy is not suspended in a member, and has not ended."""
        found = set()
        for kind, job in jobs(self.world.members[member]):
            copy = copy_read(KINDS[kind], job)
            if copy.job and not copy.suspended and not copy.finished:
                found.add(copy.job)
        return found


class MemberSetBack(OneFault):
    """The etcd of a member is restored from a backup: copies that had gone are there again, with permits or without."""

    async def _strike_at(self, member: str) -> None:
        side: Side = self.world.members[member]
        backup = side.cluster.server.store.backup()
        self.excused |= set(self._copies(member).values())
        await asyncio.sleep(self.chance.uniform(1, 40))
        self.excused |= set(self._copies(member).values())
        self.rules.forgiven.add(member)
        side.cluster.restore(backup, bumped=self.chance.random() < 0.5)
        before = self._copies(member)
        await asyncio.sleep(CONTACT_SECONDS)
        self.rules.forgiven.discard(member)
        self.rules.look()
        await self._check_settled({member: before})


class HubSetBack(OneFault):
    """The hub's cluster is restored from a backup while a member does not answer: its gangs start nowhere else."""

    def _weather(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._let_pods_linger(),)

    async def _strike(self) -> None:
        await super()._strike()
        # Who stopped a job finds it stopped again, and starts it again.
        for kind, job in list(jobs(self.world.hub)):
            await self._suspend(kind.partition(".")[0], job["metadata"]["name"], suspend=False)

    async def _strike_at(self, member: str) -> None:
        side = self.world.hub
        # The backup has gangs that nobody has yet. They run, or have just gone but for their pods, when it is restored.
        loose = await self._found(lambda uid, record: record.phase is DispatchPhase.OFFERED or record == NOWHERE)
        backup, before = side.cluster.server.store.backup(), self.rules.records()
        phase = self.chance.choice((DispatchPhase.GRANTED, DispatchPhase.RECALLED))
        gone_on = await self._found(lambda uid, record: uid in loose and record.phase is phase)
        await asyncio.sleep(self.chance.choice((0, self.chance.uniform(0, 10))))
        self.excused |= {*before, *self.rules.records()}
        if phase is DispatchPhase.GRANTED:
            member = self.chance.choice([record.member for record in gone_on.values()] or [member])
            self._cut(member, self.chance.choice(CUTS))
        bumped, restarts = self.chance.choice(((False, False), (True, False), (True, True)))
        if restarts:
            self._kill_hubs()
        self.rules.records_lost = True
        side.cluster.restore(backup, bumped=bumped)
        if bumped and not restarts:
            # Then only what they say of their gangs has gone back.
            await asyncio.gather(*(self._label(kind, job["metadata"]["name"]) for kind, job in list(jobs(side))))
        await asyncio.sleep(self.chance.uniform(0, 40))
        found = {name: self._copies(name) for name in self.world.members}
        self.states[member] = Fault.PASS
        await asyncio.sleep(CONTACT_SECONDS + restarts * RESTART_SECONDS)
        await self._check_settled(found)
        # Pods whose copy has gone are named by no record, and waited for.
        await asyncio.sleep(LINGERS_SECONDS)
        self.rules.records_lost = False
        self.rules.look()

    async def _label(self, kind: str, name: str) -> None:
        await self.world.hub.patch(kind.partition(".")[0], name, {"metadata": {"labels": {"restored": "yes"}}})


def _notes(job: Json) -> Json:
    return job["metadata"].get("annotations") or {}


WEATHERS: dict[str, type[OneFault]] = {
    "a member is cut off": CutOff,
    "a member is slow": Slow,
    "a webhook refuses everything": Denied,
    "its name leads elsewhere": Astray,
    "its credentials are another's": WrongCredentials,
    "two names are swapped": Swapped,
    "a member is declared lost": DeclaredLost,
    "a member is silent": Silent,
    "a member is set back": MemberSetBack,
    "the hub is set back": HubSetBack,
}
