"""Keeps the engine in step with what is read: which gangs wait in it, and what those that run are charged.

Leader and followers do the same, so that a follower's answers agree with the leader's and fail-over is warm.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from webhook.cluster import waiting
from webhook.cluster.nodes.settling import Held
from webhook.cluster.view import NODES, View
from webhook.controllers.gang_record import Charged, Event, GangRecords, Phase
from webhook.controllers.gangs import gated_pods
from webhook.controllers.gangs.assess import Step
from webhook.controllers.loop.dirty_set import DirtySet
from webhook.controllers.loop.failed_gangs import FailedGangs
from webhook.controllers.reporting.announce import Announcer
from webhook.controllers.writes.batch import Batch
from webhook.core.ledger import bounds
from webhook.core.ledger.record import Changes, Ledger, Reservation
from webhook.core.model.gang import Gang
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Reason
from webhook.jobs.reading.record import JobRecord

SETTLED_MAX: Final = 100
"""Gangs whose places are settled in a row: some 10 ms."""


class EngineFeed:
    """Tells the engine and the fences of each gang, and again only what changed."""

    def __init__(
        self,
        view: View,
        engine: EnsembleEngine,
        gangs: GangRecords,
        dirty: DirtySet,
        announcer: Announcer,
        *,
        now: Callable[[], float],
        failed: FailedGangs,
    ) -> None:
        self._view = view
        self._engine = engine
        self._gangs = gangs
        self._dirty = dirty
        self._announcer = announcer
        self._now = now
        self._failed = failed
        self._loaded: Ledger | None = None
        if view.nodes is not None:
            view.nodes.forget_decisions()
            engine.know_nodes(view.nodes.capacity)

    def reason(self, uid: str) -> Reason | None:
        """Return why a gang waits, or None when it does not."""
        record = self._gangs.find(uid)
        return (None if record is None else record.withheld) or self._engine.reason(uid)

    def gang_of(self, job: JobRecord | None) -> Gang | None:
        """Return the gang as which the engine knows a job that is charged; None where it is not to grow, as where it is
        gone.
        """
        return None if job is not None and job.uid in self._failed else self._view.gang_of(job)

    def load(self, ledger: Ledger, changes: Changes | None = None) -> None:
        """Make the engine agree with a ledger that was read; where its ``changes`` are known, only these are looked at.

        What is as it was is left alone: a new leader has followed, and must not stand still for what it knows.
        """
        if changes is not None and changes.since is self._loaded:
            held = changes.uids
            records = [record for uid in held if (record := self._gangs.find(uid)) is not None]
        else:
            known = {} if self._loaded is None else self._loaded.entries
            held = tuple(uid for uid, entry in ledger.entries.items() if known.get(uid) != entry)
            records = list(self._gangs)
        self._loaded = ledger
        for record in records:
            if record.holds and record.uid not in ledger.entries:
                record.on(Event.LOST)
                self._engine.release(record.uid)
                self._dirty.gangs.add(record.uid)
        for uid in held:
            reservation = ledger.entries.get(uid)
            if reservation is None:
                continue
            record = self._gangs.of(uid)
            record.on(Event.READ_RUNNING if reservation.stopping is None else Event.READ_STOPPING)
            record.charged = None
            gang = self.gang_of(self._view.jobs.get(uid))
            self._engine.restore(reservation, gang, self._view.given_back(reservation))
            self._dirty.gangs.add(uid)

    def queue(self, step: Step, uid: str, job: JobRecord | None, held_back: Reason | None = None) -> None:
        """Have the gang of ``job`` wait in the engine if that is its next step and nothing holds it back, else not."""
        gang = (held_back or waiting.waiting_gang(job, self._view)) if step is Step.WAIT and job is not None else None
        record = self._gangs.of(uid)
        record.withheld = gang if isinstance(gang, Reason) else None
        if isinstance(gang, Gang):
            if record.asked != gang:
                record.on(Event.SUBMITTED)
                record.asked = gang
                self._engine.submit(gang, self._now())
                self._announcer.queued(uid)
            return
        if record.phase is Phase.WAITING:
            record.on(Event.WITHDRAWN)
            self._engine.withdraw(uid)
        if record.withheld is not None:
            self._announcer.queued(uid)
        elif job is None or job.finished is not None or uid in self._view.ledger.entries:
            # Not of one on hold: let go, it would be told once more why it waits.
            self._announcer.waits_no_more(uid)

    async def settle_many_nodes(self, between: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do all that ``settle_nodes`` has to do, a few gangs at a time, and look again at those that lack room: a new
        process has to look at all that run, and of a thousand that are being stopped each may lack some.
        """
        nodes = self._view.nodes
        if nodes is None:
            return
        for _ in range(2):
            lacking, freed = nodes.look_again(), False
            # What goes on changing waits for the next cycle.
            for _ in range(4 * nodes.changes // SETTLED_MAX + 4):
                freed |= self.settle_nodes()
                if not nodes.changes:
                    break
                await asyncio.sleep(0)
                if between is not None:
                    await between()
            # What the last of them gave back is for who lacks room before it is for anybody new.
            if not (lacking and freed):
                return

    def settle_nodes(self) -> bool:
        """Make what is allotted on nodes to some gangs agree with what is read, and wake who waited for room there.
        Return whether any has come free.
        """
        view, nodes = self._view, self._view.nodes
        if nodes is None:
            return False
        self._engine.know_nodes(None if NODES in view.unread else nodes.capacity)
        changed = (
            Held(entry, view.given_back(entry), self.gang_of(view.jobs.get(entry.uid)))
            for entry in nodes.unsettled(SETTLED_MAX)
        )
        freed = nodes.settle(changed, view.policy.flavors)
        if freed:
            self._engine.wake_nodes()
        return freed

    def settle_reach(self) -> None:
        """Tell the engine which jobs are of a kind that cannot be read: what is known of them may be old by now, and
        no stop or growth could be written on them.
        """
        unread, entries = self._view.unread, self._view.ledger.entries
        beyond = (uid for uid, entry in entries.items() if entry.kind in unread) if unread else ()
        self._engine.know_out_of_reach(frozenset(beyond))

    def write_moves(self, batch: Batch) -> None:
        """Add to what is written where pods are to go by now whose nodes were lost: what is admitted beside them may
        have been given the nodes that their entries name.
        """
        view, nodes = self._view, self._view.nodes
        for uid in () if nodes is None else nodes.moved():
            known = batch.put.get(uid) or view.ledger.entries.get(uid)
            if nodes is None or known is None or uid in batch.drop:
                continue
            moved = nodes.with_moves(known)
            if moved is not known and bounds.fits_alone(moved):
                batch.put[uid] = moved

    def turned_back(self, reservation: Reservation) -> None:
        """Take back what the engine admitted: it cannot go into the ledger as it is."""
        record = self._gangs.of(reservation.uid)
        record.on(Event.WITHDRAWN)
        self._engine.turn_back(reservation.uid)
        self._view.fences.drop_reservation(reservation.namespace, reservation.uid)

    def adopt(self, reservation: Reservation, gang: Gang, job: JobRecord) -> None:
        """Charge what runs already."""
        self._gangs.of(job.uid).on(Event.ADOPTED)
        self._engine.restore(reservation, gang, self._view.given_back(reservation))

    def reclaim(self, job: JobRecord, reservation: Reservation) -> None:
        """Give back what a running gang does not need any more."""
        record, given_back = self._gangs.of(job.uid), self._view.given_back(reservation)
        gang = job.gang if gated_pods.is_pod_group(job) else None
        charged = Charged(reservation, given_back, job.spared, gang)
        if record.charged == charged:
            return
        record.charged = charged
        # So many fewer pods are still to come.
        self._view.fences.put_reservation(reservation, job.given_back(reservation))
        self._engine.restore(reservation, self.gang_of(job), given_back)

    def write_given_back(self, reservation: Reservation, batch: Batch) -> None:
        """Have the entry of a gang whose job is gone hold no more than its job had not given back: nothing else would
        tell that to the next leader.
        """
        given_back = self._view.given_back(reservation)
        if given_back:
            smaller = reservation.without(given_back)
            batch.put[reservation.uid] = smaller
            self._view.fences.put_reservation(smaller, {})
            self._engine.restore(smaller)

    def release(self, reservation: Reservation) -> None:
        """Charge a gang no longer: its entry is dropped."""
        self._gangs.of(reservation.uid).on(Event.RELEASED)
        self._engine.release(reservation.uid)
        self._view.fences.drop_reservation(reservation.namespace, reservation.uid)
        self._engine.wake_namespace(reservation.namespace)
