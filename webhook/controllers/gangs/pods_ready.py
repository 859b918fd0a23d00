"""Is an admitted gang whole? Watches that each one reaches its quorum, and keeps it, within the configured time.

The jobs of an ensemble are one gang here too: whole or not by the pods of all of them together.

A gang that does not (its pods are refused, find no node, cannot pull their image) is stopped whole and queued again
with growing back-off, so that nothing is held for ever. Kinds that bring their pods up in order get the full time again
each time another pod starts. A PodGroup's ``scheduleTimeoutSeconds``, as long as scheduler-plugins lets its pods wait,
is the time that its gangs have to start; after they have been whole once, the configured one counts.

Pods prove that a gang is whole. What its controller reports counts too until its pods have proved it once; later the
report may be stale, for training operators write none while a pod that they want is refused. Kinds that bring pods up
in order also let them go while they run, so that their report always counts.

A Job that starts again with a part of its work done is judged by what is left: what had ended before the first look
proves nothing about this start, and nor does its report, which counts that too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from webhook.cluster import incomplete_start
from webhook.cluster.view import NODES, View
from webhook.config import Start
from webhook.controllers.gangs.gated_pods import is_pod_group, started_by
from webhook.core.ledger.record import Reservation
from webhook.core.model.interning import interned
from webhook.core.model.pods import PodRecord
from webhook.core.notation.counted import counted, does
from webhook.core.reasons.eviction import ATTEMPTS_USED_UP, NO_NODE_LEFT, START_TIMEOUT
from webhook.jobs.kinds.shipped import JOB
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import JobRecord, Requeue

NO_NODE_SECONDS: Final = 15.0
"""So long a gang may lack nodes for its pods before it is stopped: room comes and goes."""
_NOBODY: Final[frozenset[str]] = frozenset()
"""One for all gangs: an empty set takes 216 bytes."""
Started = tuple[JobRecord, Reservation]
"""A job and what it holds."""


@dataclass(slots=True)
class _Progress:
    running: int
    """Pods at the last look; -1 before the first."""
    ready_once: bool
    proved: bool
    """Its pods have been seen to reach the quorum."""
    since_seconds: float
    """Unix time since which it lacks its quorum, counted from the last progress of an ordered start."""
    succeeded: frozenset[str] = _NOBODY
    """Uids of plain pods that were seen to succeed: deleted ones count on, and nobody else knows of them."""
    short_since: float | None = None
    """Unix time since which some of its pods fit no node."""
    before: frozenset[str] = _NOBODY
    """Uids of pods of a Job that had ended before the first look."""
    spared: Mapping[str, int] = field(default_factory=lambda: interned({}))
    """Of the pods that a Job wants, those that were not needed any more at the first look."""
    ready: bool = False
    """At the last look."""
    due_seconds: float = inf
    """Unix time at which it is to be stopped, should nothing change."""

    @property
    def first_run(self) -> bool:
        """Nothing of its work was done before."""
        return not self.before and not self.spared


class PodsReady:
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
        second, but before ``due_seconds`` only of gangs that changed or lack nodes (``Occupancy.short``).
        """
        if all(job.winding_down for job, _ in parts):
            # It lacks none any more; and if it were stopped, its controller would call it complete.
            self.forget(name)
            return None
        why = self._incomplete(name, parts, view, now)
        if why is None:
            return self._without_nodes(name, parts, view, now)
        return self.requeue(max((job for job, _ in parts), key=lambda job: job.attempts), why, now)

    def due_seconds(self, name: str) -> float:
        """Return the Unix time before which a gang that was asked about is not stopped, should nothing change."""
        progress = self._progress.get(name)
        return inf if progress is None else progress.due_seconds

    def changed(self, name: str, now: float) -> None:
        """Take note that a gang, its pods or its PodGroup changed. If it was whole, it may not be so from now on."""
        progress = self._progress.get(name)
        if progress is not None and progress.ready:
            progress.since_seconds = now

    def _without_nodes(self, name: str, parts: Sequence[Started], view: View, now: float) -> Requeue | None:
        """Return the place of a gang that has not been whole yet and cannot become so, as its nodes are now.

        The scheduler has to agree: where it knows a place, its word counts.
        """
        progress, nodes = self._progress.get(name), view.nodes
        if progress is None or nodes is None or progress.ready_once:
            return None
        short = sum(nodes.short.get(job.uid, 0) for job, _ in parts)
        if not short or NODES in view.unread or not (said := incomplete_start.schedulers_word(_pods(parts, view))):
            progress.short_since = None
            return None
        progress.short_since = now if progress.short_since is None else progress.short_since
        if now - progress.short_since < NO_NODE_SECONDS:
            return None
        why = f"{does(short, 'fit', 'of its pods no longer')} any node: others took the room, or nodes are gone; {said}"
        # It is no fault of its own: it keeps its place, and waits until it fits again.
        return Requeue(NO_NODE_LEFT, parts[0][0].place_seconds, parts[0][0].attempts, now, why)

    def _incomplete(self, name: str, parts: Sequence[Started], view: View, now: float) -> str | None:
        jobs = [job for job, _ in parts]
        if all(job.suspended for job in jobs):
            return None
        progress = self._progress.get(name)
        if progress is None:
            progress = self._progress[name] = self._first_look(parts, view, now)
        quorum, spared = _quorum(parts, view, progress.spared), sum(progress.spared.values())
        progress.due_seconds, progress.ready = inf, False
        if quorum is None:
            return None
        running = sum(_running(job, held, view, progress) for job, held in parts)
        moved = 0 <= progress.running < running
        progress.running = running
        progress.proved = progress.proved or running >= quorum
        ordered = any(job.ordered_start for job in jobs)
        reported = all(job.ready for job in jobs) and (ordered or not progress.proved) and progress.first_run
        if running >= quorum or reported:
            progress.ready_once, progress.ready, progress.since_seconds = True, True, now
            return None
        if moved and ordered:
            progress.since_seconds = now
        limit = (
            self._settings.recovery_seconds
            if progress.ready_once
            else incomplete_start.start_seconds(jobs[0], view, self._settings)
        )
        progress.due_seconds = inf if limit is None else progress.since_seconds + limit
        if limit is None or now - progress.since_seconds < limit:
            return None
        stage = "after losing others" if progress.ready_once else "after its admission"
        if all(job.awaits_member for job in jobs):
            return f"no member of the fleet took it within {limit:g} s {stage}"
        needed = counted(quorum - spared, "pod")
        ran = f"only {max(0, running - spared)} of the {needed} it needs ran within {limit:g} s {stage}"
        said = incomplete_start.pods_word(_pods(parts, view))
        return f"{ran}; {said}" if said else ran

    def _first_look(self, parts: Sequence[Started], view: View, now: float) -> _Progress:
        """Return the clock of a gang that is looked at for the first time, by this leader.

        If its time to start was over by then, it had been whole, or an earlier leader would have stopped it. When it
        lost pods only that one knew: it gets the full time again.
        """
        # An earlier leader's clock may have been ahead: what was reserved in the future has its time from now on.
        since = min(now, max(0.0, *(reservation.since_seconds for _, reservation in parts)))
        progress, (job, reservation) = _Progress(-1, False, False, since), parts[0]
        if job.kind == JOB.key and reservation.membership is None and job.marked:
            # Of one that is not marked, adopted once, no pod can be seen: its report is all there is.
            progress.before, progress.spared = _ended(job, view), job.reclaimed
        if now - since >= incomplete_start.start_seconds(job, view, self._settings):
            progress.ready_once, progress.since_seconds = self._settings.recovery_seconds is not None, now
        return progress

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


def _quorum(parts: Sequence[Started], view: View, spared: Mapping[str, int]) -> int | None:
    """Return how many pods must run or have ended, ``spared`` ones included; None where its pods cannot be told."""
    reserved = sum(sum(reservation.counts.values()) for _, reservation in parts)
    job, reservation = parts[0]
    if reservation.membership is not None:
        return min(reservation.membership.still_needed, reserved)
    if is_pod_group(reservation):
        # Such a gang is no more than the pods that it has: it never lacks any by its own count.
        needed = None if job.gang is None else view.quorum_of(job.gang)
        return reserved if needed is None else min(max(1, needed), reserved)
    if job.gang is None or job.gang.loose_pods or reservation.adopted:
        return None
    gang = view.with_quorum(job.gang)
    if gang.quorum is None:
        # That is more than was reserved where what had ended has to run again: such a gang is to ask for it again.
        return gang.without(spared).least_pods + sum(spared.values())
    return min(gang.least_pods, reserved + sum(job.reclaimed.values()))


def _pods(parts: Sequence[Started], view: View) -> Iterator[PodRecord]:
    return (pod for job, _ in parts for pod in view.fences.pods_of(job.namespace, job.uid))


def _ended(job: JobRecord, view: View) -> frozenset[str]:
    pods = view.fences.pods_of(job.namespace, job.uid)
    return frozenset(pod.uid for pod in pods if pod.phase == "Succeeded") or _NOBODY


def _running(job: JobRecord, reservation: Reservation, view: View, progress: _Progress) -> int:
    """Return how many pods of a job run, or have run to their end; ``progress`` keeps those of plain pods."""
    pods, ended = view.fences.pods_of(job.namespace, job.uid), _ended(job, view)
    done = max(len(ended - progress.before) + sum(progress.spared.values()), sum(job.reclaimed.values()))
    if is_pod_group(job):
        # What an earlier start left behind does nothing for this one.
        known = (pod for pod in pods if pod.uid in ended - progress.succeeded)
        progress.succeeded |= {pod.uid for pod in known if started_by(pod, reservation)}
        done = len(progress.succeeded)
    return sum(pod.phase == "Running" for pod in pods) + done
