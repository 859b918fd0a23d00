"""The loop that decides: watches mark what changed, one cycle decides, one write records it, then the effects follow.

A follower runs the same engine over the same view without writing, so that its answers agree and fail-over is warm.
Only the leader decides, writes the ledger and touches jobs. Order within a cycle (rules 3 and 5 of the ledger): what a
decision rests on was read before the ledger write that authorises it; a start carries the uid and resourceVersion read.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from webhook import metrics
from webhook.clock import Clock
from webhook.cluster import waiting
from webhook.cluster.feeds import Feeds
from webhook.cluster.view import View
from webhook.config import Config, engine_settings
from webhook.controllers.gang_record import Event, GangRecords, Phase
from webhook.controllers.gangs import gated_pods, siblings, silent_hubs
from webhook.controllers.gangs.assess import Step
from webhook.controllers.gangs.next_step import next_step
from webhook.controllers.gangs.pod_proof import PodProof
from webhook.controllers.gangs.stops import Stops
from webhook.controllers.ledger.errors import GangFailed, LedgerBroken
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.ledger_room import LedgerRoom
from webhook.controllers.ledger.recovery import Recovery
from webhook.controllers.ledger.terms import Terms
from webhook.controllers.loop.dirty_set import DirtySet
from webhook.controllers.loop.engine_feed import EngineFeed
from webhook.controllers.loop.failed_gangs import FAILED, FailedGangs, cause_of
from webhook.controllers.loop.leadership import Leadership
from webhook.controllers.loop.namespaces import NamespaceLabels
from webhook.controllers.loop.step_actions import StepActions
from webhook.controllers.reporting import queue_metrics
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.batch import Batch
from webhook.controllers.writes.effects import Effect, Effects
from webhook.core.ledger.record import Changes, Ledger
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Code, Reason
from webhook.core.scheduler.engine import Engine
from webhook.core.scheduler.plan import Plan
from webhook.errors import ApiError, Conflict, NotFound
from webhook.jobs.patches import job as patches
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 1.0
"""Time-outs, renewals and labels are looked at this often."""
OVERDUE_SECONDS: Final = 60.0
"""A controller whose job was written to stop it so long ago, and that has not stopped its pods, fails on that job."""

LOOKED_AT_MAX: Final = 5_000
"""A cycle decides about no more gangs once its searches for victims have looked at so many gangs, some 30 ms. One that
finds more alone is the last."""


class Reconciler:
    """One cluster's reconciler: it follows its feeds and, while it leads, writes its ledger."""

    def __init__(
        self, api: Api, feeds: Feeds, terms: Terms, *, config: Config, clock: Clock, announcer: Announcer
    ) -> None:
        self._api = api
        self._feeds = feeds
        self._view: View = feeds.view
        self._config = config
        self._clock = clock
        self._announcer = announcer
        self._settings = engine_settings(config)
        self.engine = EnsembleEngine(Engine(self._settings))
        self.dirty = DirtySet(feeds.view, self.engine, self._ledger_changed)
        """Listens to the feeds."""
        self._labels = NamespaceLabels(api, feeds.view)
        self._chores: asyncio.Task[None] | None = None
        """What is done besides the cycles, so that an API server that does not answer does not cost the lease."""
        self.leading = False
        self._failed = FailedGangs(feeds.view)
        self.after_cycle: Callable[[], None] = lambda: None
        """Called after each cycle; the simulation checks its invariants there."""
        self.leadership = Leadership(terms, announcer, config.lease.retry_seconds, feeds.rng)
        self.begin_term(terms.keeper)

    def begin_term(self, keeper: LedgerKeeper) -> None:
        """Remember nothing of an earlier term: what it wrote last may land yet, what it decided may never have been."""
        api, feeds, config, clock = self._api, self._feeds, self._config, self._clock
        self._keeper, view = keeper, feeds.view
        self.records = GangRecords()
        self._effects = Effects(api, feeds.kinds, self.records, config.effects_in_flight, self._effect_done)
        self._recovery = Recovery(api, feeds, keeper, self._effects, self._announcer, config=config, clock=clock)
        starting, now, mark = config.starting, clock.now, self.dirty.add
        self._stops = Stops(view, self.engine, self._announcer, self.records, start=starting, now=now, on_change=mark)
        self._proof = PodProof(api, feeds, self.records, self.dirty.add)
        self._room, self._hubs = LedgerRoom(keeper), silent_hubs.Hubs(api, view, config.silent_hub_seconds)
        self._last_commit = self._last_tick = 0.0
        self.engine.reset()
        self._failed.begin()
        self._gangs = EngineFeed(
            view, self.engine, self.records, self.dirty, self._announcer, now=clock.now, failed=self._failed
        )
        self._actions = StepActions(
            feeds=feeds,
            keeper=keeper,
            settings=self._settings,
            records=self.records,
            dirty=self.dirty,
            gangs=self._gangs,
            stops=self._stops,
            proof=self._proof,
            room=self._room,
            effects=self._effects,
            now=self._now,
        )
        feeds.follow_ledger()
        self._view.fences.set_reservations(self._view.ledger.entries.values())
        self._gangs.load(self._view.ledger)
        self.dirty.begin_term(self._stops.late_pods)

    def _ledger_changed(self, changes: Changes | None) -> None:
        """A follower takes the leader's ledger; a leader checks that nobody else wrote."""
        self.dirty.ledger_doubted |= self.leading and not self._view.ledger_trusted
        if not self.leading:
            self._gangs.load(self._view.ledger, changes)

    # -- questions -------------------------------------------------------------------------------------------------

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, or None when it does not."""
        refused = None if uid in self._view.ledger.entries else self._effects.refused(uid)
        if refused is not None:
            return waiting.write_refused(refused)
        set_aside = self._room.reason(uid)
        if set_aside is not None:
            return set_aside
        if not self.leading:
            self.engine.follow(self._clock.now(), self._view.fences, self._view.ledger.claims)
        if uid in self._failed:
            return FAILED
        if self._failed.doubted:
            return Reason(Code.PENDING_EVALUATION)
        try:
            return self._gangs.reason(uid)
        except Exception as error:
            self._failed.add(self.engine.deciding(), error)
            self.dirty.wake.set()
            return FAILED

    def _now(self) -> float:
        """Return Unix time in whole milliseconds, as the ledger keeps it: what is read again is what was written."""
        return round(self._clock.now(), 3)

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow, and lead whenever the lease can be taken, until cancelled. Raises SetBack."""
        while not self._view.synced:
            await asyncio.sleep(0.05)
        await self.leadership.run(self)

    async def end_term(self) -> None:
        """Cancel what this term has begun, and return when all of it has ended."""
        self.leading = False
        await self._effects.stop()
        await self._proof.stop()
        if self._chores is not None:
            self._chores.cancel()
            await asyncio.wait([self._chores])

    async def follow(self) -> None:
        """Keep engine and answers in step with what is read, until cancelled."""
        while True:
            await self.dirty.wake.wait()
            self.dirty.wake.clear()
            try:
                self._failed.check()
            except GangFailed:
                self.begin_term(self._keeper)
            self._take_policy()
            await self._gangs.settle_many_nodes()
            self._absorb(Batch(), act=False)
            await asyncio.sleep(0 if self.dirty.more else TICK_SECONDS / 4)

    async def lead(self) -> None:
        """Decide, write the ledger and carry out, until cancelled. Raises LeaseLost and SetBack."""
        self.leading = True
        if self._keeper.ledger is None:
            first = self._keeper.missing
            why = "there is no ledger yet" if first else "the ledger cannot be read"
            await self._recover(LedgerBroken(why, self._keeper.unreadable, first=first))
        elif broken := await self._recovery.doubt(self._keeper.ledger):
            await self._recover(broken)
        assert self._keeper.ledger is not None
        self._stops.late_pods.term_seconds = self._now()
        self._proof.expect()
        self._view.set_ledger(self._keeper.ledger)
        self._view.leads = True
        self._gangs.load(self._keeper.ledger)
        self.engine.restore_claims(self._failed.without(self._keeper.ledger.claims))
        self.engine.restore_bookings(self._keeper.ledger.bookings)
        # Most run, or have ended, and need nothing: they are looked at a few at a time, once others were decided about.
        self.dirty.add(*self.dirty.urgent(self._view.jobs.keys() | self._keeper.ledger.entries.keys()))
        while True:
            await self._pause()
            try:
                await self._cycle()
            except LedgerBroken as error:
                await self._recover(error)

    async def _pause(self) -> None:
        if not self.dirty.wake.is_set():
            await self._wait_for_work()
        # Group commit: everything that happens within the window is one ledger write.
        to_write_seconds = self._keeper.written_bytes / self._config.ledger_bytes_per_second
        rested_at = self._last_commit + max(self._config.commit_window_seconds, to_write_seconds)
        await asyncio.sleep(max(0.0, rested_at - asyncio.get_running_loop().time()))
        self.dirty.wake.clear()

    async def _wait_for_work(self) -> None:
        now = self._clock.now()
        next_wake = self.engine.next_wake(now)
        limit = TICK_SECONDS if next_wake is None else min(TICK_SECONDS, max(0.0, next_wake - now))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self.dirty.wake.wait()

    async def _cycle(self) -> None:
        self._failed.check()
        now, batch = self._now(), Batch()
        assert self._keeper.ledger is not None
        self.dirty.gangs.update(self._room.begin())
        with metrics.CYCLE_SECONDS.time():
            self._take_policy()
            await self._absorb_all(batch)
            if asyncio.get_running_loop().time() - self._last_tick >= TICK_SECONDS:
                self._tick(batch, now)
            # What was just released is for those first who lack room.
            await self._gangs.settle_many_nodes(self._keeper.renew_if_due)
            plan = self._decide(now, self._keeper.ledger.epoch)
            self._take_plan(plan, batch, now)
            await self._stops.planned(plan, now, batch)
        claims = self.engine.claims()
        changed = batch.put or batch.drop or claims != self._keeper.claims
        # That a gang runs without an entry is believed of the ledger as it is stored, not as it is remembered.
        changed = changed or any(effect.name == Step.SUSPEND for effect in batch.effects.values())
        if changed or batch.starts or batch.lifts or self._keeper.renew_due:
            self._last_commit = asyncio.get_running_loop().time()
            await self._keeper.verify(*self.dirty.take_doubts())
            # Bookings and moves are no reason for a write: they go with the next one, the lease's at the latest.
            self._gangs.write_moves(batch)
            moved = Changes(self._keeper.ledger, tuple(sorted(batch.put.keys() | batch.drop)))
            on_put = partial(self._start, batch, moved)
            await self._keeper.commit(batch.put.values(), batch.drop, claims, self.engine.bookings(), on_put)
        for released in batch.released:
            self._actions.is_released(released)
        self._carry_out(batch.effects.values())
        self.dirty.add_quiet()
        self.after_cycle()

    def _decide(self, now: float, epoch: int) -> Plan:
        """Return the engine's plan. Raises GangFailed where a bug meets one gang: all others are decided about without
        it from now on.
        """
        try:
            return self.engine.cycle(now, self._view.fences, epoch, most=self._room.most, looks=LOOKED_AT_MAX)
        except Exception as error:
            self._failed.add(self.engine.deciding(), error)
            self._failed.check()
            raise

    def _start(self, batch: Batch, moved: Changes, ledger: Ledger) -> None:
        """Start whoever ``ledger`` admits: that is stored, though not yet that others of the batch have ended."""
        self._view.set_ledger(ledger, moved)
        due = [(job, partial(self._start_of, job, ledger)) for job in batch.starts.values()]
        due += [(job, partial(gated_pods.lifting, job, pods, ledger, self._view)) for job, pods in batch.lifts.values()]
        for job, make in due:
            try:
                self._carry_out(effect for effect in [make()] if effect is not None)
            except Exception as error:
                self._broken(job.uid, job, error)

    def _start_of(self, job: JobRecord, ledger: Ledger) -> Effect | None:
        """Return the start of a job if the ledger that was just written still says so."""
        reservation = ledger.entries.get(job.uid)
        if reservation is None or reservation.stopping is not None or job.awaits_permit:
            return None
        operations = patches.start(job, reservation, ledger.version, self._view.policy.flavors, kinds=self._feeds.kinds)
        return Effect("start", job, operations, starts=True)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if not self._effects.resting(effect.job):
                self._effects.start(effect)

    def _broken(self, uid: str, job: JobRecord | None, error: Exception) -> None:
        """Take note that we failed on one job: it must not stop all others, nor fill the log at each look."""
        metrics.BROKEN_JOBS.inc()
        self._view.doubt()
        record, cause = self.records.of(uid), cause_of(error)
        if record.broken_by != cause:
            record.broken_by = cause
            log.exception("job.broken", uid=uid, job=None if job is None else job.key)
        record.withheld = FAILED

    # -- taking in what changed ------------------------------------------------------------------------------------

    def _take_policy(self) -> None:
        if self.dirty.policy:
            self.dirty.policy = False
            self.dirty.gangs.update(self._room.forget_all())
            metrics.know_queues(self._view.policy.queues)
            self.engine.set_policy(self._view.policy, dict(self._view.namespaces), self._clock.now())

    async def _absorb_all(self, batch: Batch) -> None:
        """Look at all that has changed by now: any of it may come before all others. What goes on changing waits."""
        await self._gangs.settle_many_nodes(self._keeper.renew_if_due)
        self._absorb(batch, act=True)
        for _ in range(self.dirty.rounds):
            if self.dirty.more:
                await asyncio.sleep(0)
                await self._keeper.renew_if_due()
                self._take_policy()
                self._absorb(batch, act=True)
        self.dirty.add(*batch.again)

    def _absorb(self, batch: Batch, *, act: bool) -> None:
        self._gangs.settle_nodes()
        self._gangs.settle_reach()
        for uid in self.dirty.take():
            job = self._view.jobs.get(uid)
            self._stops.changed(uid)
            if batch.has(uid):
                # Such as by what befell another job of its ensemble: it is looked at again when that is stored.
                batch.again.add(uid)
                continue
            if self._effects.busy(uid) or (job is not None and self._effects.stale(job)) or self._pods_lag(uid, job):
                # Its next version is on its way; the watch or the end of the patch marks it again.
                continue
            try:
                self._absorb_one(uid, job, batch, act=act)
            except Exception as error:
                self._broken(uid, job, error)

    def _absorb_one(self, uid: str, job: JobRecord | None, batch: Batch, *, act: bool) -> None:
        reservation = self._view.ledger.entries.get(uid)
        if job is None:
            self._failed.forget(uid)
        elif uid in self._failed and reservation is None and job.finished is None:
            self.records.of(uid).withheld = FAILED
            return
        if act and reservation is not None and self._stops.lower(reservation, batch):
            reservation = batch.put[uid]
        if act and reservation is not None and siblings.leaves(job, reservation):
            self._stops.leave(job, reservation, batch)
            reservation = batch.put[uid]
        record, now = self.records.of(uid), asyncio.get_running_loop().time()
        voided, refused = record.phase is Phase.VOIDED, self._effects.refused(uid) is not None
        overdue = voided and now - record.written_at >= OVERDUE_SECONDS
        step = next_step(self._view, self._feeds.kinds, job, reservation, voided, refused=refused, overdue=overdue)
        if act and step is Step.WAIT and job is not None and (self._stops.owes(job) or refused):
            # Of one that cannot be written at all nothing could be started.
            step = Step.VOID
        self._gangs.queue(step, uid, job, self._room.holds_back(uid, None if job is None else job.gang))
        if act:
            self._actions.act(step, job, reservation, batch)
        if reservation is not None and job is not None and step in (Step.NOTHING, Step.GROW, Step.LIFT):
            self._gangs.reclaim(job, reservation)
        rests = step in (Step.NOTHING, Step.WITHDRAW) and not (reservation and siblings.leaves(job, reservation))
        if rests and job is not None and not act:
            self.dirty.can_wait(uid, runs=reservation is not None)
        if job is None and reservation is None:
            self.records.forget(uid)
            self.dirty.gangs.update(self._room.forget(uid))

    def _pods_lag(self, uid: str, job: JobRecord | None) -> bool:
        """Return whether a gang's pods were written since they were read, or it was not read since leadership began."""
        gang = job or self._view.ledger.entries.get(uid)
        if gang is None:
            return False
        if (job is None or gated_pods.is_pod_group(gang)) and not self._proof.caught_up(gang.kind):
            self.dirty.lagging.add(uid)
            return True
        return self._effects.stale_pods(uid, self._view.fences.pods_of(gang.namespace, uid))

    # -- what time brings ------------------------------------------------------------------------------------------

    def _tick(self, batch: Batch, now: float) -> None:
        self._last_tick = asyncio.get_running_loop().time()
        self.dirty.add_lagging()
        for uid, reservation in self._view.ledger.entries.items():
            if self._stops.rests(uid, now) or uid in self.dirty.quiet:
                continue
            job = self._view.jobs.get(uid)
            if job is None or reservation.stopping is not None or uid in batch.put or uid in batch.drop:
                self.dirty.gangs.add(uid)
                continue
            try:
                self._stops.if_due(job, reservation, now, batch)
            except Exception as error:
                self._broken(uid, job, error)
        self._hubs.stop(self._stops, self._effects, self._feeds.kinds, batch, now)
        if self._chores is None or self._chores.done():
            self._chores = asyncio.create_task(self._do_chores(now), name="chores")
        self._announcer.unreadable(now, self._feeds.unreadable())

    async def _do_chores(self, now: float) -> None:
        await asyncio.gather(self._hubs.look(now), self._labels.keep())
        await self._recovery.quarantine.tidy(self._clock.now())
        await self._announcer.tick(now, self.reason, self.engine.partial())

    def _take_plan(self, plan: Plan, batch: Batch, now: float) -> None:
        admitted = [reservation.uid for reservation in plan.admitted]
        unfit = {uid for uid in admitted if uid not in self._view.jobs or self.records.of(uid).asked is None}
        # One whose hub has just fallen silent is being stopped.
        unfit |= {uid for uid in admitted if self._effects.busy(uid) or uid in batch.effects}
        # What has changed and was not looked at since may not be what was decided about.
        unfit |= self.dirty.gangs & set(admitted)
        unfit = siblings.with_their_siblings(unfit, plan.admitted)
        unfit |= self._room.without(plan.admitted, unfit, self._view.jobs)
        for reservation in plan.admitted:
            job = self._view.jobs.get(reservation.uid)
            record = self.records.of(reservation.uid)
            gang = record.asked
            if job is None or gang is None or reservation.uid in unfit:
                self._gangs.turned_back(reservation)
                self.dirty.add(reservation.uid)
                continue
            batch.put[reservation.uid] = reservation
            record.on(Event.ADMITTED)
            if gated_pods.is_pod_group(job):
                self._actions.lift(job, reservation, batch)
            else:
                batch.starts[job.uid] = job
            self._stops.started(reservation)
            queue_metrics.admitted(reservation, gang, self._feeds.context, now)
            self._announcer.admitted(reservation)
        for grown in plan.grown:
            known = batch.put.get(grown.uid) or self._view.ledger.entries.get(grown.uid)
            job = self._view.jobs.get(grown.uid)
            stays = job is None or grown.uid in self.dirty.gangs
            if known is not None and (stays or not self._room.takes_growth(grown, job)):
                self.engine.restore(known, self._gangs.gang_of(job), self._view.given_back(known))
                self._view.fences.put_reservation(known)
                if self._view.nodes is not None:
                    self._view.nodes.touch(grown.uid)
            elif known is not None and grown.uid not in batch.drop:
                batch.put[grown.uid] = grown
                self._view.fences.put_reservation(grown)
                self.dirty.add(grown.uid)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _effect_done(self, effect: Effect, failure: ApiError | None) -> None:
        uid = effect.job.uid
        if effect.starts:
            self.records.of(uid).started(self._now())
        if failure is None:
            if effect.name in (Step.STOP, Step.VOID):
                self._written(uid)
            self.dirty.add(uid)
            return
        if effect.name == Step.VOID and self._effects.refused(uid) is not None:
            # As in a rebuild: what refuses this would refuse a start as well.
            self._written(uid)
        current = self._view.jobs.get(uid)
        if isinstance(failure, Conflict) and (
            current is None or current.resource_version != effect.job.resource_version
        ):
            self.dirty.add(uid)
            return
        if effect.name in (Step.START, Step.LIFT) and not isinstance(failure, (Conflict, NotFound)):
            self._announcer.start_failed(uid, str(failure))
        delay = self._effects.retry_delay_seconds(uid) or TICK_SECONDS
        asyncio.get_running_loop().call_later(delay, self.dirty.add, uid)

    def _written(self, uid: str) -> None:
        record = self.records.of(uid)
        if record.phase is Phase.STOPPING:
            record.written_at = asyncio.get_running_loop().time()
        record.on(Event.WRITTEN)

    async def _recover(self, broken: LedgerBroken) -> None:
        self._view.ledger_trusted = self._view.leads = False
        ledger = await self._recovery.run(broken)
        self._view.set_ledger(ledger)
        self._view.leads = True
        self._gangs.load(ledger)
        self.dirty.gangs.update(self._view.jobs)
        if broken.first and not ledger.entries:
            self._announcer.created(ledger)
        else:
            self._announcer.rebuilt(str(broken), ledger)
        self.dirty.wake.set()
