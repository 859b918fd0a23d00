"""Late pods: those that were on their way when their gang was stopped or deleted, and that are stored after it.

A controller that acts on a start, or replaces a pod, may create one although the gang has been ended meanwhile, and
another webhook may look at it for seconds. Its room is kept for as long as such pods may come. To a
gang that was whole, none do: its controller had asked for none.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from webhook.cluster.by_name import is_unlabelled
from webhook.cluster.view import View
from webhook.controllers.gang_record import GangRecord, GangRecords
from webhook.controllers.gangs import gated_pods
from webhook.core.ledger.record import Reservation
from webhook.core.model.pods import PodRecord
from webhook.jobs.kinds.shipped import JOB
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import JobRecord

ON_THEIR_WAY_SECONDS: Final = 5.0
"""A controller that acts on a start may create pods this long after it, unaware that the gang was stopped meanwhile;
nothing that it reports tells then that it will not."""
MOMENT_SECONDS: Final = 0.5
"""So much later than that its pods are deleted we may read that their job is, which is why.

It counts from when each is read, not from when a cycle looks at it. The watch of pods may be later than that of jobs
by more. That a pod had ended, or was being deleted, before its job was to go, their versions tell then. Of one that is
read to be gone none does: the room is given away though a pod that replaces it may come.
"""


class LatePods:
    """Of each gang, whether pods may still come once it is ended; what it lacks is noted in its record."""

    def __init__(self, view: View, gangs: GangRecords, now: Callable[[], float]) -> None:
        self._view = view
        self._gangs = gangs
        self._now = now
        self.term_seconds = 0.0
        """Unix time since when this process leads."""

    def may_come(self, job: JobRecord | None, reservation: Reservation) -> bool:
        """Return whether pods of a gang that is ended could still come.

        Of one that was whole when it was suspended or deleted, its controller had asked for none. One that was stopped
        may not know that while it acts on the start, which may have been written long after the reservation, as by a
        leader that took over; until this term began, another may have written it.
        """
        if reservation.stopping is None and _ended_by_itself(job, reservation):
            return False
        now, record = self._now(), self._gangs.of(reservation.uid)
        since = [self.term_seconds]
        if reservation.stopping is not None or not _goes(job) or record.lost_seconds:
            since += (reservation.since_seconds, record.started_seconds)
        owed_none = reservation.since_seconds in (record.whole_since, record.unstarted_since)
        if _has_left(job, reservation) and not owed_none:
            since.append(record.left_seconds or now)
        # A clock may have been ahead, or an earlier leader's: what is in the future says nothing.
        return any(0 <= now - at < ON_THEIR_WAY_SECONDS for at in since)

    def note(self, record: GangRecord) -> None:
        """Note whether the controller of a gang owes it pods, and when it was told to make no more."""
        job, held = self._view.jobs.get(record.uid), self._view.ledger.entries.get(record.uid)
        if job is not None and not job.suspended:
            # Whoever has started it.
            record.unstarted_since = 0.0
        if held is None or record.unstarted_since == held.since_seconds:
            return
        now = self._now()
        if job is None or _has_left(job, held):
            if not record.left_seconds:
                self._note_end(job, held, record, now)
            return
        record.left_seconds, record.left_version = 0.0, 0
        if not self._owes_pods(job, held):
            record.whole_since, record.lost_seconds = held.since_seconds, 0.0
        elif record.whole_since == held.since_seconds and not self._any_ended(held):
            record.lost_seconds = record.lost_seconds or now
        else:
            record.whole_since = record.lost_seconds = 0.0

    def note_job(self, uid: str) -> None:
        """Note the same at once when its job changes: a cycle may come seconds later."""
        record = self._gangs.find(uid)
        if record is not None:
            self.note(record)

    def note_loss(self, was: PodRecord, now_is: PodRecord | None) -> None:
        """Note at once that a gang which was whole lacks a pod, by what became of one that was live.

        Of the many changes of pods only these cost more than a few look-ups, and but one pod set is counted. That a
        gang is whole again a cycle notes.
        """
        if now_is is not None and now_is.live and (now_is.gang, now_is.pod_set) == (was.gang, was.pod_set):
            return
        held, job = self._view.ledger.entries.get(was.gang or ""), self._view.jobs.get(was.gang or "")
        record = None if held is None else self._gangs.find(held.uid)
        if held is None or record is None or record.whole_since != held.since_seconds:
            return
        if now_is is not None and now_is.resource_version < record.left_version:
            # Read late: it was lost before its job was to go.
            record.whole_since = 0.0
            return
        if job is None:
            return
        ended = now_is is not None and now_is.terminal and not now_is.terminating
        known = record.left_seconds or (record.lost_seconds and not ended)
        if known or not self._owes_pods(job, held, was.pod_set):
            return
        if ended:
            record.whole_since = record.lost_seconds = 0.0
        else:
            record.lost_seconds = self._now()

    def _note_end(self, job: JobRecord | None, held: Reservation, record: GangRecord, now: float) -> None:
        """Note when a gang was first seen to have been told to make no more pods, and whether it lacked any then."""
        record.left_seconds = now
        record.left_version = 0 if job is None or job.finished is not None else job.resource_version
        if record.lost_seconds and now - record.lost_seconds >= MOMENT_SECONDS:
            record.whole_since = 0.0
        if job is not None and job.finished is not None and self._has_ended_whole(job, held):
            record.whole_since = held.since_seconds

    def _has_ended_whole(self, job: JobRecord, held: Reservation) -> bool:
        """Return whether nobody still replaces a pod of a gang that has ended.

        What controls the pods may be another controller than the one that says so, as of a JobSet, and replace one that
        was lost before it hears of it. Where only the pods tell who succeeded, one that has is not replaced.
        """
        if held.kind == JOB.key:
            return True
        last = replace(job, gives_back=True)
        if not self._owes_pods(last, held):
            return True
        if job.finished != "Succeeded" or job.ended:
            return False
        pods = self._view.fences.pods_of(held.namespace, held.uid)
        ran = Counter(pod.pod_set for pod in pods if pod.live or pod.phase == "Succeeded")
        return all(ran[name] >= count for name, count in held.counts.items())

    def _any_ended(self, held: Reservation) -> bool:
        pods = self._view.fences.pods_of(held.namespace, held.uid)
        return any(pod.terminal and not pod.terminating for pod in pods)

    def _owes_pods(self, job: JobRecord, held: Reservation, *pod_sets: str) -> bool:
        """Return whether a gang lacks pods that its controller makes, of these sets or of any."""
        if job.for_a_member or gated_pods.is_pod_group(job):
            # Only a member makes them, or nobody does.
            return False
        if is_unlabelled(held):
            # Nobody can count them; and they have to be looked for while they still say whose they are.
            return False
        live, counts = self._view.fences.live_pods, held.counts
        short = [name for name in pod_sets or counts if live(held.namespace, held.uid, name) < counts.get(name, 0)]
        done = job.given_back(held) if short else {}
        return any(live(held.namespace, held.uid, name) < counts[name] - done.get(name, 0) for name in short)


def _goes(job: JobRecord | None) -> bool:
    return job is None or job.deleting


def _has_left(job: JobRecord | None, reservation: Reservation) -> bool:
    """Return whether its controller is told, or will be, to make no more pods of a gang, or says that it has ended."""
    if job is None or job.deleting or job.finished is not None:
        return True
    return job.suspended and reservation.stopping is not None


def _ended_by_itself(job: JobRecord | None, reservation: Reservation) -> bool:
    """Return whether nobody still creates pods of what has ended: its pods were all of it, or its controller says so.

    Only the API server's own controllers write the status of a Job; that of other kinds, also whoever has a role that
    is too wide.
    """
    finished = job is not None and job.finished is not None and not job.deleting
    return reservation.kind == POD_GROUP.key or (finished and reservation.kind == JOB.key)
