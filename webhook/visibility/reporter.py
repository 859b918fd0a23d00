"""Keeps the board true: writes a document for every gang and queue of one view, when somebody asks.

No document is written while nobody reads. A read brings the board up to date first; while watches are open that is
done twice a second. What a look costs follows from what changed: a gang whose job, reservation and pods are the same
objects as before is passed over. Why a waiting gang waits has to be asked of the engine each time, which is dear, so it
is asked again only after a while: soon for who reads, later for watches, and never for more than a twentieth of a core.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.census import IDLE_SHARE, Census, Counts
from webhook.core.ledger import Reservation
from webhook.core.policy import Policy
from webhook.core.quota_tree import QuotaTree
from webhook.core.reasons import Code, Reason
from webhook.jobs.kinds import JobKind
from webhook.jobs.record import JobRecord
from webhook.view import View
from webhook.visibility.board import Board, Key
from webhook.visibility.conditions import Facts
from webhook.visibility.group import QUEUES, WORKLOADS
from webhook.visibility.milestones import Chronicle
from webhook.visibility.queue import Listed, creation_times, listed_nodes, local_queue_document, queue_document
from webhook.visibility.workload import workload, workload_name

LOOK_SECONDS: Final = 0.5
"""How often the view is looked at while watches are open."""
READ_SECONDS: Final = 0.1
"""Reads within this time share one look."""
REASON_READ_SECONDS: Final = 1.0
"""How old a reason may be that a read shows."""
REASON_WATCH_SECONDS: Final = 5.0
"""The same for watches: each new number is an event to every one of them."""
BATCH: Final = 100


@dataclass(slots=True)
class _Seen:
    """One gang as last written, and what it was written from."""

    key: Key
    job: JobRecord | None
    reservation: Reservation | None
    pods: int
    asked_at: float
    """Loop time at which its reason was asked."""
    provisional: bool
    """The engine has not decided about it yet, so its reason is about to change."""


class Reporter:
    """Writes the documents of one cluster."""

    def __init__(
        self,
        board: Board,
        view: View,
        census: Census,
        kinds: Mapping[str, JobKind],
        *,
        now: Callable[[], float],
        reason: Callable[[str], Reason | None],
        policy_objects: Callable[[], Iterable[Mapping[str, Any]]],
        system_namespace: str,
    ) -> None:
        """``reason`` says why a gang waits; ``policy_objects`` are read for their creation times only."""
        self._board = board
        self._view = view
        self._census = census
        self._kinds = kinds
        self._chronicle = Chronicle(view, now)
        self._reason = reason
        self._policy_objects = policy_objects
        self._system_namespace = system_namespace
        self._seen: dict[str, _Seen] = {}
        self._policy: Policy | None = None
        self._listed: list[Listed] = []
        self._created: dict[tuple[str, str, str], str] = {}
        self._counts: Counts | None = None
        self._queue_keys: set[Key] = set()
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._took_seconds = 0.0
        self._watches = 0

    # -- when to look ------------------------------------------------------------------------------------------------

    async def fresh(self) -> None:
        """Bring the board up to date for somebody who reads."""
        await self._look(READ_SECONDS, REASON_READ_SECONDS)

    def watch_opened(self) -> None:
        """Keep looking from now on."""
        self._watches += 1

    def watch_closed(self) -> None:
        """Undo ``watch_opened``."""
        self._watches -= 1

    async def run(self) -> None:
        """Note when things happen, and keep the board up to date while watches are open, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._watches and self._view.synced:
                await self._look(LOOK_SECONDS, REASON_WATCH_SECONDS)
            elif self._view.synced:
                self._chronicle.note()

    async def _look(self, max_age_seconds: float, reason_age_seconds: float) -> None:
        async with self._looking:
            loop = asyncio.get_running_loop()
            started = loop.time()
            if started - self._looked_at < max(max_age_seconds, IDLE_SHARE * self._took_seconds):
                return
            await self._write_workloads(max(reason_age_seconds, 2 * IDLE_SHARE * self._took_seconds))
            self._write_queues()
            self._looked_at = loop.time()
            self._took_seconds = self._looked_at - started

    # -- workloads ---------------------------------------------------------------------------------------------------

    async def _write_workloads(self, reason_age_seconds: float) -> None:
        counts = self._census.take()
        self._chronicle.note()
        uids = self._view.jobs.keys() | self._view.ledger.entries.keys()
        for uid in self._seen.keys() - uids:
            self._board.drop(self._seen.pop(uid).key)
        written = 0
        for uid in uids:
            if self._write_workload(uid, counts, reason_age_seconds):
                written += 1
                if written % BATCH == 0:
                    # Decisions go first: the leader's loop runs on the same core.
                    await asyncio.sleep(0)

    def _write_workload(self, uid: str, counts: Counts, reason_age_seconds: float) -> bool:
        """Write one gang's document if something about it changed; return whether that took an effort."""
        job, reservation = self._view.jobs.get(uid), self._view.ledger.entries.get(uid)
        known = self._seen.get(uid)
        source = job or reservation
        kind = None if source is None else self._kinds.get(source.kind)
        if (
            source is None
            or kind is None
            or (job is not None and reservation is None and not self._census.concerns(job))
        ):
            if known is not None:
                self._board.drop(self._seen.pop(uid).key)
            return False
        pods = self._view.fences.present(source.namespace, uid)
        now = asyncio.get_running_loop().time()
        waits = reservation is None and (job is None or job.finished is None)
        if known is not None and known.job is job and known.reservation is reservation and known.pods == pods:
            due = known.provisional or now - known.asked_at >= reason_age_seconds
            if not (waits and due):
                return False
        reason = self._why(job, pods) if waits else None
        facts = Facts(
            job,
            reservation,
            kind,
            self._queue_of(job, reservation),
            reason,
            counts.positions.get(uid) if waits else None,
            pods,
            self._chronicle.of(uid),
        )
        key = Key(WORKLOADS.plural, source.namespace, workload_name(kind, source.name, uid))
        provisional = reason is not None and reason.code is Code.PENDING_EVALUATION
        self._seen[uid] = _Seen(key, job, reservation, pods, now, provisional)
        self._board.put(key, workload(facts))
        return True

    def _queue_of(self, job: JobRecord | None, reservation: Reservation | None) -> str | None:
        if reservation is not None:
            return reservation.queue
        assert job is not None
        if job.finished is not None and job.admission is not None:
            return job.admission.queue
        return self._view.policy.queue_of(job.namespace, job.queue_label)

    def _why(self, job: JobRecord | None, pods: int) -> Reason:
        """Return why a gang without a reservation does not run."""
        assert job is not None
        if job.deleting:
            return Reason(Code.DEACTIVATED, "is being deleted")
        if job.held:
            return Reason(
                Code.ON_HOLD, "its owner suspended it", help="it queues again, at its place, when its suspend is lifted"
            )
        reason = self._reason(job.uid)
        if reason is not None:
            return reason
        if pods:
            return Reason(Code.SUSPENDED, f"{pods} of its pods are not gone yet", help="it queues when they are")
        if not job.suspended:
            return Reason(Code.SUSPENDED, "runs without a reservation and is about to be suspended or adopted")
        return Reason(Code.PENDING_EVALUATION, "has not been decided about yet")

    # -- queues ------------------------------------------------------------------------------------------------------

    def _write_queues(self) -> None:
        counts, policy = self._census.take(), self._view.policy
        if counts is self._counts and policy is self._policy:
            return
        if policy is not self._policy:
            self._listed = listed_nodes(policy, QuotaTree(policy), self._system_namespace)
            self._created = creation_times(self._policy_objects())
        self._counts, self._policy = counts, policy
        documents = {
            Key(QUEUES.plural, listed.namespace, listed.name): queue_document(
                listed, counts, self._created.get(listed.source)
            )
            for listed in self._listed
        }
        for local in policy.local_queues.values():
            created = self._created.get(("LocalQueue", local.namespace, local.name))
            document = local_queue_document(local, policy.queues.get(local.queue), counts, created)
            documents.setdefault(Key(QUEUES.plural, local.namespace, local.name), document)
        for key in self._queue_keys - documents.keys():
            self._board.drop(key)
        self._queue_keys = set(documents)
        for key, document in documents.items():
            self._board.put(key, document)
