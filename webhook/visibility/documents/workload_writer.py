"""Writes a document for every gang of one view, at a cost that follows what changed.

A gang whose job, reservation and pods are the same objects as before is passed over. Why a waiting gang waits has to be
asked of the engine each time, with the numbers of the moment, which is expensive. So it is asked again only after a
while, for a bounded time per look, the oldest reason first. With thousands waiting a number may be some seconds old;
that a gang was admitted, stopped or finished never is.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.cluster.incomplete_start import lacking
from webhook.cluster.view import View
from webhook.cluster.waiting import RELEASED
from webhook.config import Start
from webhook.core.ledger.record import Reservation
from webhook.core.notation.counted import does
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.eviction import ATTEMPTS_USED_UP, LIMIT_REACHED
from webhook.core.reasons.reasons import Code, Reason
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.record import JobRecord
from webhook.visibility.documents.conditions import Facts
from webhook.visibility.documents.milestones import Before, Chronicle, Milestones
from webhook.visibility.documents.watch_cache import Key, WatchCache
from webhook.visibility.documents.workload import brief_workload, workload, workload_name
from webhook.visibility.http.group import WORKLOADS

_HELD_FOR: Final = {
    LIMIT_REACHED: "it has run for as long as its label allows",
    ATTEMPTS_USED_UP: "too few of its pods ran in time, and its attempts are used up",
}
BEFORE_MAX: Final = 200
"""Gangs of which one look remembers how they were, some 0.1 ms each. Where more have changed unread, watches that come
from another replica list again."""
LABELS_MAX: Final = 64
"""Where a gang has more, what it is selected by is remembered without them: there may be thousands."""
BATCH: Final = 50
"""Documents written before other tasks get their turn: decisions run on the same loop."""


@dataclass(frozen=True, slots=True)
class Care:
    """How new reasons have to be, and what may be spent on that."""

    age_seconds: float
    """A reason that was asked for less than this long ago is not asked for again."""
    budget_seconds: float
    namespace: str | None = None
    """Whose gangs come first."""


@dataclass(slots=True)
class _Seen:
    """One gang as last written, and what it was written from."""

    key: Key | None
    """None for an object that is no gang of its own: it has no document."""
    job: JobRecord | None
    reservation: Reservation | None
    pods: int
    waits: bool = False
    asked_at: float = 0.0
    """Loop time at which its reason was asked."""
    lacking: tuple[str, ...] = ()
    provisional: bool = False
    """The engine had not decided about it then, so its reason is about to change."""


@dataclass(slots=True)
class WorkloadWriter:
    """Keeps the workloads in a watch cache like those of a view."""

    cache: WatchCache
    view: View
    engine: EnsembleEngine
    kinds: Mapping[str, JobKind]
    chronicle: Chronicle
    reason: Callable[[str], Reason | None]
    start: Start
    """How long a gang may take to start."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _positions: dict[str, dict[str, int]] = field(default_factory=dict)
    """Queue to its gangs' places, as far as this look needed them."""

    def note(self) -> None:
        """Note what happened to gangs, whether anybody reads or not."""
        is_all_known = self.view.moved is not None and self.view.synced
        before = self.chronicle.note()
        unread = [each for each in before if not self._is_written(each)]
        if is_all_known and len(unread) <= BEFORE_MAX:
            for each in unread:
                self._remember(each)
        else:
            self.cache.refuse_others()

    def _is_written(self, before: Before) -> bool:
        """Return whether nothing is lost if only what follows is written."""
        uid, was = before.uid, _selectable(before.job, before.reservation)
        if self._kind(before.job, before.reservation) is None:
            return True
        known = self._seen.get(uid)
        if known is not None and known.key is not None and _selectable(known.job, known.reservation) == was:
            return True
        job, reservation = self.view.jobs.get(uid), self.view.ledger.entries.get(uid)
        return self._kind(job, reservation) is not None and _selectable(job, reservation) == was

    def _remember(self, before: Before) -> None:
        """Remember a gang as no document here says that it was: a client may have read it at another replica."""
        uid, job, reservation = before
        source, kind = job or reservation, self._kind(job, reservation)
        assert source is not None
        assert kind is not None
        key = Key(WORKLOADS.plural, source.namespace, workload_name(kind, source.name, uid))
        labels_known = job is None or job.gang is None or len(job.gang.labels) <= LABELS_MAX
        facts = Facts(job, reservation, kind, self._queue_of(job, reservation), None, None, 0, Milestones())
        document = brief_workload(facts, with_labels=labels_known)
        is_there = self._kind(self.view.jobs.get(uid), self.view.ledger.entries.get(uid)) is not None
        if is_there or self.cache.get(key) is not None:
            self.cache.remember(key, document, labels_known=labels_known)
        else:
            self.cache.drop_unwritten(key, document, labels_known=labels_known)

    async def write(self, care: Care) -> float:
        """Bring the watch cache up to date; return how long finding out what changed took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._positions = {}
        changed, stale = self._compare(began, care)
        found = loop.time()
        for number, uid in enumerate(changed, start=1):
            self._write(uid)
            if number % BATCH == 0:
                await asyncio.sleep(0)
        await self._ask_again(stale, care)
        return found - began

    def _compare(self, now: float, care: Care) -> tuple[list[str], list[str]]:
        """Return the gangs that changed, and those whose reason is too old."""
        jobs, entries, present = self.view.jobs, self.view.ledger.entries, self.view.present
        for uid in self._seen.keys() - jobs.keys() - entries.keys():
            self._drop(uid)
        changed, stale = [uid for uid in entries if uid not in jobs], []
        for uid, job in jobs.items():
            known = self._seen.get(uid)
            if (
                known is None
                or known.job is not job
                or known.reservation is not entries.get(uid)
                or known.pods != present(job.namespace, uid)
                or known.lacking != self._lacking(job, known.reservation)
            ):
                changed.append(uid)
            elif known.waits and (known.provisional or now - known.asked_at >= care.age_seconds):
                stale.append(uid)
        return changed, stale

    async def _ask_again(self, stale: list[str], care: Care) -> None:
        def urgency(uid: str) -> tuple[bool, bool, float]:
            known = self._seen[uid]
            elsewhere = care.namespace is not None and known.job is not None and known.job.namespace != care.namespace
            return elsewhere, not known.provisional, known.asked_at

        loop = asyncio.get_running_loop()
        left, since = care.budget_seconds, loop.time()
        for number, uid in enumerate(sorted(stale, key=urgency), start=1):
            self._write(uid)
            if number % BATCH == 0:
                left -= loop.time() - since
                if left <= 0:
                    return
                await asyncio.sleep(0)
                since = loop.time()

    def _drop(self, uid: str) -> None:
        known = self._seen.pop(uid)
        if known.key is not None:
            self.cache.drop(known.key)

    def _write(self, uid: str) -> None:
        """Write one gang's document."""
        job, reservation = self.view.jobs.get(uid), self.view.ledger.entries.get(uid)
        source = job or reservation
        if source is None:
            # Gone since the look began: the next one drops it.
            return
        pods = self.view.present(source.namespace, uid)
        kind = self._kind(job, reservation)
        if kind is None:
            if uid in self._seen:
                self._drop(uid)
            self._seen[uid] = _Seen(None, job, reservation, pods)
            return
        waiting = job if reservation is None and job is not None and job.finished is None else None
        queue = self._queue_of(job, reservation)
        reason = _why_it_goes(job) if waiting is None else self._why(waiting, pods)
        reason = None if reason is None else self.view.told_reason(reason, source.namespace)
        position = None if waiting is None or queue is None else self._places(queue).get(uid)
        quorum = None if job is None or job.gang is None else self.view.quorum_of(job.gang)
        lacks = self._lacking(job, reservation)
        facts = Facts(job, reservation, kind, queue, reason, position, pods, self.chronicle.of(uid), quorum, lacks)
        key = Key(WORKLOADS.plural, source.namespace, workload_name(kind, source.name, uid))
        self._seen[uid] = _Seen(
            key,
            job,
            reservation,
            pods,
            waits=waiting is not None,
            lacking=lacks,
            asked_at=asyncio.get_running_loop().time(),
            provisional=reason is not None and reason.code is Code.PENDING_EVALUATION,
        )
        self.cache.put(key, workload(facts))

    def _kind(self, job: JobRecord | None, reservation: Reservation | None) -> JobKind | None:
        """Return the kind of a gang; None for what has no document."""
        source = job or reservation
        if source is None or (job is not None and reservation is None and not job.is_ours):
            return None
        return self.kinds.get(source.kind)

    def _lacking(self, job: JobRecord | None, reservation: Reservation | None) -> tuple[str, ...]:
        if job is None or reservation is None or job.ready:
            return ()
        lost = self.chronicle.of(job.uid).lost_seconds
        return tuple(
            self.view.told(each, job.namespace) for each in lacking(job, reservation, self.view, self.start, lost)
        )

    def _places(self, queue: str) -> dict[str, int]:
        if queue not in self._positions:
            self._positions[queue] = {gang.uid: place for place, gang in enumerate(self.engine.waiting(queue))}
        return self._positions[queue]

    def _queue_of(self, job: JobRecord | None, reservation: Reservation | None) -> str | None:
        if reservation is not None:
            return reservation.queue
        assert job is not None
        if job.finished is not None and job.admission is not None:
            return job.admission.queue
        return self.view.policy.queue_of(job.namespace, job.queue_label)

    def _why(self, job: JobRecord, pods: int) -> Reason:
        """Return why a gang without a reservation does not run."""
        if job.deleting:
            return Reason(Code.TERMINATING, "is being deleted")
        if job.held:
            why = _HELD_FOR.get("" if job.requeue is None else job.requeue.reason, "it was suspended")
            return Reason(Code.ON_HOLD, why, help=RELEASED)
        if job.given_up:
            why = "its hub has been silent for too long and may have started the job elsewhere"
            return Reason(Code.SUSPENDED, why, help="this copy never starts again; its hub deletes it once it is back")
        reason = self.reason(job.uid)
        if reason is not None:
            return reason
        if pods:
            return Reason(
                Code.SUSPENDED,
                f"{does(pods, 'are', 'of its pods')} not gone yet",
                help="it queues when they are",
            )
        if not job.suspended:
            return Reason(Code.SUSPENDED, "runs without a reservation and is about to be suspended or adopted")
        return Reason(Code.PENDING_EVALUATION, "has not been decided about yet")


def _selectable(job: JobRecord | None, reservation: Reservation | None) -> tuple[object, ...]:
    """Return what decides by what a gang's document is selected."""
    labels = None if job is None or job.gang is None else job.gang.labels
    held = reservation or (None if job is None or job.finished is None else job.admission)
    return labels, None if job is None else job.queue_label, None if held is None else held.queue


def _why_it_goes(job: JobRecord | None) -> Reason | None:
    """Return why a gang that holds its quota will not for long, where its job is being deleted."""
    if job is None or not job.deleting or job.finished is not None:
        return None
    until = "its member of the fleet has said that nothing of it is left there" if job.dispatched else "no pod is left"
    return Reason(Code.TERMINATING, "is being deleted", help=f"its quota returns when {until}")
