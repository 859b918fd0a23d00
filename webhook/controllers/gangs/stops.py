"""Stopping gangs: the entries that say so, what else has to stop with them, and what each takes along.

A stop is written in the ledger first; suspending the job, and releasing the entry when the last pod is gone, follow
from that. Jobs of one ensemble whose rest could not make the quorum stop in one write.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Final

import structlog

from webhook import metrics
from webhook.cluster.view import View
from webhook.config import Start
from webhook.controllers.gang_record import Event, GangRecords
from webhook.controllers.gangs import gated_pods, requeues, siblings
from webhook.controllers.gangs.late_pods import LatePods
from webhook.controllers.gangs.pods_ready import PodsReady
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.batch import Batch
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.ledger.record import Reservation
from webhook.core.pod_group import ensemble
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.eviction import PREEMPTED, SIBLING_STOPPED, START_TIMEOUT
from webhook.core.scheduler.plan import Plan
from webhook.jobs.reading.record import JobRecord, Requeue

log = structlog.get_logger(__name__)

STOPPED_MAX: Final = 100
"""Gangs that are stopped in a row, some 10 ms."""
REMEMBERED_SECONDS: Final = 600.0
"""How long the place of plain pods that were all deleted is kept for others in their stead, after its back-off."""


class Stops:
    """Everything that is being stopped, and the clocks of what runs."""

    def __init__(
        self,
        view: View,
        engine: EnsembleEngine,
        announcer: Announcer,
        gangs: GangRecords,
        *,
        start: Start,
        now: Callable[[], float],
        on_change: Callable[[str], None],
    ) -> None:
        """``on_change`` is told the uid of each job to be looked at again."""
        self._view = view
        self._engine = engine
        self._announcer = announcer
        self._pods_ready = PodsReady(start)
        self.late_pods = LatePods(view, gangs, now)
        """To be asked before anything is released."""
        self._now = now
        self._on_change = on_change
        self._gangs = gangs
        self._owed: dict[str, tuple[Requeue, float]] = {}
        """By uid of gangs of plain pods that were all deleted: what none was left to bear, and until when it counts. It
        outlives their record."""
        self._looked_at = 0.0
        """Unix time of the last look."""
        self._looked: set[str] = set()
        """Names of the ensembles that it saw."""

    # -- what is remembered ----------------------------------------------------------------------------------------

    def started(self, reservation: Reservation) -> None:
        """Restart the clock of a gang that is admitted: its start is written once that is stored."""
        record = self._gangs.of(reservation.uid)
        record.rests_until, record.unstarted_since = 0.0, reservation.since_seconds
        self._pods_ready.forget(siblings.name_of(reservation))

    def forget(self, reservation: Reservation) -> None:
        """Drop what is remembered of an entry that is released; to be told before the engine is."""
        if not self._engine.siblings(reservation.uid):
            self._pods_ready.forget(siblings.name_of(reservation))
        record = self._gangs.of(reservation.uid)
        requeue, record.requeue = record.requeue, None
        if requeue is not None and gated_pods.outlives(reservation, self._view):
            now = self._now()
            self._owed = {uid: owed for uid, owed in self._owed.items() if owed[1] > now}
            self._owed[reservation.uid] = requeue, max(now, requeue.not_before_seconds) + REMEMBERED_SECONDS

    def owes(self, job: JobRecord) -> bool:
        """Return whether plain pods that came again must be told the place and the back-off of their gang, which was
        stopped with all that it had. Another leader does not know.
        """
        requeue, until = self._owed.get(job.uid, (None, 0.0))
        if requeue is None:
            return False
        if job.requeue is None and self._now() < until:
            self._gangs.of(job.uid).requeue = requeue
            return True
        del self._owed[job.uid]
        return False

    def requeue(self, job: JobRecord, reservation: Reservation | None) -> Requeue:
        """Return what a stop writes on ``job``."""
        record, now = self._gangs.of(job.uid), self._now()
        planned = record.requeue
        timed_out = reservation is not None and reservation.stopping == START_TIMEOUT
        if planned is None and timed_out and job.admission is not None:
            planned = self._pods_ready.requeue(job, "too few of its pods ran in time, as an earlier leader found", now)
        requeue = requeues.requeue_of(job, reservation, planned, now)
        if gated_pods.is_pod_group(job):
            record.requeue = requeue
        return requeue

    # -- stopping --------------------------------------------------------------------------------------------------

    def gang(self, reservation: Reservation, why: str, batch: Batch, requeue: Requeue | None = None) -> None:
        """Stop a gang, or one part of an ensemble that stops whole."""
        if not reservation.evictable:
            # Suspending it would leave its pods: its quota could not be given to anybody.
            log.warning("gang.not_evictable", job=str(reservation), why=why)
            return
        record = self._gangs.of(reservation.uid)
        record.on(Event.STOPPED)
        record.requeue = requeue
        stopping = replace(reservation, stopping=why)
        batch.put[reservation.uid] = stopping
        gang = self._view.gang_of(self._view.jobs.get(reservation.uid))
        self._engine.restore(stopping, gang, self._view.given_back(stopping))
        self._view.fences.put_reservation(stopping)
        metrics.EVICTED.labels(metrics.queue_label(reservation.queue), why).inc()
        self._announcer.stopped(reservation, why, requeue)
        self._on_change(reservation.uid)

    def one(self, reservation: Reservation, why: str, batch: Batch, requeue: Requeue | None = None) -> None:
        """Stop one job, and the rest of its ensemble where that cannot make the quorum without it."""
        others = siblings.to_stop_with(self._siblings(reservation.uid, batch))
        self.gang(reservation, why, batch, requeue)
        self._stop_with(reservation, others, why, batch)

    async def planned(self, plan: Plan, now: float, batch: Batch) -> None:
        """Stop those that the engine wants stopped, for others or by its own rules. The loop turns between them: one
        wide gang may have a thousand stopped.
        """
        stopped = [(each, PREEMPTED) for each in plan.preempted] + [(each, each.reason) for each in plan.stopped]
        for number, (each, why) in enumerate(stopped):
            if number % STOPPED_MAX == 0:
                await asyncio.sleep(0)
            job = self._view.jobs.get(each.uid)
            held = batch.put.get(each.uid) or self._view.ledger.entries.get(each.uid)
            if held is not None and held.stopping is None and each.uid not in batch.drop:
                message = self._view.told(each.message, held.namespace)
                self.gang(held, why, batch, Requeue(why, now if job is None else job.place_seconds, message=message))

    def refused(self, job: JobRecord, reservation: Reservation, why: str, batch: Batch) -> None:
        """Stop a gang whose start is refused for good, before anything of it ran."""
        due = self._pods_ready.requeue(job, f"its start was refused: {why}", self._now())
        self.one(reservation, due.reason, batch, due)

    def leave(self, job: JobRecord | None, reservation: Reservation, batch: Batch) -> None:
        """Let a job that has ended or goes away leave its ensemble, and stop the rest if that cannot do without it."""
        departure = siblings.departure(job, reservation, self._siblings(reservation.uid, batch))
        self._change(departure.changed, batch)
        why = "deleted" if job is None or job.finished is None else job.finished
        self._stop_with(reservation, departure.stopped, why, batch)

    def lower(self, reservation: Reservation, batch: Batch) -> bool:
        """Let an ensemble need no more pods than its PodGroup asks by now; return whether that is fewer than before."""
        shared = reservation.membership
        group = None if shared is None else self._view.pod_groups.get((reservation.namespace, shared.ensemble))
        if shared is None or group is None or max(1, group.min_member) >= shared.quorum:
            return False
        entries = (reservation, *self._siblings(reservation.uid, batch))
        self._change([ensemble.lowered(entry, max(1, group.min_member)) for entry in entries], batch)
        return True

    def _change(self, entries: Iterable[Reservation], batch: Batch) -> None:
        """Write what binds jobs to their ensemble now."""
        for entry in entries:
            known = self._view.jobs.get(entry.uid)
            batch.put[entry.uid] = entry
            self._engine.restore(entry, self._view.gang_of(known), self._view.given_back(entry))
            self._gangs.of(entry.uid).on(Event.REBOUND)
            self._on_change(entry.uid)

    def changed(self, uid: str) -> None:
        """Take note that a gang, its entry, its pods or its PodGroup changed: something may be due of it."""
        record = self._gangs.find(uid)
        if record is not None:
            self.late_pods.note(record)
        if record is not None and record.rests_until:
            record.rests_until = 0.0
            self._pods_ready.changed(uid, self._now())

    def rests(self, uid: str, now: float) -> bool:
        """Return whether ``if_due`` would find nothing: most gangs run, and nobody has to look at them every second."""
        record = self._gangs.find(uid)
        return record is not None and record.rests_until > now and uid not in self._short

    @property
    def _short(self) -> Mapping[str, int]:
        """Gangs with pods that fit no node; that changes with others."""
        return {} if self._view.nodes is None else self._view.nodes.short

    def if_due(self, job: JobRecord, reservation: Reservation, now: float, batch: Batch) -> None:
        """Stop a gang whose run-time is used up, that has lacked its quorum for too long, or that must not start."""
        if not reservation.evictable:
            self._gangs.of(job.uid).rests_until = inf
            return
        due = requeues.overrun(job, reservation, now) or requeues.unpermitted(job, reservation, now)
        due = due or requeues.undispatchable(job)
        if due is not None:
            self.one(reservation, due.reason, batch, due)
            return
        name = siblings.name_of(reservation)
        if name != job.uid:
            # An ensemble is looked at once, with whichever of its jobs comes first: to find them costs as many steps.
            if self._looked_at != now:
                self._looked_at, self._looked = now, set()
            if name in self._looked:
                return
            self._looked.add(name)
        parts = siblings.running_parts((reservation, *self._siblings(job.uid, batch)), self._view.jobs)
        if parts[0][0].dispatch in (DispatchPhase.GRANTED, DispatchPhase.RECALLED):
            # Its member sees to it that it is whole; that none is heard of is no reason to stop it.
            self._pods_ready.forget(name)
            return
        due = self._pods_ready.overdue(name, parts, self._view, now)
        if due is not None:
            for _, held in parts:
                self.gang(held, due.reason, batch, due)
        elif name == job.uid and job.uid not in self._short:
            ends = requeues.overrun_seconds(job, reservation), requeues.unpermitted_seconds(job, reservation)
            self._gangs.of(job.uid).rests_until = min(self._pods_ready.due_seconds(name), *ends)

    def _siblings(self, uid: str, batch: Batch) -> list[Reservation]:
        """Return what the rest of a job's ensemble holds, as this cycle will write it."""
        entries = self._view.ledger.entries
        found = (batch.put.get(other) or entries.get(other) for other in self._engine.siblings(uid))
        return [other for other in found if other is not None and other.uid not in batch.drop]

    def _stop_with(self, gone: Reservation, others: Iterable[Reservation], why: str, batch: Batch) -> None:
        for other in others:
            job = self._view.jobs.get(other.uid)
            requeue = None if job is None else requeues.with_siblings(job, gone, why)
            self.gang(other, SIBLING_STOPPED, batch, requeue)
