"""What happens to one job of an ensemble, and what follows for the others: pure functions of ledger entries and jobs.

A job that is stopped takes along the rest if the rest could no longer make the quorum. A job that has succeeded leaves,
and the rest needs that many fewer pods; a job that failed or was deleted leaves without that. Reservations of one
ensemble are changed in one write, so whoever reads the ledger finds either a quorum of them or all of them stopping.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from webhook.core.ledger.record import Reservation
from webhook.core.pod_group import ensemble
from webhook.jobs.reading.record import JobRecord


@dataclass(frozen=True, slots=True)
class Departure:
    """What becomes of an ensemble when one job leaves it."""

    changed: tuple[Reservation, ...]
    """Entries that say something else from now on, the leaver's first."""
    stopped: tuple[Reservation, ...]
    """Those of the others that have to stop as well, as they read then."""


def leaves(job: JobRecord | None, reservation: Reservation | None) -> bool:
    """Return whether a job is still bound to an ensemble that it can no longer be part of."""
    if reservation is None or reservation.membership is None:
        return False
    return job is None or job.deleting or job.finished is not None


def departure(job: JobRecord | None, reservation: Reservation, others: Sequence[Reservation]) -> Departure:
    """Return what becomes of ``others``, the rest of its ensemble, when a job that ``leaves`` goes."""
    assert reservation.membership is not None
    if job is not None and job.finished == "Succeeded":
        done = reservation.membership.succeeded_pods + sum(reservation.counts.values())
        others = [ensemble.relieved(other, done) for other in others]
        changed = (ensemble.left(reservation), *others)
    else:
        changed = (ensemble.left(reservation),)
    return Departure(changed, to_stop_with(others))


def to_stop_with(others: Sequence[Reservation]) -> tuple[Reservation, ...]:
    """Return those of ``others``, the rest of an ensemble, that stop because they cannot make the quorum."""
    if ensemble.stands(others):
        return ()
    return tuple(other for other in others if other.stopping is None)


def name_of(reservation: Reservation) -> str:
    """Return what tells the gang that a reservation is part of from all others."""
    if reservation.membership is None:
        return reservation.uid
    return ensemble.uid_of((reservation.namespace, reservation.membership.ensemble))


def with_their_siblings(refused: Iterable[str], admitted: Sequence[Reservation]) -> set[str]:
    """Return the uids in ``refused``, and those of ``admitted`` that would have started together with one of them."""
    refused = set(refused)
    names = {name_of(reservation) for reservation in admitted if reservation.uid in refused}
    return {reservation.uid for reservation in admitted if name_of(reservation) in names}


def running_parts(
    reservations: Iterable[Reservation], jobs: Mapping[str, JobRecord]
) -> list[tuple[JobRecord, Reservation]]:
    """Return the jobs of one gang that are not being stopped, with what they hold, by uid."""
    going_on = sorted((r for r in reservations if r.stopping is None), key=lambda reservation: reservation.uid)
    return [(jobs[reservation.uid], reservation) for reservation in going_on if reservation.uid in jobs]
