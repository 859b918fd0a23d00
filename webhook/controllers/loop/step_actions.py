"""What a gang's next step asks for: entries and effects of the batch that is being put together."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster import rebuild
from webhook.cluster.by_name import is_unlabelled
from webhook.cluster.feeds import Feeds
from webhook.controllers.gang_record import GangRecords
from webhook.controllers.gangs import gated_pods, requeues
from webhook.controllers.gangs.assess import Step
from webhook.controllers.gangs.pod_proof import PodProof
from webhook.controllers.gangs.stops import Stops
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.ledger_room import LedgerRoom
from webhook.controllers.loop.dirty_set import DirtySet
from webhook.controllers.loop.engine_feed import EngineFeed
from webhook.controllers.writes.batch import Batch
from webhook.controllers.writes.effects import Effect, Effects
from webhook.core.ledger import bounds
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.settings import EngineSettings
from webhook.core.reasons.eviction import ENDED, HELD
from webhook.jobs.patches import job as patches
from webhook.jobs.reading.record import JobRecord
from webhook.untyped.editing import Patch


@dataclass(slots=True, kw_only=True)
class StepActions:
    """What the steps of one term ask for."""

    feeds: Feeds
    keeper: LedgerKeeper
    settings: EngineSettings
    records: GangRecords
    dirty: DirtySet
    gangs: EngineFeed
    stops: Stops
    proof: PodProof
    room: LedgerRoom
    effects: Effects
    now: Callable[[], float]
    """Unix time in whole milliseconds."""

    def act(self, step: Step, job: JobRecord | None, reservation: Reservation | None, batch: Batch) -> None:
        """Add to ``batch`` what a gang's next step asks for."""
        match step:
            case Step.RELEASE if reservation is not None:
                if self.stops.late_pods.may_come(job, reservation):
                    self.dirty.lagging.add(reservation.uid)
                elif self.proof.holds(reservation.uid, reservation.kind, labelled=not is_unlabelled(reservation)):
                    self._release(reservation, batch)
            case Step.NOTHING if job is None and reservation is not None:
                self.gangs.write_given_back(reservation, batch)
            case Step.HOLD if job is not None and reservation is not None:
                self.stops.one(reservation, HELD, batch, requeues.held(job))
            case Step.ADOPT if job is not None and job.gang is not None:
                self._adopt(job, job.gang, reservation, batch)
            case Step.START | Step.LIFT if job is not None and job.suspended and self._give_up(job, reservation, batch):
                pass
            case Step.START if job is not None:
                batch.starts[job.uid] = job
            case Step.LIFT if job is not None:
                self.lift(job, reservation, batch)
            case Step.END if job is not None and reservation is not None:
                self.stops.gang(reservation, ENDED, batch, gated_pods.ended(job))
            case Step.STOP | Step.VOID | Step.SUSPEND | Step.DELETE_PODS if job is not None:
                requeue, held = self.stops.requeue(job, reservation), requeues.is_hold(job, reservation)
                pods = self.feeds.view.fences.pods_of(job.namespace, job.uid)
                if step is not Step.DELETE_PODS and not gated_pods.is_pod_group(job):
                    self._write(step, job, patches.stop(job, requeue, held, kinds=self.feeds.kinds), batch)
                elif deletes := gated_pods.stopping(step, job, pods, requeue):
                    batch.effects[job.uid] = deletes
            case Step.DELETE_PODS if reservation is not None:
                pods = self.feeds.view.fences.pods_of(reservation.namespace, reservation.uid)
                if deletes := gated_pods.deleting(reservation, pods):
                    batch.effects[reservation.uid] = deletes
            case Step.CLEAR if job is not None:
                batch.effects[job.uid] = Effect(step.value, job, patches.clear(job), subresource="status")
            case Step.GROW | Step.RESTORE if job is not None:
                self._write(step, job, patches.grow(job, reservation) if reservation else patches.restore(job), batch)

    def _give_up(self, job: JobRecord, reservation: Reservation | None, batch: Batch) -> bool:
        """Stop a gang that does not run if its start is refused for good; return whether it is."""
        refused = self.effects.given_up(job)
        if refused is None or reservation is None or not reservation.evictable:
            return False
        self.stops.refused(job, reservation, refused, batch)
        return True

    def lift(self, job: JobRecord, reservation: Reservation | None, batch: Batch) -> None:
        """Have the gates of a gang's pods lifted, of those that are read by now, once the ledger is written."""
        pods = gated_pods.liftable(self.feeds.view.fences.pods_of(job.namespace, job.uid), reservation)
        batch.lifts[job.uid] = (job, pods)

    def _write(self, step: Step, job: JobRecord, patch: Patch, batch: Batch) -> None:
        if patch:
            batch.effects[job.uid] = Effect(step.value, job, patch)

    def _adopt(self, job: JobRecord, gang: Gang, reservation: Reservation | None, batch: Batch) -> None:
        assert self.keeper.ledger is not None
        if reservation is None:
            epoch, now = self.keeper.ledger.epoch, self.now()
            adopted = bounds.bounded(rebuild.adopted(job, gang, self.feeds.view, self.settings, epoch, now))
            if not self.room.takes(adopted):
                self.dirty.lagging.add(job.uid)
                return
            batch.put[job.uid] = adopted
            self.gangs.adopt(adopted, gang, job)
            # What is adopted is written on the job once it is stored, however quiet the job is.
            self.dirty.add(job.uid)
        else:
            self._write(Step.ADOPT, job, patches.adopt(job, reservation, self.keeper.ledger.version), batch)

    def _release(self, reservation: Reservation, batch: Batch) -> None:
        uid = reservation.uid
        batch.put.pop(uid, None)
        batch.drop.add(uid)
        self.stops.forget(reservation)
        if self.keeper.paged:
            # The entry is dropped by a write of its own: what it holds is spent by the next cycle.
            batch.released.append(reservation)
        else:
            self.is_released(reservation)

    def is_released(self, reservation: Reservation) -> None:
        """Let others have what a gang held: its entry is gone."""
        self.gangs.release(reservation)
        if reservation.uid not in self.feeds.view.jobs:
            self.records.forget(reservation.uid)
        # Once the entry is gone the job may wait again.
        self.dirty.add(reservation.uid)
