"""One simulated world: the production webhook, reconciler, list-watch and election code, and a cluster in memory.

A seed chooses everything: the load, the order, delays, lost and repeated replies, conflicts, ended watches, and at
which writes a process dies. Invariants are checked after every write that is stored; a failure names its seed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.simulation import backups, edits, fences, gating, orphans, partitions, releases, replacements, reviews
from tests.simulation.backups import CONFIG_MAPS, ledger_pages
from tests.simulation.bugs import Bugs
from tests.simulation.churn import PolicyChurn
from tests.simulation.ensembles import EnsembleLoad
from tests.simulation.groups import GroupLoad
from tests.simulation.hostile import HostileTenants
from tests.simulation.invariants import Invariants
from tests.simulation.kept_nodes import KeptNodes
from tests.simulation.lent_pods import LentPods
from tests.simulation.load import MESH, OLD, Load
from tests.simulation.neighbours import Neighbours
from tests.simulation.node_churn import NodeChurn
from tests.simulation.owners import Owners
from tests.simulation.processes import Deaths, PeerlessForwarder, Replica
from tests.simulation.queues import NOMINAL_GPUS
from tests.simulation.read_once import read_once
from tests.simulation.reviews import ACCOUNT
from tests.simulation.run_times import RunTimes
from tests.simulation.running import Running
from tests.simulation.scale import scaled
from tests.simulation.served import cluster_in
from tests.simulation.settings import MESH_ASKS, config_in
from tests.simulation.shapes import KINDS
from tests.simulation.shut_kinds import KINDS as SHUT_KINDS
from tests.simulation.shut_kinds import ShutKinds
from tests.simulation.weather import Weather
from webhook.assembly import reconciler as reconciler_parts
from webhook.assembly import webhook as webhook_parts
from webhook.clock import ApiServersClock, Clock, LoopClock
from webhook.controllers.ledger.errors import SetBack
from webhook.core.notation.names import LEDGER_NAME
from webhook.errors import ApiError
from webhook.kube.api import MERGE_PATCH
from webhook.kube.list_watch import IDLE_SECONDS
from webhook.laboratory.simulated.api import SimulatedApi, WritePoint
from webhook.laboratory.simulated.faults import CALM, FaultPlan
from webhook.laboratory.simulated.requests.identity import User
from webhook.server.handler import ReviewHandler

READER: Final = User.service_account("tutti-system", "tutti-webhook")
FAILED: Final = b'"code":500'
"""In an answer of which our code broke: every other refusal has another code."""
UNLISTABLE: Final = (
    "jobsets.jobset.x-k8s.io",
    "pytorchjobs.kubeflow.org",
    "clusterqueues.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "podgroups.scheduling.x-k8s.io",
)


@dataclass
class World:
    """The cluster, our replicas and the load."""

    seed: int
    weather: Weather = field(default_factory=Weather)

    edited: Counter[str] = field(default_factory=Counter, init=False)
    """What people did to objects of the ledger, and how often."""
    put_back: Counter[tuple[bool, bool]] = field(default_factory=Counter, init=False)
    """How often an old copy was: of a page, or the index; and while somebody led, or nobody."""
    cut_off: Counter[str] = field(default_factory=Counter, init=False)
    """How often the leader, its standby or a webhook was cut off from the API server."""
    orphaned: Counter[tuple[str, bool]] = field(default_factory=Counter, init=False)
    """How often something was deleted from above what ran of it, by kind; and while we looked, or nobody."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        weather = self.weather
        self.cluster = cluster_in(weather, Random(self.rng.getrandbits(64)))
        kinds = KINDS if weather.orphaned else SHUT_KINDS if weather.shut else None
        label = orphans.label_children(self.seed, weather.children_ask)
        self.load = Load(self.cluster, Random(self.rng.getrandbits(64)), weather, label, kinds)
        self.refused: set[tuple[str, str]] = set()
        """Jobs that another webhook lets nobody of ours write."""
        self.ensembles = EnsembleLoad(self.cluster, Random(self.seed), orphans=weather.leaves_orphans)
        self.bugs = Bugs(self.seed, self.weather.bugs)
        self.invariants = Invariants(self.cluster, self.seed, weather, self.bugs, self.ensembles.ensembles)
        self.kept_nodes = KeptNodes(self.invariants.note)
        self.run_times = RunTimes(self.cluster, self.invariants, self.invariants.note)
        known_after = 2.0 if self.weather.rates is CALM else IDLE_SECONDS + 20
        self.shut_kinds = ShutKinds(self.cluster, Random(self.seed), self.invariants, self.load.create_one, known_after)
        self.owners = Owners(
            self.cluster, Random(self.seed), self.load, lambda: self.invariants.ledger, self.invariants.note
        )
        self.lent = LentPods(self.cluster, Random(self.seed))
        self.hostile = HostileTenants(self.cluster, Random(self.seed), every_kind=self.weather.hostile_kinds)
        # What a queue had borrowed runs on when its cohort is split, whatever the others take then. A Job that ran
        # before Tutti came gives up pods for those lent, and replaces them while they end: they bear no mark.
        replaced = self.weather.lent and self.weather.adopted
        if (self.weather.hostile or self.weather.orphaned) and not self.weather.churn and not replaced:
            self.invariants.running = Running()
        self.churn = PolicyChurn(self.cluster, Random(self.seed), known_after, nested=self.weather.nested)
        self.node_churn = NodeChurn(self.cluster, Random(self.seed))
        if self.weather.churn:
            self.invariants.recent = self.churn.recent
        self.config = config_in(weather)
        if self.weather.meshed:
            self.cluster.server.injected[MESH] = {"name": MESH, "image": "mesh", "resources": MESH_ASKS}
        self.neighbours = Neighbours(self.cluster) if self.weather.hidden else None
        self.deaths = Deaths(self.seed, self.weather.deaths_told, self.weather.deaths_imagined)
        self.replicas: dict[str, Replica] = {}
        self.handlers: dict[str, ReviewHandler] = {}
        self.parts: dict[str, reconciler_parts.ReconcilerParts] = {}
        self.calm = False
        self.ledger_writes = 0
        """How many came to where ``Weather.dies`` says."""
        self.release = ExitStack()
        """What the release that is installed does otherwise."""
        self.generation = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.groups = GroupLoad(self.cluster, Random(self.seed), kueues=self.weather.kueues)

    # -- running ---------------------------------------------------------------------------------------------------

    async def run(
        self, jobs: int, busy_seconds: float, settle_seconds: float = 900, *, upto: int | None = None
    ) -> None:
        """Run the whole story: load under faults, then calm, then everything must have come to rest.

        With ``upto`` users stop after so many of the jobs: the same story, cut short.
        """
        bugs = self.bugs.present() if self.weather.bugs else nullcontext()
        few = scaled(self.weather.page_bytes, shapes=self.weather.many_shapes)
        with few, read_once(), bugs, self.release:
            await self._run(jobs, busy_seconds, settle_seconds, upto)

    async def _run(self, jobs: int, busy_seconds: float, settle_seconds: float, upto: int | None) -> None:
        await self.cluster.start()
        await self.load.prepare()
        if self.weather.adopted:
            await self.load.run_before(*(orphans.old_jobs(self.seed) if self.weather.orphaned else (["Job"] * 3,)))
            self.invariants.gpus_max = sum(NOMINAL_GPUS.values()) if self.weather.all_in_queues else None
        if self.invariants.running is not None:
            self.invariants.running.take_stored(self.cluster.server.store)
        slow = reviews.slow(self.seed, self.weather.slow_on_pods_seconds)
        self.cluster.server.admission.register(*reviews.registrations(self._review, self._is_refused, slow))
        for number in range(2):
            self._start_webhook(f"webhook-{number}")
        for number in range(2):
            self.start_reconciler(f"reconciler-{number}")
        happening = [
            self._restore(busy_seconds),
            gating.gate_and_ungate(self, busy_seconds),
            self._refuse(busy_seconds),
            self._unlist(busy_seconds),
            self.shut_kinds.run(self.weather.shut, busy_seconds, last_stays=self.weather.shut_until_rest),
            self.churn.run(self.weather.churn, busy_seconds),
            fences.change(self.cluster, Random(self.seed), self.weather.fences, busy_seconds),
            self.node_churn.run(self.weather.node_churn, busy_seconds),
            self._lose_ledger(busy_seconds),
            self._hold(busy_seconds),
            backups.put_back(self, busy_seconds),
            edits.edit(self, busy_seconds),
            orphans.leave(self, busy_seconds),
            replacements.lose_pods(self, busy_seconds),
            self.lent.lend(self.weather.lent, busy_seconds),
            releases.install(self, busy_seconds),
            partitions.cut_off(self, busy_seconds),
            self.groups.run(self.weather.pod_groups, busy_seconds),
            self.ensembles.run(self.weather.ensembles, busy_seconds),
            self.hostile.run(self.weather.hostile, busy_seconds),
        ]
        under_way = [self.spawn(each) for each in happening]
        stop_watching = self.invariants.watch()
        if self.weather.limited:
            self.run_times.watch()
        if self.neighbours is not None:
            self.spawn(self.neighbours.listen(self.parts))
        try:
            await self.load.run(jobs, busy_seconds, jobs if upto is None else upto)
            for each in under_way:
                await each
            self._calm_down()
            if self.bugs.mend():
                # Each process remembers on which gangs it failed.
                for name in self.end_reconcilers():
                    self.start_reconciler(name)
            await self.shut_kinds.answer_again()
            await self.hostile.leave()
            self.ensembles.disturbing = False
            await self.load.lift_holds()
            await self._settle(settle_seconds)
        finally:
            self.groups.stop()
            self.ensembles.stop()
            stop_watching()
            await self._stop()
        if self.neighbours is not None:
            self.neighbours.close()

    async def _settle(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(5)
            if not self._unfinished():
                # A leader that died last is succeeded within this time.
                await asyncio.sleep(20)
                if self.invariants.reserved:
                    # A watch that fell silent is given up after so long; until then it may hide that pods are gone.
                    await asyncio.sleep(IDLE_SECONDS + 20)
                break
        if self.weather.kept:
            await self.load.let_go()
        self.invariants.at_rest(self._unfinished(), self._reasons())
        if self.weather.punctual:
            self.invariants.limits_were_kept(self.load.overran())

    def _unfinished(self) -> dict[tuple[str, str], str]:
        return self.load.unfinished() | self.groups.unfinished() | self.ensembles.unfinished()

    def _reasons(self) -> dict[str, str]:
        """Why each job waits, as the leader says."""
        leaders = [parts for parts in self.parts.values() if parts.reconciler.leading]
        return {job.key: str(parts.reconciler.reason(uid)) for parts in leaders for uid, job in parts.view.jobs.items()}

    def _calm_down(self) -> None:
        self.calm = True
        for replica in self.replicas.values():
            replica.api.thaw()
            if replica.api.faults is not None:
                replica.api.faults.rates = CALM

    async def _stop(self) -> None:
        for task in [*(replica.task for replica in self.replicas.values()), *self._tasks]:
            task.cancel()
        await asyncio.gather(*(r.task for r in self.replicas.values()), *self._tasks, return_exceptions=True)
        await self.cluster.stop()

    # -- processes -------------------------------------------------------------------------------------------------

    def start_reconciler(self, name: str) -> None:
        """Start a process under this name, which remembers nothing."""
        self.generation += 1
        clock, on_date = self._clock()
        api = self._api(ACCOUNT, lambda point: self._maybe_die(name, point), on_date)
        identity = f"{name}-{self.generation}"
        parts = reconciler_parts.reconciler(
            api,
            self.config,
            identity=identity,
            clock=clock,
            rng=Random(self.rng.getrandbits(64)),
            **self.deaths.of(identity),
        )
        if not self.weather.deadlines:
            parts.terms.held = nullcontext  # type: ignore[method-assign,assignment]
        self.invariants.watch_cycles(parts)
        self.kept_nodes.watch(parts)
        self.parts[name] = parts
        self.replicas[name] = Replica(api, self.spawn(self._live(name, parts)))
        self.deaths.watch(identity, self.replicas[name].task)

    async def _live(self, name: str, parts: reconciler_parts.ReconcilerParts) -> None:
        restores = self.cluster.server.store.restores
        try:
            await parts.run()
        except* SetBack as back:
            if self.cluster.server.store.restores == restores:
                self.invariants.note(f"{name} ended, though no backup was restored: {back.exceptions[0]}")
            self.restart_later(name)

    def _start_webhook(self, name: str) -> None:
        clock, on_date = self._clock()
        api = self._api(READER, None, on_date)
        parts = webhook_parts.webhook(
            api,
            self.config,
            identity=name,
            clock=clock,
            rng=Random(self.rng.getrandbits(64)),
            peers=lambda: {peer: f"sim://{peer}" for peer in ("webhook-0", "webhook-1")},
            forwarder=PeerlessForwarder,
            started_seconds=asyncio.get_running_loop().time(),
        )
        assert isinstance(parts.forwarder, PeerlessForwarder)
        parts.forwarder.handlers = self.handlers
        self.handlers[name] = parts.handler
        self.replicas[name] = Replica(api, self.spawn(parts.run()))

    def _api(self, user: User, on_write: Any, on_date: Callable[[float], object] | None) -> SimulatedApi:
        plan = FaultPlan(Random(self.rng.getrandbits(64)), CALM if self.calm else self.weather.rates)
        return self.cluster.api(user, plan, on_write, on_date)

    def _clock(self) -> tuple[Clock, Callable[[float], object] | None]:
        """Return the clock of a process that starts on one of the machines, and what is told the API server's time."""
        apart, now = self.weather.clocks_apart_seconds, LoopClock().now()
        if not apart:
            return LoopClock(), None
        # A generator of its own: whose clock is wrong changes nothing else of a story.
        off_seconds = Random(f"{self.seed} {now} {self.generation}").uniform(-apart, apart)
        clock = ApiServersClock(wall=lambda: now + off_seconds, elapsed=asyncio.get_running_loop().time)
        return clock, clock.heard

    def _maybe_die(self, name: str, point: WritePoint) -> None:
        if self.calm:
            return
        replica = self.replicas[name]
        if point.path.startswith(CONFIG_MAPS) and point.phase == self.weather.dies:
            self.ledger_writes += 1
            if self.ledger_writes in self.weather.dies_at:
                self._kill(name, replica)
                return
        if self.rng.random() < self.weather.crash:
            self._kill(name, replica)
        elif self.rng.random() < self.weather.freeze:
            replica.api.freeze()
            self.spawn(self._thaw_later(replica))

    def _kill(self, name: str, replica: Replica) -> None:
        replica.api.sever()
        asyncio.get_running_loop().call_soon(replica.task.cancel)
        self.restart_later(name)

    def restart_later(self, name: str) -> None:
        """Start a reconciler again, after a while."""
        self.spawn(self._restart(name, self.replicas[name]))

    async def _restart(self, name: str, ended: Replica) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, 8))
        # Of two writes at once each may have ended it.
        if self.replicas[name] is ended:
            self.start_reconciler(name)

    async def _thaw_later(self, replica: Replica) -> None:
        await asyncio.sleep(self.rng.uniform(0.5, 30))
        replica.api.thaw()

    async def _restore(self, busy_seconds: float) -> None:
        if not self.weather.restored:
            return
        chance = Random(self.seed)
        await asyncio.sleep(chance.uniform(0.2, 0.7) * busy_seconds)
        backup, ledger = self.cluster.server.store.backup(), self.invariants.ledger.version
        await asyncio.sleep(chance.uniform(1, 30))
        bumped = chance.random() < 0.5
        if not bumped and self.invariants.ledger.version == ledger:
            # One number means two states from now on, and the ledger shows it to nobody: only those who restored it do.
            self.restart_webhooks()
            for name in self.end_reconcilers():
                self.restart_later(name)
        with self.invariants.set_back():
            self.cluster.restore(backup, bumped=bumped)

    async def _hold(self, busy_seconds: float) -> None:
        """Where it is rare that an owner stops what was adopted, or waited by its namespace alone, owners do."""
        if self.weather.adopted:
            await self.owners.hold(3, busy_seconds / 2, lambda job: job["metadata"]["name"].startswith(OLD))
        if self.weather.ungated:
            await self.owners.hold(4, busy_seconds, gating.without_queue)

    async def _refuse(self, busy_seconds: float) -> None:
        chance = Random(self.seed)
        for _ in range(self.weather.refused):
            await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / self.weather.refused))
            job = self.load.any_job()
            if job is not None:
                self.refused.add(job)
                asyncio.get_running_loop().call_later(chance.uniform(1, 150), self.refused.discard, job)

    async def _unlist(self, busy_seconds: float) -> None:
        chance, unlistable = Random(self.seed), self.cluster.router.unlistable
        for _ in range(self.weather.unlisted):
            await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / self.weather.unlisted))
            kind = chance.choice(UNLISTABLE)
            unlistable.add(kind)
            self.restart_webhooks()
            for name in self.parts:
                self._kill(name, self.replicas[name])
            await asyncio.sleep(chance.uniform(30, 60))
            if self.weather.crash == 0:
                assert any(parts.reconciler.leading for parts in self.parts.values()), f"nobody leads without {kind}"
                assert all(handler.view.synced for handler in self.handlers.values()), (
                    f"no webhook is ready without {kind}"
                )
            unlistable.discard(kind)

    def restart_webhooks(self) -> None:
        """End all webhooks, and begin others that remember nothing."""
        for name in sorted(self.handlers):
            self.replicas[name].api.sever()
            self.replicas[name].task.cancel()
            self._start_webhook(name)

    async def _lose_ledger(self, busy_seconds: float) -> None:
        chance, admin = Random(self.seed), self.cluster.api()
        path = f"{CONFIG_MAPS}/{LEDGER_NAME}"
        for _ in range(self.weather.ledger_lost):
            await asyncio.sleep(chance.uniform(0, 2 * busy_seconds / self.weather.ledger_lost))
            with suppress(ApiError):
                damaged = chance.choice([path, *await ledger_pages(self.cluster)]) if self.weather.page_bytes else path
                if chance.random() < 0.5:
                    await admin.request("DELETE", damaged)
                else:
                    edit = b'{"data": {"meta": "something else"}}'
                    await admin.request("PATCH", damaged, body=edit, content_type=MERGE_PATCH)

    def end_reconcilers(self) -> list[str]:
        """End all there are, as if their machines went away; return their names."""
        running = [name for name in sorted(self.parts) if not self.replicas[name].task.done()]
        for name in running:
            self.replicas[name].api.sever()
            self.replicas[name].task.cancel()
        return running

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Have something done beside everything else; it ends with the story."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- admission -------------------------------------------------------------------------------------------------

    async def _review(self, path: str, body: bytes) -> bytes:
        handler = self.handlers[self.rng.choice(sorted(self.handlers))]
        await asyncio.sleep(self.rng.uniform(0, 0.01))
        status, answer = await handler.review(path, body, 2.5)
        if status != 200 or FAILED in answer:
            # Who asked is refused, as by any webhook that fails, and tries again later: nobody else would notice.
            self.invariants.note(f"a review failed: {status} {answer.decode()}")
        if self.neighbours is not None:
            self.neighbours.answered(body, answer)
        return answer

    def _is_refused(self, request: Any) -> bool:
        ours = request["userInfo"]["username"] == ACCOUNT.name
        return ours and (request.get("namespace"), request.get("name")) in self.refused


async def simulate(seed: int, weather: Weather, jobs: int = 12, busy_seconds: float = 60) -> World:
    """Run one seed; a failure says which."""
    world = World(seed, weather)
    try:
        await world.run(jobs, busy_seconds)
    except BaseException as error:
        with suppress(Exception):
            error.add_note(f"replay with: python -m pytest tests/simulation --seed {seed}")
        raise
    return world
