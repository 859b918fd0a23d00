"""Is an admitted gang whole? Watches that each one reaches its quorum, and keeps it, within the configured time.

The jobs of an ensemble are one gang here too: whole or not by the pods of all of them together.

A gang that does not (its pods are refused, find no node, cannot pull their image) is stopped whole and queued again
with growing back-off, so that nothing is held for ever. Kinds that bring their pods up in order are given the time anew
each time another pod starts. A PodGroup's ``scheduleTimeoutSeconds``, as long as scheduler-plugins lets its pods wait,
is the time that its gangs have to start; after they have been whole once, the configured one counts.

Pods prove that a gang is whole. What its controller reports counts too until its pods have proved it once; later the
report may be stale, for training operators write none while a pod that they want is refused. Kinds that bring pods up
in order also let them go while they run, so that their report always counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from webhook.config import Start
from webhook.controllers.gated_pods import is_pod_group, started_by
from webhook.core.ledger import Reservation
from webhook.core.stopping import ATTEMPTS_USED_UP, START_TIMEOUT
from webhook.jobs.pod_groups import POD_GROUP
from webhook.jobs.record import JobRecord, Requeue
from webhook.view import View

Started = tuple[JobRecord, Reservation]
"""A job and what it holds."""


@dataclass(slots=True)
class _Progress:
    running: int
    """Pods at the last look; -1 before the first."""
    whole_once: bool
    proved: bool
    """Its pods have been seen to reach the quorum."""
    since_seconds: float
    """Unix time since which it lacks its quorum, counted from the last progress of an ordered start."""
    succeeded: set[str] = field(default_factory=set)
    """Uids of plain pods that were seen to succeed: deleted ones count on, and nobody else knows of them."""


class WholeGangs:
    """The clock of every admitted gang, by its job's uid or its ensemble's."""

    def __init__(self, settings: Start) -> None:
        self._settings = settings
        self._progress: dict[str, _Progress] = {}

    def forget(self, name: str) -> None:
        """Stop the clock of a gang."""
        self._progress.pop(name, None)

    def overdue(self, name: str, parts: Sequence[Started], view: View, now: float) -> Requeue | None:
        """Return the place and back-off of a gang that must be stopped for want of its quorum, or None.

        ``parts`` are its jobs, at least one, with what they hold; ``name`` tells gangs apart. To be asked about every
        second.
        """
        why = self._incomplete(name, parts, view, now)
        if why is None:
            return None
        return self.requeue(max((job for job, _ in parts), key=lambda job: job.attempts), why, now)

    def _incomplete(self, name: str, parts: Sequence[Started], view: View, now: float) -> str | None:
        quorum = _quorum(parts, view)
        jobs = [job for job, _ in parts]
        if quorum is None or all(job.suspended for job in jobs):
            return None
        progress = self._progress.get(name)
        if progress is None:
            progress = self._progress[name] = self._first_look(parts, view, now)
        running = sum(_running(job, held, view, progress.succeeded) for job, held in parts)
        moved = 0 <= progress.running < running
        progress.running = running
        progress.proved = progress.proved or running >= quorum
        ordered = any(job.ordered_start for job in jobs)
        if running >= quorum or (all(job.ready for job in jobs) and (ordered or not progress.proved)):
            progress.whole_once, progress.since_seconds = True, now
            return None
        if moved and ordered:
            progress.since_seconds = now
        limit = self._settings.recovery_seconds if progress.whole_once else self._start_seconds(jobs[0], view)
        if limit is None or now - progress.since_seconds < limit:
            return None
        stage = "after it had been whole" if progress.whole_once else "after its admission"
        return f"only {running} of the {quorum} pods it needs ran within {limit:g} s {stage}"

    def _first_look(self, parts: Sequence[Started], view: View, now: float) -> _Progress:
        """Return the clock of a gang that is looked at for the first time, by this leader.

        If its time to start was over by then, it had been whole, or an earlier leader would have stopped it. When it
        lost pods only that one knew: it is given the time anew.
        """
        since = max(0.0, *(reservation.since_seconds for _, reservation in parts))
        if now - since < self._start_seconds(parts[0][0], view):
            return _Progress(-1, False, False, since)
        return _Progress(-1, self._settings.recovery_seconds is not None, False, now)

    def _start_seconds(self, job: JobRecord, view: View) -> float:
        group = None if job.gang is None else view.pod_group_of(job.gang)
        stated = None if group is None else group.schedule_timeout_seconds
        return self._settings.timeout_seconds if stated is None else stated

    def requeue(self, job: JobRecord, why: str, now: float) -> Requeue:
        """Return the place and back-off of a gang that is stopped for want of its quorum.

        How often that happened before is on its job, so that another leader counts on. One that has used up its
        attempts is held; plain pods have no owner to lift a hold, and go on.
        """
        rules, attempts = self._settings, job.attempts
        place = now if rules.place == "Eviction" else job.created_seconds
        if rules.attempts is not None and attempts >= rules.attempts and job.kind != POD_GROUP.key:
            text = f"{why}; that was attempt {attempts + 1}; un-suspend it to have it tried again"
            return Requeue(ATTEMPTS_USED_UP, place, message=text)
        delay = min(rules.backoff_max_seconds, rules.backoff_seconds * 2.0 ** min(attempts, 20))
        return Requeue(START_TIMEOUT, place, attempts + 1, now + delay, why)


def _quorum(parts: Sequence[Started], view: View) -> int | None:
    """Return how many pods must run; None for a gang whose pods cannot be told."""
    reserved = sum(sum(reservation.counts.values()) for _, reservation in parts)
    job, reservation = parts[0]
    if reservation.membership is not None:
        return min(reservation.membership.still_needed, reserved)
    if is_pod_group(reservation):
        # Such a gang is no more than the pods that it has: it never lacks any by its own count.
        needed = None if job.gang is None else view.quorum_of(job.gang)
        return reserved if needed is None else min(max(1, needed), reserved)
    gang = view.gang_of(job)
    return None if gang is None or gang.loose_pods or reservation.adopted else min(gang.least_pods, reserved)


def _running(job: JobRecord, reservation: Reservation, view: View, succeeded: set[str]) -> int:
    """Return how many pods of a job run, or have run to their end; ``succeeded`` keeps those of plain pods."""
    pods = view.fences.pods_of(job.namespace, job.uid)
    ended = {pod.uid for pod in pods if pod.phase == "Succeeded"}
    if is_pod_group(job):
        # What an earlier start left behind does nothing for this one.
        known = (pod for pod in pods if pod.uid in ended - succeeded)
        succeeded.update(pod.uid for pod in known if started_by(pod, reservation))
        ended = succeeded
    return sum(pod.phase == "Running" for pod in pods) + max(len(ended), sum(job.reclaimed.values()))
