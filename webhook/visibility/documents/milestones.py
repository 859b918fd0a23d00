"""When a gang came to where it is: stopped, ready, finished.

The objects say only part of this, so it is noted as it is seen, every second or so, whether anybody reads or not. What
happened before this process started is estimated from what the objects do say, never later than now.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.jobs.reading.record import JobRecord


@dataclass(slots=True)
class Milestones:
    """Unix times; None for what has not happened."""

    stopped_seconds: float | None = None
    ready_seconds: float | None = None
    lost_seconds: float | None = None
    """When it last stopped being ready, since its start; None also where that is not known."""
    finished_seconds: float | None = None
    taken_seconds: float | None = None
    """When a member took it, of a hub's gang; None also where that is not known."""


@dataclass(slots=True)
class _Noted:
    """A gang as it was at the last look."""

    job: JobRecord | None
    reservation: Reservation | None
    milestones: Milestones = field(default_factory=Milestones)


class Before(NamedTuple):
    """A gang as it was before it changed or went; at least one of job and reservation is there."""

    uid: str
    job: JobRecord | None
    reservation: Reservation | None


class Chronicle:
    """Notes the milestones of every gang of one view, which is told so: no two may note the same."""

    def __init__(self, view: View, now: Callable[[], float]) -> None:
        self._view = view
        self._now = now
        self._noted: dict[str, _Noted] = {}

    def of(self, uid: str) -> Milestones:
        """Return the milestones of a gang as last noted."""
        noted = self._noted.get(uid)
        return Milestones() if noted is None else noted.milestones

    def note(self) -> list[Before]:
        """Look at every gang whose job or reservation is another object than at the last look; at first, at all.

        Return these as they were, those that came and went in between too.
        """
        jobs, entries, now = self._view.jobs, self._view.ledger.entries, self._now()
        moved, self._view.moved = self._view.moved, {}
        found = []
        for uid, gone in (dict.fromkeys(jobs.keys() | entries.keys()) if moved is None else moved).items():
            job, reservation = jobs.get(uid), entries.get(uid)
            known = self._noted.get(uid)
            before = Before(uid, gone, None) if known is None else Before(uid, known.job, known.reservation)
            is_same = before.job is job and before.reservation is reservation
            if not is_same and (before.job is not None or before.reservation is not None):
                found.append(before)
            if job is None and reservation is None:
                self._noted.pop(uid, None)
            else:
                self._note(uid, job, reservation, now)
        return found

    def _note(self, uid: str, job: JobRecord | None, reservation: Reservation | None, now: float) -> None:
        known = self._noted.get(uid)
        if known is None:
            self._noted[uid] = _Noted(job, reservation, _estimated(job, reservation))
        elif known.job is not job or known.reservation is not reservation:
            _observe(known, job, reservation, now)


def _observe(known: _Noted, job: JobRecord | None, reservation: Reservation | None, now: float) -> None:
    milestones = known.milestones
    if reservation is not None and reservation.stopping is None:
        milestones.stopped_seconds = None
    elif milestones.stopped_seconds is None and known.reservation is not None and (job is None or job.finished is None):
        milestones.stopped_seconds = now
    if reservation is None:
        milestones.lost_seconds = None
    elif milestones.ready_seconds is not None and (job is None or not job.ready):
        milestones.lost_seconds = now
    if job is None or not job.ready:
        milestones.ready_seconds = None
    elif milestones.ready_seconds is None:
        milestones.ready_seconds = now
    if job is None or job.awaits_member:
        milestones.taken_seconds = None
    elif known.job is not None and known.job.awaits_member:
        milestones.taken_seconds = now
    if job is not None and job.finished is not None:
        milestones.finished_seconds = job.finished_seconds or milestones.finished_seconds or now
    known.job, known.reservation = job, reservation


def _estimated(job: JobRecord | None, reservation: Reservation | None) -> Milestones:
    """Return the milestones of a gang met for the first time, as far as its objects tell them."""
    if job is None:
        return Milestones()
    since = job.created_seconds
    if reservation is not None:
        since = reservation.since_seconds
    elif job.admission is not None:
        since = job.admission.since_seconds
    stops = reservation is None or reservation.stopping is not None
    return Milestones(
        stopped_seconds=max(job.requeue.place_seconds, job.created_seconds) if job.requeue and stops else None,
        ready_seconds=since if job.ready else None,
        finished_seconds=(job.finished_seconds or since) if job.finished is not None else None,
    )
