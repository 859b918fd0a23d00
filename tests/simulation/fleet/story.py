"""One story of a fleet: jobs come, are stopped and deleted, links fail, hubs die at their writes; then all is calm."""

import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

from tests.simulation.fleet.brought import Brought
from tests.simulation.fleet.crashes import EARLY, HUB_LINK, Aim, Crashes
from tests.simulation.fleet.links import CUTS, Fault, Link, Moment, Write
from tests.simulation.fleet.needs import Needs
from tests.simulation.fleet.pace import Pace
from tests.simulation.fleet.rules import Json, Rules, ended, jobs
from tests.simulation.fleet.spark import SPARK, Sparks
from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, Side, fleet, plain_job, pytorch_job
from tests.unit.fleet.failing import fail_all, failover_policy, once
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.errors import Forbidden, NotFound
from webhook.fleet.hub import Hub
from webhook.fleet.members.shown import shown
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.reading import status
from webhook.laboratory.simulated.faults import ROUGH, FaultPlan

HUB_POLICY = [copy.deepcopy(item) for item in POLICY]
HUB_POLICY[1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 8
"""Less than its members have together."""
BUSY_SECONDS = 120.0
CALM_SECONDS = (2.0, 25.0)
CUT_SECONDS = (0.5, 8.0)
CRASH = 0.0015
"""How likely a hub dies just before or just after one of its writes."""
ALONE = 0.5
"""How likely a cut hits one process alone, where there are several."""
LINGERS = "example.org/slow"
LEDGER = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.LEDGER_NAME}"
LOOK_SECONDS = 0.02
AIMING_SECONDS = 3.0
"""Until the hub is killed though it has written nothing of the gang, whose member it does not reach."""
WAITING_SECONDS = 6.0
"""For the next write of any gang."""
LINGERS_SECONDS = (0.0, 2.0)
"""A link that has failed at a write fails for so long."""
STOPPED = 0.15
DELETED = 0.1
FOREIGN = 0.3
TRIES = 30
"""Of an owner to let a job go on, a second apart."""

OnWrite = Callable[["Process", Write, Moment], bool]
"""Told each moment of each write of a hub; says whether the process dies there."""


class Process:
    """One hub process."""

    def __init__(
        self,
        world: Fleet,
        states: dict[str, Fault],
        plan: FaultPlan | None,
        on_write: OnWrite,
        on_request: Callable[[str, str], None],
        *,
        dead_man: bool = False,
    ) -> None:
        self.dead = False

        def point(write: Write, moment: Moment) -> None:
            if not self.dead and on_write(self, write, moment):
                self.kill()

        self.links = {
            name: Link(side.cluster.api(HUB_ACCOUNT, plan), states, name, point) for name, side in world.members.items()
        }
        self.links[HUB_LINK] = Link(world.hub.cluster.api(HUB_ACCOUNT, plan), states, HUB_LINK, point, on_request)
        members = {name: link for name, link in self.links.items() if name != HUB_LINK}
        self.hub = Hub(self.links[HUB_LINK], dict(members), KINDS, clock=LoopClock(), rng=Random(4), dead_man=dead_man)
        self._task = asyncio.create_task(self.hub.run())

    def kill(self) -> None:
        """Nothing that it was doing reaches anybody any more."""
        self.dead = True
        for link in self.links.values():
            link.sever()
        self._task.cancel()

    async def end(self) -> None:
        self.kill()
        await asyncio.gather(self._task, return_exceptions=True)


class Story:
    """One seed."""

    rough = True
    """Hubs die at their writes, and what they ask is delayed, lost and done twice."""
    jobs = 18
    """So many that something is nearly always on its way: time that passes with nothing to do costs as much."""
    runtimes = (1, 20)
    """Seconds that a job runs, at least and at most."""
    restart_seconds = (0.0, 5.0)
    """Until a hub that died is started again."""
    silent_hub_seconds: float | None = None
    """After which a member stops what a silent hub has; hubs show that they are there then."""

    def __init__(
        self, seed: int, processes: int = 1, *, hub_queues: bool = False, broken: int = 0, bare: bool = False
    ) -> None:
        self.chance = Random(seed)
        self.processes = processes
        self.hub_queues = hub_queues
        self.broken = set(self.chance.sample("abc", broken))
        """Members in which every job fails, to be tried in the others."""
        self.bare = ("c",) if bare else ()
        """Members without a Tutti."""
        # Was drawn for something else once: without it each seed would tell another story.
        self.chance.random()
        self.crashes = Crashes(seed)
        self.needs, self.sparks = Needs(seed), Sparks(seed)
        self.faults: Counter[Fault] = Counter()
        """How often a link began to fail so."""
        self.excused: set[str] = set()
        """Uids of gangs that ran twice by somebody's word, or because the past came back."""
        self._stopped: set[str] = set()
        self.living: list[Process] = []
        self.rules: Rules
        self.brought: Brought
        self._paces: list[Pace] = []
        self._spins = ""
        """How a hub went round and round, if one did: that is the end of the story."""

    async def tell(self) -> None:
        """Run it. Raises AssertionError where something did not hold."""
        self._told = asyncio.create_task(self._tell())
        try:
            await self._told
        except asyncio.CancelledError:
            if not self._spins:
                raise
            raise AssertionError(self._spins) from None

    @property
    def most_looks(self) -> int:
        """How often one hub looked at one gang within a second, at most."""
        return max((pace.most for pace in self._paces), default=0)

    def _spun(self, words: str) -> None:
        # At once: what goes round and round may leave no time to come to an end by itself.
        self._spins = words
        self._told.cancel()

    async def _tell(self) -> None:
        policy = HUB_POLICY if self.hub_queues else ()
        how: dict[str, Any] = {"starts": False, "watched": False, "without_tutti": self.bare, "hub_policy": policy}
        how["silent_hub_seconds"] = self.silent_hub_seconds
        how["prepare"] = lambda name, cluster: self.sparks.serve(name, cluster, hub_queues=self.hub_queues)
        async with fleet("a", "b", "c", **how) as world:
            self.world = world
            self.states = dict.fromkeys((*world.members, HUB_LINK), Fault.PASS)
            self.rules = Rules(world.hub, world.members)
            self.rules.hub_queues, self.rules.bare = self.hub_queues, self.bare
            for name in self.broken:
                await fail_all(world.members[name])
            if self.broken:
                for kind in ("Job", "PyTorchJob"):
                    await world.hub.cluster.create(failover_policy(kind))
                if self.sparks.some:
                    selected = [{"apiVersion": SPARK.api_version, "kind": SPARK.kind}]
                    await world.hub.cluster.create(failover_policy(SPARK.kind, resourceSelectors=selected))
            await self.needs.plant(world, policy=not self.broken)
            await self.sparks.plant((*world.members.values(), *([world.hub] if self.hub_queues else ())))
            self.brought = Brought(world, self.needs, self.rules)
            self.sparks.watch(world.hub, self.rules)
            await self._plant_foreign()
            hubs = [asyncio.create_task(self._keep_a_hub()) for _ in range(self.processes)]
            faults = [asyncio.create_task(work) for work in (*self._weather(), self.needs.change(world.hub))]
            try:
                await asyncio.gather(self._submit(), self._strike())
                await asyncio.sleep(BUSY_SECONDS / 2)
            finally:
                for task in (*hubs, *faults):
                    task.cancel()
                await asyncio.gather(*hubs, *faults, return_exceptions=True)
            self.states.update(dict.fromkeys(self.states, Fault.PASS))
            for side in world.members.values():
                await self._let_go(side)
            last = self._process(None, lambda process, write, moment: False)
            try:
                await self._come_to_rest()
                self.brought.at_rest(last.hub)
            finally:
                await last.end()
            assert not self.rules.broken, self.rules.broken

    # -- what happens -------------------------------------------------------------------------------------------------

    def _weather(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return what goes wrong until all is calm."""
        return (*map(self._break, self.states), self._lie_in_wait(), self._let_pods_linger(), self._lose_ledgers())

    async def _strike(self) -> None:
        """Do what is done in this story alone."""

    async def _plant_foreign(self) -> None:
        for number in range(self.jobs):
            if self.chance.random() < FOREIGN:
                member = self.chance.choice(sorted(self.world.members))
                theirs = plain_job(f"job-{number}")
                theirs["spec"] = {key: value for key, value in theirs["spec"].items() if key != "managedBy"}
                del theirs["metadata"]["labels"]
                stored = await self.world.members[member].cluster.create(
                    {**theirs, "spec": {**theirs["spec"], "suspend": True}}
                )
                self.rules.foreign[member, "Job.batch", f"job-{number}"] = stored

    async def _submit(self) -> None:
        changes = []
        for number in range(self.jobs):
            make = self.chance.choice((pytorch_job, plain_job))
            runtime = f"{self.chance.randint(*self.runtimes)}s"
            job = self.sparks.instead(make(f"job-{number}", runtime=runtime), runtime, hub_queues=self.hub_queues)
            self.needs.refer(job)
            await self.world.hub.cluster.create(once(job) if self.broken else job)
            changes.append(asyncio.create_task(self._change(job["kind"], f"job-{number}")))
            if self.hub_queues:
                changes.append(asyncio.create_task(self.sparks.meddle(self.world.hub, job)))
            await asyncio.sleep(self.chance.uniform(0, BUSY_SECONDS / self.jobs))
        await asyncio.gather(*changes)

    async def _change(self, kind: str, name: str) -> None:
        """Stop a job for a while, or delete it, or neither."""
        draw = self.chance.random()
        await asyncio.sleep(self.chance.uniform(0, 30))
        if draw < STOPPED:
            self._stopped.add(name)
            for suspend in (True, False):
                await self._suspend(kind, name, suspend=suspend)
                await asyncio.sleep(self.chance.uniform(0, 20))
        elif draw < STOPPED + DELETED:
            with contextlib.suppress(NotFound):
                await self.world.hub.delete(kind, name)

    async def _suspend(self, kind: str, name: str, *, suspend: bool) -> None:
        change = {"suspend": suspend}
        # It may wait in a queue of the hub's, where nobody starts it by hand, or be in no backup. A hold cannot be
        # lifted before it is written down.
        for _ in range(TRIES):
            with contextlib.suppress(NotFound):
                try:
                    await self.world.hub.patch(
                        kind, name, {"spec": {"runPolicy": change} if kind == "PyTorchJob" else change}
                    )
                except Forbidden:
                    await asyncio.sleep(1)
                    continue
            return

    async def _break(self, link: str) -> None:
        """Change what a link does now and then."""
        while True:
            await asyncio.sleep(self.chance.uniform(*CALM_SECONDS))
            fault, seconds = self.chance.choice((*CUTS, Fault.SLOW, Fault.HANGS)), self.chance.uniform(*CUT_SECONDS)
            if len(self.living) > 1 and self.chance.random() < ALONE:
                # The others reach it, and do not know that this one does not.
                alone = self.chance.choice(self.living).links[link]
                alone.cut = fault
                self.faults[fault] += 1
                await asyncio.sleep(seconds)
                alone.cut = None
                continue
            self._cut(link, fault)
            await asyncio.sleep(seconds)
            self.states[link] = Fault.PASS

    def _cut(self, link: str, fault: Fault) -> None:
        if fault not in (Fault.PASS, self.states[link]):
            self.faults[fault] += 1
        self.states[link] = fault

    async def _let_pods_linger(self) -> None:
        """Keep pods from going for a while after they are deleted."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 15))
            side = self.world.members[self.chance.choice(sorted(self.world.members))]
            for pod in await side.pods():
                with contextlib.suppress(NotFound):
                    await side.keep_pod(pod, [LINGERS])
            await asyncio.sleep(self.chance.uniform(10, 40))
            await self._let_go(side)

    async def _lose_ledgers(self) -> None:
        """Delete the ledger of a member, which its Tutti then makes again of what it finds."""
        while True:
            await asyncio.sleep(self.chance.uniform(10, 60))
            side = self.world.members[self.chance.choice(sorted(self.world.members))]
            with contextlib.suppress(NotFound):
                await side.admin.request("DELETE", LEDGER)

    async def _let_go(self, side: Side) -> None:
        for pod in await side.pods():
            with contextlib.suppress(NotFound):
                await side.keep_pod(pod, [])

    async def _lie_in_wait(self) -> None:
        """Kill hubs at writes in one phase after another, over links in one state after another."""
        loop, crashes, dice = asyncio.get_running_loop(), self.crashes, self.crashes.dice
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            aim = crashes.draw()
            if dice.random() < EARLY:
                self._fail_early(aim)
            crashes.aim = aim
            deadline = loop.time() + (AIMING_SECONDS if aim.gang else WAITING_SECONDS)
            while crashes.aim is aim and loop.time() < deadline:
                await asyncio.sleep(LOOK_SECONDS)
            if crashes.aim is aim and aim.gang and self.living:
                self._kill_idle(aim)
            crashes.aim = None
            await asyncio.sleep(dice.uniform(*LINGERS_SECONDS))
            if aim.link:
                self.states[aim.link] = Fault.PASS

    def _fail_early(self, aim: Aim) -> None:
        """Have the link fail to the member of a gang, and aim at that gang."""
        records = self.rules.records()
        if found := [uid for uid, record in records.items() if record.phase is not DispatchPhase.NOWHERE]:
            aim.gang = self.crashes.dice.choice(found)
            aim.link = records[aim.gang].member
            self._cut(aim.link, aim.fault)

    def _kill_idle(self, aim: Aim) -> None:
        record, last = self.rules.records().get(aim.gang), self.living[-1]
        if record is not None and record.member in last.links and not last.dead:
            self.crashes.died_idle(record.phase, last.links[record.member].fault)
            last.kill()

    def _process(self, plan: FaultPlan | None, on_write: OnWrite) -> Process:
        dead_man = self.silent_hub_seconds is not None
        pace = Pace(self._spun)
        self._paces.append(pace)

        def asked(method: str, path: str) -> None:
            pace.asked(method, path)
            self.needs.asked(method, path)

        return Process(self.world, self.states, plan, on_write, asked, dead_man=dead_man)

    async def _keep_a_hub(self) -> None:
        """Start a hub again when it has died at a write."""

        def crash(process: Process, write: Write, moment: Moment) -> bool:
            if self.crashes.aimed(write, moment, process, self.rules, self._cut):
                return True
            dies = moment != "stored" and self.rough and self.chance.random() < CRASH
            if dies:
                self.crashes.died(write, moment)
            if moment == "after":
                self.crashes.over(write)
            return dies

        process = None
        try:
            while True:
                plan = FaultPlan(self.chance, ROUGH) if self.rough else None
                process = self._process(plan, crash)
                self.living.append(process)
                while not process.dead:
                    await asyncio.sleep(1)
                self.living.remove(process)
                await asyncio.sleep(self.chance.uniform(*self.restart_seconds))
        finally:
            if process is not None:
                await process.end()

    # -- what holds in the end ----------------------------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        async def over() -> bool:
            return all(
                ended(job, kind) and record.phase is DispatchPhase.NOWHERE
                for (kind, job), record in zip(jobs(self.world.hub), self.rules.records().values(), strict=True)
            )

        try:
            await self.world.until(over, 1800)
        except TimeoutError:
            left = {
                uid: record for uid, record in self.rules.records().items() if record.phase is not DispatchPhase.NOWHERE
            }
            raise AssertionError(f"not all at rest: {left}; {self.rules.broken}") from None
        await asyncio.sleep(30)
        if self.hub_queues:
            assert await self.world.hub.reserved() == 0, "the hub's quota is not free"
        for name, side in self.world.members.items():
            theirs = {foreign.uid for (member, _, _), foreign in self.rules.foreign.items() if member == name}
            orphans = [job["metadata"]["name"] for _, job in jobs(side) if job["metadata"]["uid"] not in theirs]
            assert not orphans, f"orphans in {name}: {orphans}"
            assert not await side.pods(), f"pods are left in {name}"
            assert await side.reserved() == 0, f"room is held in {name}"
        for kind, job in jobs(self.world.hub):
            uid, name = (job["metadata"][key] for key in ("uid", "name"))
            if uid in self.excused:
                continue
            runs = len(self.rules.started[uid])
            if self.broken:
                self._check_tried(kind, job)
                continue
            # Who was stopped while it ran runs once more.
            assert runs == 1 or (runs == 2 and name in self._stopped), f"{kind} {name} ran {runs} times"
            # Of a Job that ran before, counts of ended pods and its start stay, as the API server wants it.
            ended_so = shown(KINDS[kind], job, self.rules.ended[uid])
            assert job["status"] == ended_so, f"{kind} {name}: not as in its member"

    def _check_tried(self, kind: str, job: Json) -> None:
        """See that a job was tried in each member once that may have it, until one made it succeed."""
        name, uid = (job["metadata"][key] for key in ("name", "uid"))
        foreign = {member for member, which, theirs in self.rules.foreign if (which, theirs) == (kind, name)}
        members = self.world.members.keys() - foreign - set(self.bare)
        healthy = members - self.broken
        tried = self.rules.failed_in.get(uid, [])
        assert len(tried) == len(set(tried)) or name in self._stopped, f"{kind} {name} failed in {tried}"
        outcome = status.finished(KINDS[kind], job)
        assert outcome == ("Succeeded" if healthy else "Failed"), f"{kind} {name} {outcome}, failed in {tried}"
        if not healthy and name not in self._stopped:
            assert set(tried) == members, f"{kind} {name} was tried in {tried} alone"
