"""What a stopped gang takes along on its job: its place, its back-off, how long it has run, and whether it is held.

How long a back-off is says ``pods_ready``.

A gang's run-time limit (Kueue's ``maximumExecutionTimeSeconds``) counts the time it is admitted, over all its starts.
When that is used up the gang is stopped whole and held, as Kueue deactivates it; whoever lifts the hold, as an owner
lifts their own, gives it the whole time again. All of it follows from the job's annotations and the ledger's entry, so
that another leader comes to the same. The same goes for a gang that does not become whole, where the configuration
limits how often it is queued again; whoever lifts a hold, whatever it was for, gives it all attempts again.
"""

from dataclasses import replace
from math import inf
from typing import Final

from webhook.core.ledger.record import Reservation
from webhook.core.reasons.eviction import (
    DISPATCHING_SUSPENDED,
    HELD,
    HOLDS,
    LIMIT_REACHED,
    NO_PERMIT,
    NOT_ADMITTED,
    SIBLING_STOPPED,
)
from webhook.jobs.reading.record import JobRecord, Requeue

PERMIT_SECONDS: Final = 30.0
"""How long a hub may take to permit a copy that has room, and how long the copy then leaves the room to others."""


def overrun_seconds(job: JobRecord, reservation: Reservation) -> float:
    """Return the Unix time at which the time of a running gang is used up; infinity where it is not limited."""
    limit = job.run_limit_seconds
    if limit is None or job.suspended or job.finished is not None:
        return inf
    return reservation.since_seconds + limit - job.ran_seconds


def overrun(job: JobRecord, reservation: Reservation, now: float) -> Requeue | None:
    """Return what to write on a running gang whose time is used up; None while it has some left."""
    if now < overrun_seconds(job, reservation):
        return None
    limit = job.run_limit_seconds
    message = f"it has run for the {limit} s that its label allows; un-suspend it to give it that time again"
    return Requeue(LIMIT_REACHED, job.place_seconds, message=message)


def unpermitted_seconds(job: JobRecord, reservation: Reservation) -> float:
    """Return the Unix time until which a copy may wait for its hub's permit; infinity for every other job."""
    return reservation.since_seconds + PERMIT_SECONDS if job.suspended and job.awaits_permit else inf


def unpermitted(job: JobRecord, reservation: Reservation, now: float) -> Requeue | None:
    """Return what to write on a copy that its hub has not permitted in time; None for every other job."""
    if now < unpermitted_seconds(job, reservation):
        return None
    message = f"its hub gave no permit within {PERMIT_SECONDS:.0f} s"
    return Requeue(NO_PERMIT, job.place_seconds, not_before_seconds=now + PERMIT_SECONDS, message=message)


def undispatchable(job: JobRecord) -> Requeue | None:
    """Return what to write on a hub's job that no member is to be offered; None for every other job."""
    if not job.dispatching_suspended_by or job.dispatched or job.finished is not None:
        return None
    message = f"{job.dispatching_suspended_by} suspends dispatching"
    return Requeue(DISPATCHING_SUSPENDED, job.place_seconds, message=message)


def held(job: JobRecord) -> Requeue:
    """Return what to write on a running gang that its owner has suspended."""
    return Requeue(HELD, job.place_seconds, message="it was suspended")


def requeue_of(job: JobRecord, reservation: Reservation | None, planned: Requeue | None, now: float) -> Requeue:
    """Return what a stop writes on ``job``.

    ``planned`` is what this process had in mind when it decided to stop it; without, another leader decided.
    """
    forgotten = reservation is None and is_hold(job, None)
    why = (None if reservation is None else reservation.stopping) or (HELD if forgotten else NOT_ADMITTED)
    noted = job.requeue if job.admission is None else None
    known = planned or (noted if noted is not None and noted.reason == why else None) or Requeue(why, job.place_seconds)
    ran = job.ran_seconds
    if job.admission is not None and not forgotten:
        # Nobody knows how long ago its owner suspended one without a reservation.
        ran += max(0.0, now - job.admission.since_seconds)
    ran = 0.0 if known.reason == LIMIT_REACHED else ran
    attempts = 0 if known.reason in HOLDS else max(known.attempts, job.attempts)
    succeeded = 0 if noted is None else noted.succeeded_pods
    if reservation is not None and reservation.membership is not None:
        succeeded = reservation.membership.succeeded_pods
    return replace(known, attempts=attempts, ran_seconds=ran, succeeded_pods=succeeded)


def with_siblings(job: JobRecord, sibling: Reservation, why: str) -> Requeue:
    """Return what a job takes along that is stopped because ``sibling`` went, for the reason ``why``."""
    message = f"the rest of its PodGroup cannot make the quorum without {sibling} ({why}); they queue again together"
    return Requeue(SIBLING_STOPPED, job.place_seconds, message=message)


def is_hold(job: JobRecord, reservation: Reservation | None) -> bool:
    """Return whether a stop holds ``job`` until its owner lifts it."""
    if reservation is None or reservation.stopping not in HOLDS:
        # A stop of ours takes the note of a start away: its owner suspended it, and no entry says so.
        return job.suspended and job.admission is not None
    # A start removes the re-queue annotation: one without a hold next to it means that the owner has lifted the hold
    # already, while the last of its pods were ending.
    return job.requeue is None or job.held
