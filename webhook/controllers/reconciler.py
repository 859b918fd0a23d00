"""The loop that decides: watches mark what changed, one cycle decides, one write records it, then the effects follow.

A follower runs the same engine over the same view without writing, so that its answers agree and fail-over is warm.
Only the leader decides, writes the ledger and touches jobs. Order within a cycle (DESIGN §5): the objects a decision
rests on were read before the ledger write that authorises it; a start carries the uid and resourceVersion read then.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from webhook import metrics
from webhook.clock import Clock
from webhook.config import Config
from webhook.controllers import gangs, namespaces, rebuild
from webhook.controllers.announce import Announcer
from webhook.controllers.assess import Step, assess
from webhook.controllers.effects import Effect, Effects
from webhook.controllers.ledger_keeper import LedgerBroken, LedgerKeeper
from webhook.controllers.pod_proof import PodProof
from webhook.controllers.recovery import Recovery
from webhook.controllers.whole import WholeGangs
from webhook.core import ledger as records
from webhook.core.engine import Engine, Plan
from webhook.core.gang import Gang
from webhook.core.ledger import Ledger, Reservation
from webhook.core.pods import PodRecord
from webhook.core.reasons import Code, Reason
from webhook.core.settings import EngineSettings
from webhook.errors import ApiError, Conflict
from webhook.feeds import Feeds
from webhook.jobs import patches
from webhook.jobs.editing import Patch
from webhook.jobs.record import JobRecord, Requeue
from webhook.kube.api import Api
from webhook.view import View

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 1.0
"""Time-outs, renewals and labels are looked at this often."""


@dataclass(slots=True)
class Batch:
    """What one cycle will write: ledger entries first, then effects."""

    put: dict[str, Reservation] = field(default_factory=dict)
    drop: set[str] = field(default_factory=set)
    effects: dict[str, Effect] = field(default_factory=dict)
    starts: list[JobRecord] = field(default_factory=list)


class Reconciler:
    """One cluster's reconciler: the listener of its feeds and, while it leads, the writer of its ledger."""

    def __init__(
        self, api: Api, feeds: Feeds, keeper: LedgerKeeper, *, config: Config, clock: Clock, announcer: Announcer
    ) -> None:
        self._api = api
        self._feeds = feeds
        self._view: View = feeds.view
        self._keeper = keeper
        self._config = config
        self._clock = clock
        self._announcer = announcer
        self.engine = Engine(EngineSettings(fair_sharing=config.fair_sharing.preemption_strategies))
        self._effects = Effects(api, feeds.kinds, config.effects_in_flight, self._effect_done)
        self._recovery = Recovery(api, feeds, keeper, self._effects, config=config, clock=clock)
        self._whole = WholeGangs(config.start)
        self._proof = PodProof(api, feeds, self._mark)
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        self._policy_dirty = True
        self._withheld: dict[str, Reason] = {}
        self._submitted: dict[str, Gang] = {}
        self._requeues: dict[str, Requeue] = {}
        self._voided: set[str] = set()
        self._charged: dict[str, tuple[Reservation, Mapping[str, int]]] = {}
        """What engine and fences were last told of a running gang."""
        self._reserved: set[str] = set()
        """Uids that the engine charges."""
        self._last_commit = 0.0
        self._last_tick = 0.0
        self._labelling: asyncio.Task[None] | None = None
        self._full = False
        self.leading = False
        self.after_cycle: Callable[[], None] = lambda: None
        """Called after each cycle; the simulation checks its invariants there."""

    # -- listening: only marks what changed ------------------------------------------------------------------------

    def job_changed(self, old: JobRecord | None, new: JobRecord | None) -> None:
        """Mark a job."""
        changed = new or old
        assert changed is not None
        self._mark(changed.uid)

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Mark the gang of a pod, and its namespace when room may have come free."""
        for pod in (old, new):
            if pod is not None and pod.gang is not None:
                self._mark(pod.gang)
        if old is not None and (new is None or new.terminal or new.gang != old.gang):
            self.engine.wake_namespace(old.namespace)
            self._wake.set()

    def fences_changed(self, namespace: str) -> None:
        """A ResourceQuota changed: gangs parked on it are looked at again."""
        self.engine.wake_namespace(namespace)
        self._mark_namespace(namespace)

    def pod_group_changed(self, namespace: str, name: str) -> None:
        """Mark the gangs that belong to a PodGroup."""
        for job in self._view.gangs_in(namespace):
            if job.gang is not None and job.gang.pod_group == name:
                self._mark(job.uid)

    def namespace_changed(self, name: str) -> None:
        """Labels decide what may wait and which queues serve it."""
        self._policy_dirty = True
        self._mark_namespace(name)

    def policy_changed(self) -> None:
        """Take the new policy at the next cycle."""
        self._policy_dirty = True
        self._wake.set()

    def ledger_changed(self) -> None:
        """A follower takes the leader's ledger; a leader checks that nobody else wrote."""
        if not self.leading:
            self._load(self._view.ledger)
        self._wake.set()

    def _mark(self, uid: str) -> None:
        self._dirty.add(uid)
        self._wake.set()

    def _mark_namespace(self, namespace: str) -> None:
        for job in self._view.gangs_in(namespace):
            self._mark(job.uid)

    # -- questions -------------------------------------------------------------------------------------------------

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, or None when it does not."""
        if self._full and self.engine.position(uid) is not None:
            return Reason(
                Code.LEDGER_FULL,
                f"the ledger has {self._keeper.size_bytes} of {records.BYTES_MAX} bytes",
                help="it waits until other gangs end",
            )
        return self._withheld.get(uid) or self.engine.reason(uid)

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow until the lease can be taken, then lead until cancelled. Raises LeaseLost when leadership ends."""
        await self._feeds_synced()
        self._load(self._view.ledger)
        self._dirty.update(self._view.jobs)
        following = asyncio.create_task(self._follow(), name="follower")
        try:
            while not await self._keeper_campaign():
                if following.done():
                    following.result()
                await asyncio.sleep(self._config.lease.retry_seconds)
        finally:
            following.cancel()
        self.leading = True
        try:
            await self._lead()
        finally:
            self.leading = False
            self._effects.cancel()
            self._proof.cancel()

    async def _keeper_campaign(self) -> bool:
        try:
            return await self._keeper.campaign()
        except ApiError as error:
            log.info("campaign.failed", error=str(error))
            return False

    async def _feeds_synced(self) -> None:
        while not self._view.synced:
            await asyncio.sleep(0.05)

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._take_policy()
            self._absorb(Batch(), act=False)
            await asyncio.sleep(TICK_SECONDS / 4)

    async def _lead(self) -> None:
        if self._keeper.ledger is None:
            await self._recover(LedgerBroken("there is no ledger yet, or none that can be read"))
        assert self._keeper.ledger is not None
        self._view.set_ledger(self._keeper.ledger)
        self._load(self._keeper.ledger)
        self._dirty.update(self._view.jobs)
        self._dirty.update(self._keeper.ledger.entries)
        self._wake.set()
        while True:
            await self._pause()
            try:
                await self._cycle()
            except LedgerBroken as error:
                await self._recover(error)

    async def _pause(self) -> None:
        now, loop = self._clock.now(), asyncio.get_running_loop()
        next_wake = self.engine.next_wake(now)
        limit = TICK_SECONDS if next_wake is None else min(TICK_SECONDS, max(0.0, next_wake - now))
        try:
            async with asyncio.timeout(limit):
                await self._wake.wait()
        except TimeoutError:
            pass
        # Group commit: everything that happens within the window is one ledger write.
        window = max(self._config.commit_window_seconds, self._keeper.size_bytes / self._config.ledger_bytes_per_second)
        await asyncio.sleep(max(0.0, self._last_commit + window - loop.time()))
        self._wake.clear()

    async def _cycle(self) -> None:
        now, batch = self._clock.now(), Batch()
        with metrics.CYCLE_SECONDS.time():
            self._take_policy()
            self._absorb(batch, act=True)
            if asyncio.get_running_loop().time() - self._last_tick >= TICK_SECONDS:
                self._tick(batch, now)
            self._decide(batch, now)
        if batch.put or batch.drop or batch.starts or self._keeper.renew_due:
            self._last_commit = asyncio.get_running_loop().time()
            ledger = await self._keeper.commit(batch.put.values(), batch.drop)
            self._view.set_ledger(ledger)
        assert self._keeper.ledger is not None
        for job in batch.starts:
            reservation = self._keeper.ledger.entries.get(job.uid)
            if reservation is not None and reservation.stopping is None:
                operations = patches.start(
                    job,
                    reservation,
                    self._keeper.ledger.version,
                    self._view.policy.flavors,
                    kinds=self._feeds.kinds,
                )
                batch.effects[job.uid] = Effect("start", job, operations)
        for effect in batch.effects.values():
            self._effects.start(effect)
        self.after_cycle()

    # -- taking in what changed ------------------------------------------------------------------------------------

    def _take_policy(self) -> None:
        if self._policy_dirty:
            self._policy_dirty = False
            self.engine.set_policy(self._view.policy, dict(self._view.namespaces), self._clock.now())

    def _load(self, ledger: Ledger) -> None:
        """Make engine and fences agree with a ledger that was read."""
        for uid in self._reserved - ledger.entries.keys():
            self.engine.release(uid)
            self._dirty.add(uid)
        self._reserved = set(ledger.entries)
        self._charged.clear()
        for uid, reservation in ledger.entries.items():
            job = self._view.jobs.get(uid)
            self.engine.restore(reservation, self._view.gang_of(job), None if job is None else job.reclaimed)
            self._submitted.pop(uid, None)
            self._dirty.add(uid)

    def _absorb(self, batch: Batch, *, act: bool) -> None:
        dirty, self._dirty = self._dirty, set()
        for uid in sorted(dirty):
            job = self._view.jobs.get(uid)
            if self._effects.busy(uid) or (job is not None and self._effects.stale(job)):
                # Its next version is on its way; the watch or the end of the patch marks it again.
                continue
            try:
                self._absorb_one(uid, job, batch, act=act)
            except Exception:
                # One object that we mishandle must not stop all others.
                metrics.BROKEN_JOBS.inc()
                log.exception("job.broken", uid=uid, job=None if job is None else job.key)
                self._withheld[uid] = Reason(Code.UNREADABLE, "Tutti failed on this job; its log has the reason")

    def _absorb_one(self, uid: str, job: JobRecord | None, batch: Batch, *, act: bool) -> None:
        reservation = self._view.ledger.entries.get(uid)
        present = self._view.fences.present(reservation.namespace, uid) if reservation else self._present(job)
        step = assess(job, reservation, present, uid in self._voided)
        self._queueing(step, uid, job)
        if act:
            self._act(step, job, reservation, batch)
        if reservation is not None and job is not None and step in (Step.NOTHING, Step.GROW):
            self._reclaim(job, reservation)

    def _present(self, job: JobRecord | None) -> int:
        return 0 if job is None else self._view.fences.present(job.namespace, job.uid)

    def _queueing(self, step: Step, uid: str, job: JobRecord | None) -> None:
        """Keep the engine's waiting gangs in step."""
        gang = gangs.waiting_gang(job, self._view) if step is Step.WAIT and job is not None else None
        if isinstance(gang, Gang):
            self._withheld.pop(uid, None)
            if self._submitted.get(uid) != gang:
                self._submitted[uid] = gang
                self.engine.submit(gang, self._clock.now())
                self._announcer.queued(uid)
            return
        if self._submitted.pop(uid, None) is not None and step in (Step.WAIT, Step.WITHDRAW, Step.RESTORE):
            self.engine.withdraw(uid)
        if isinstance(gang, Reason):
            self._withheld[uid] = gang
            self._announcer.queued(uid)
        else:
            self._withheld.pop(uid, None)

    def _reclaim(self, job: JobRecord, reservation: Reservation) -> None:
        if self._charged.get(job.uid) == (reservation, job.reclaimed):
            return
        self._charged[job.uid] = (reservation, job.reclaimed)
        self._view.fences.put_reservation(reservation, job.reclaimed)
        self.engine.restore(reservation, self._view.gang_of(job), job.reclaimed)

    # -- one gang's next step --------------------------------------------------------------------------------------

    def _act(self, step: Step, job: JobRecord | None, reservation: Reservation | None, batch: Batch) -> None:
        match step:
            case Step.RELEASE if reservation is not None:
                if reservation.adopted or self._proof.holds(reservation.uid, reservation.kind):
                    self._release(reservation, batch)
            case Step.HOLD if reservation is not None:
                self._stop(reservation, "Held", batch)
            case Step.ADOPT if job is not None and job.gang is not None:
                self._adopt(job, job.gang, reservation, batch)
            case Step.START if job is not None:
                batch.starts.append(job)
            case Step.STOP | Step.VOID | Step.SUSPEND if job is not None:
                requeue = self._requeue(job, reservation)
                held = reservation is not None and reservation.stopping == "Held"
                # A start removes the re-queue annotation: one without a hold beside it means that the owner has lifted
                # the hold already, while the last of its pods were ending.
                held = held and (job.requeue is None or job.held)
                self._write(step, job, patches.stop(job, requeue, held, kinds=self._feeds.kinds), batch)
            case Step.GROW | Step.RESTORE if job is not None:
                self._write(step, job, patches.grow(job, reservation) if reservation else patches.restore(job), batch)

    def _write(self, step: Step, job: JobRecord, patch: Patch, batch: Batch) -> None:
        if patch:
            batch.effects[job.uid] = Effect(step.value, job, patch)

    def _adopt(self, job: JobRecord, gang: Gang, reservation: Reservation | None, batch: Batch) -> None:
        assert self._keeper.ledger is not None
        if reservation is None:
            epoch, now = self._keeper.ledger.epoch, self._clock.now()
            batch.put[job.uid] = rebuild.adopted(job, gang, self._view.policy, epoch, now)
            self.engine.restore(batch.put[job.uid], gang, job.reclaimed)
            self._reserved.add(job.uid)
        else:
            self._write(Step.ADOPT, job, patches.adopt(job, reservation, self._keeper.ledger.version), batch)

    def _release(self, reservation: Reservation, batch: Batch) -> None:
        uid = reservation.uid
        batch.put.pop(uid, None)
        batch.drop.add(uid)
        self.engine.release(uid)
        self._reserved.discard(uid)
        self._charged.pop(uid, None)
        self._view.fences.drop_reservation(reservation.namespace, uid)
        self.engine.wake_namespace(reservation.namespace)
        self._whole.forget(uid, gone=uid not in self._view.jobs)
        self._voided.discard(uid)
        self._proof.forget(uid)
        self._requeues.pop(uid, None)
        self._submitted.pop(uid, None)
        if uid not in self._view.jobs:
            self._effects.forget(uid)
        # Once the entry is gone the job may wait again.
        self._mark(uid)

    def _stop(self, reservation: Reservation, why: str, batch: Batch) -> None:
        if not self._feeds.kinds[reservation.kind].evictable:
            # Suspending it would leave its pods: its quota could not be given to anybody.
            log.warning("gang.not_evictable", job=str(reservation), why=why)
            return
        stopping = replace(reservation, stopping=why)
        batch.put[reservation.uid] = stopping
        self.engine.restore(stopping)
        self._view.fences.put_reservation(stopping)
        self._voided.discard(reservation.uid)
        metrics.EVICTED.labels(reservation.queue or "", why).inc()
        self._announcer.stopped(reservation, why, self._requeues.get(reservation.uid))
        self._mark(reservation.uid)

    def _requeue(self, job: JobRecord, reservation: Reservation | None) -> Requeue:
        known = self._requeues.get(job.uid)
        if known is not None:
            return known
        place = job.gang.created_seconds if job.gang is not None else job.created_seconds
        why = "NotAdmitted" if reservation is None or reservation.stopping is None else reservation.stopping
        return Requeue(why, place, job.requeue.attempts if job.requeue else 0)

    # -- what time brings ------------------------------------------------------------------------------------------

    def _tick(self, batch: Batch, now: float) -> None:
        self._last_tick = asyncio.get_running_loop().time()
        for uid, reservation in self._view.ledger.entries.items():
            job = self._view.jobs.get(uid)
            if job is None or reservation.stopping is not None or uid in batch.put or uid in batch.drop:
                self._dirty.add(uid)
                continue
            why = self._whole.overdue(job, reservation, self._view, now)
            if why is not None:
                self._requeues[uid] = self._whole.requeue(uid, why, now)
                self._stop(reservation, "StartTimeout", batch)
        if self._labelling is None or self._labelling.done():
            wanted = namespaces.wanted_labels(self._view, {job.namespace for job in self._view.jobs.values()})
            # Beside the cycle: an API server that does not answer must not cost the lease.
            self._labelling = asyncio.create_task(namespaces.write_labels(self._api, wanted), name="namespace labels")
        self._announcer.tick(now, self.reason)

    def _decide(self, batch: Batch, now: float) -> None:
        assert self._keeper.ledger is not None
        self._full = self._keeper.size_bytes >= records.FULL_AT * records.BYTES_MAX
        plan = self.engine.cycle(now, self._view.fences, self._keeper.ledger.epoch, admit=not self._full)
        self._take_plan(plan, batch, now)

    def _take_plan(self, plan: Plan, batch: Batch, now: float) -> None:
        for reservation in plan.admitted:
            job = self._view.jobs.get(reservation.uid)
            gang = self._submitted.pop(reservation.uid, None)
            if job is None or gang is None or self._effects.busy(reservation.uid):
                self._submitted.pop(reservation.uid, None)
                self.engine.release(reservation.uid)
                self._view.fences.drop_reservation(reservation.namespace, reservation.uid)
                self._mark(reservation.uid)
                continue
            batch.put[reservation.uid] = reservation
            self._reserved.add(reservation.uid)
            batch.starts.append(job)
            self._whole.admitted(job)
            metrics.ADMITTED.labels(reservation.queue or "").inc()
            metrics.WAIT_SECONDS.observe(max(0.0, now - gang.created_seconds))
            self._announcer.admitted(reservation)
        for grown in plan.grown:
            if grown.uid in self._view.ledger.entries and grown.uid not in batch.drop:
                batch.put[grown.uid] = grown
                self._view.fences.put_reservation(grown)
                self._mark(grown.uid)
        for preempted in plan.preempted:
            reservation_or_none = batch.put.get(preempted.uid) or self._view.ledger.entries.get(preempted.uid)
            job = self._view.jobs.get(preempted.uid)
            if reservation_or_none is None or preempted.uid in batch.drop:
                continue
            place = job.gang.created_seconds if job is not None and job.gang is not None else now
            self._requeues[preempted.uid] = Requeue("Preempted", place, 0, 0.0, preempted.message)
            self._stop(reservation_or_none, "Preempted", batch)
        for uid, why in plan.stopped:
            stopped = batch.put.get(uid) or self._view.ledger.entries.get(uid)
            if stopped is not None and stopped.stopping is None and uid not in batch.drop:
                self._stop(stopped, why, batch)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _effect_done(self, effect: Effect, failure: ApiError | None) -> None:
        uid = effect.job.uid
        if failure is None:
            if effect.name in (Step.STOP, Step.VOID):
                self._voided.add(uid)
            self._mark(uid)
            return
        current = self._view.jobs.get(uid)
        if isinstance(failure, Conflict) and (
            current is None or current.resource_version != effect.job.resource_version
        ):
            self._mark(uid)
            return
        delay = self._effects.retry_delay_seconds(uid) or TICK_SECONDS
        asyncio.get_running_loop().call_later(delay, self._mark, uid)

    async def _recover(self, broken: LedgerBroken) -> None:
        self._view.ledger_trusted = False
        ledger = await self._recovery.run(broken)
        self._view.set_ledger(ledger)
        self._load(ledger)
        self._dirty.update(self._view.jobs)
        self._announcer.rebuilt(str(broken), ledger)
        self._wake.set()
