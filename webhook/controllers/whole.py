"""Is an admitted gang whole? Watches that each one reaches its quorum, and keeps it, within the configured time.

A gang that does not (its pods are refused, find no node, cannot pull their image) is stopped whole and queued again
with growing back-off, so that nothing is held for ever. Kinds that bring their pods up in order are given the time anew
each time another pod starts. A PodGroup's ``scheduleTimeoutSeconds``, as long as scheduler-plugins lets its pods wait,
is the time that its gangs have to start; after they have been whole once, the configured one counts.

Pods prove that a gang is whole. What its controller reports counts too until its pods have proved it once; later the
report may be stale, for training operators write none while a pod that they want is refused. Kinds that bring pods up
in order also let them go while they run, so that their report always counts.
"""

from dataclasses import dataclass

from webhook.config import Start
from webhook.controllers.requeues import ATTEMPTS_USED_UP, START_TIMEOUT
from webhook.core.gang import Gang
from webhook.core.ledger import Reservation
from webhook.jobs.pod_groups import POD_GROUP
from webhook.jobs.record import JobRecord, Requeue
from webhook.view import View


@dataclass(slots=True)
class _Progress:
    running: int
    whole_once: bool
    proved: bool
    """Its pods have been seen to reach the quorum."""
    since_seconds: float
    """Unix time since which it lacks its quorum, counted from the last progress of an ordered start."""


class WholeGangs:
    """The clock of every admitted gang."""

    def __init__(self, settings: Start) -> None:
        self._settings = settings
        self._progress: dict[str, _Progress] = {}

    def forget(self, uid: str) -> None:
        """Stop the clock of a gang."""
        self._progress.pop(uid, None)

    def overdue(self, job: JobRecord, reservation: Reservation, view: View, now: float) -> Requeue | None:
        """Return the place and back-off of a gang that must be stopped for want of its quorum, or None.

        To be asked about every second.
        """
        why = self._incomplete(job, reservation, view, now)
        return None if why is None else self.requeue(job, why, now)

    def _incomplete(self, job: JobRecord, reservation: Reservation, view: View, now: float) -> str | None:
        gang = view.gang_of(job)
        if gang is None or gang.loose_pods or job.suspended or reservation.adopted:
            return None
        phases = [pod.phase for pod in view.fences.pods_of(job.namespace, job.uid)]
        done = max(phases.count("Succeeded"), sum(job.reclaimed.values()))
        running = phases.count("Running") + done
        quorum = min(gang.least_pods, sum(reservation.counts.values()))
        progress = self._progress.get(job.uid)
        if progress is None:
            progress = self._progress[job.uid] = _Progress(running, False, False, max(reservation.since_seconds, 0))
        moved = running > progress.running
        progress.running = running
        progress.proved = progress.proved or running >= quorum
        if running >= quorum or (job.ready and (job.ordered_start or not progress.proved)):
            progress.whole_once, progress.since_seconds = True, now
            return None
        if moved and job.ordered_start:
            progress.since_seconds = now
        limit = self._settings.recovery_seconds if progress.whole_once else self._start_seconds(gang, view)
        if limit is None or now - progress.since_seconds < limit:
            return None
        stage = "after it had been whole" if progress.whole_once else "after its admission"
        return f"only {running} of the {quorum} pods it needs ran within {limit:g} s {stage}"

    def _start_seconds(self, gang: Gang, view: View) -> float:
        group = view.pod_groups.get((gang.namespace, gang.pod_group or ""))
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
