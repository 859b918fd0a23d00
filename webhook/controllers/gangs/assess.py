"""What to do about one gang, from what is stored about it: a pure function of job, reservation and pods.

Every action follows from the difference between the ledger and the objects, so a crash at any point resumes by asking
again. ``Step`` names the action; the reconciler carries it out in the order the ledger rules demand.
"""

from enum import StrEnum

from webhook.core.ledger.record import Reservation
from webhook.jobs.reading.record import JobRecord


class Step(StrEnum):
    """The next action for one gang."""

    NOTHING = "nothing"
    WAIT = "wait"
    """It belongs in the queue."""
    WITHDRAW = "withdraw"
    """It neither waits nor runs: finished, held, being deleted, or another controller's."""
    START = "start"
    """Reserved and still stored suspended: un-suspend it."""
    STOP = "stop"
    """The ledger says stopping: suspend it."""
    VOID = "void"
    """Stopping and stored suspended: write the job, so that no late start can land, before the entry is freed. Or its
    owner suspended it and nothing is reserved for it any more: write that it waits for them."""
    RELEASE = "release"
    """Nothing of it runs any more: free the entry."""
    HOLD = "hold"
    """Its owner suspended it, or deletes it before it was started: mark the entry as stopping, keep its place."""
    ADOPT = "adopt"
    """It was running before Tutti knew it: reserve what it uses, then write that on the job."""
    SUSPEND = "suspend"
    """It runs without a reservation and should not: suspend it."""
    GROW = "grow"
    """Its reservation grew, so that its controller may create the pods it was refused before, or others left its
    ensemble: write that on the job."""
    LIFT = "lift"
    """Reserved, and some of its pods wait behind our gates: let them go."""
    END = "end"
    """Of a gang of plain pods all that it started has ended, or its pods went away before it started: those that wait
    queue again."""
    CLEAR = "clear"
    """Stopped, but the start time of its last run freezes its templates: clear that, so that it can start again."""
    DELETE_PODS = "delete pods"
    """Stopping, and its controller will not stop its pods, or has not for long, or the job is gone: delete them."""
    RESTORE = "restore"
    """Stopped and released: give its template back what its owner wrote."""


def assess(
    job: JobRecord | None, reservation: Reservation | None, pods_present: int, voided: bool, *, overdue: bool = False
) -> Step:
    """Return the next step for a gang.

    ``pods_present`` counts its pods that have not ended, those being deleted included: while there is one, or a member
    of a fleet may have some, quota stays held (ledger rules 2 and 8). ``voided``: this leadership has written the job
    since its entry says stopping (rule 4); ``overdue``: so long ago that its controller fails on it.
    """
    if job is not None and job.dispatched:
        # As many as there may be in a member.
        pods_present += 1
    if reservation is None:
        return _unreserved(job, pods_present)
    if job is None and pods_present:
        # Its pods were let go, by their labels or from above: nobody but us would stop them.
        return Step.NOTHING if reservation.stopping is None or reservation.adopted else Step.DELETE_PODS
    if job is None:
        return Step.RELEASE
    left_alone = job.finished is not None or job.deleting
    if pods_present and reservation.stopping is not None and not reservation.adopted and left_alone:
        # Its controller no longer looks at its suspend field: it may have ended and left pods running, or be deleted in
        # the background while a finalizer keeps it.
        return Step.DELETE_PODS
    if job.finished is not None:
        return Step.RELEASE if pods_present == 0 and not (reservation.adopted and job.active) else Step.NOTHING
    if job.deleting and not (job.suspended and reservation.evictable) and pods_present == 0:
        # A finalizer may keep the object for hours: its controller creates no more pods for it, not even where a late
        # start un-suspends it. Who can be stopped is written to first all the same.
        return Step.RELEASE
    if reservation.stopping is not None:
        return _stopping(job, pods_present, voided, overdue and not reservation.adopted)
    if job.suspended and (job.deleting or started(job, reservation) or reservation.adopted):
        # Of what cannot be stopped that is a pause: its pods go on, and its owner may resume it at any time.
        return Step.HOLD if reservation.evictable else Step.NOTHING
    if job.suspended:
        if job.awaits_permit:
            return Step.NOTHING
        return Step.CLEAR if job.start_time_left else Step.START
    if job.admission is None:
        return Step.ADOPT if reservation.adopted else Step.NOTHING
    noted = (job.admission.counts, job.admission.membership)
    changed = noted != (reservation.counts, reservation.membership)
    return Step.GROW if changed and started(job, reservation) else Step.NOTHING


def _unreserved(job: JobRecord | None, pods_present: int) -> Step:
    if job is None or job.finished is not None or job.deleting or not job.is_ours:
        return Step.WITHDRAW
    if not job.suspended:
        # An unmarked template never passed our mutation: the job ran before Tutti gated it. One that bears a note of a
        # start, or of its adoption, had ended since, and is said to run again: it had its turn.
        return Step.SUSPEND if job.marked or job.admission is not None else Step.ADOPT
    if job.admission is not None:
        # A stop of ours takes that note away: its owner suspended it, and no entry told us to write that down.
        return Step.VOID
    if pods_present or job.active:
        return Step.WITHDRAW
    if job.start_time_left:
        return Step.CLEAR
    if job.requeue is not None and job.requeue.undo is not None:
        # Its template still carries what the last start injected; the API server takes the correction only once the
        # job's controller has reported it stopped.
        return Step.RESTORE if job.restorable else Step.NOTHING
    if job.held or job.given_up:
        return Step.WITHDRAW
    return Step.WAIT


def _stopping(job: JobRecord, pods_present: int, voided: bool, overdue: bool) -> Step:
    if not job.suspended:
        return Step.STOP
    if not voided:
        return Step.VOID
    if pods_present:
        return Step.DELETE_PODS if overdue else Step.NOTHING
    # Its controller must have seen the suspension too: one that lags could still be creating pods. Of an object that is
    # being deleted it does not report that any more; and whoever may edit the job can keep it from ever doing so, such
    # as by what its controller cannot read on the Jobs of a JobSet. Pods that it makes later are refused.
    stopped = not job.active and (job.restorable or job.start_time_left)
    return Step.RELEASE if job.deleting or stopped or overdue else Step.NOTHING


def started(job: JobRecord, reservation: Reservation) -> bool:
    """Return whether the job carries the start that this very reservation authorised."""
    return job.admission is not None and job.admission.is_of(reservation)
