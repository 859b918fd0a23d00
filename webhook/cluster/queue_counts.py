"""Counts of who waits and who holds what, for each queue and local queue.

Both the read API and the status writer show these numbers. They are taken from memory in one walk, which is shared:
asked again within ``max_age_seconds`` the last walk answers. As in Kueue, everything that asks for a queue and holds no
quota is pending, whether it could start or not.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.core.model.interning import interned
from webhook.core.model.policy import LocalQueue, Policy, Queue, StopPolicy, heir
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.tree import QuotaTree, Vertex
from webhook.jobs.reading.record import JobRecord

Usage = dict[FlavorResource, int]
"""Flavor and resource to thousandths."""
IDLE_SHARE = 20
"""A walk that took long is repeated no sooner than this many times its duration: at most 5 % of a core goes to it."""


@dataclass(slots=True)
class QueueTotals:
    """The numbers of one queue or local queue."""

    pending: int = 0
    reserving: int = 0
    """Gangs that hold quota."""
    admitted: int = 0
    """Those of them that are not being stopped, and in a hub only those that a member has."""
    awaits_member: int = 0
    """Those of them that no member of the fleet has taken yet."""
    usage: Usage = field(default_factory=dict)

    def add(self, other: "QueueTotals") -> None:
        """Count what another totals counts too."""
        self.pending += other.pending
        self.reserving += other.reserving
        self.admitted += other.admitted
        self.awaits_member += other.awaits_member
        self._charge(other.usage)

    def hold(self, usage: Mapping[FlavorResource, int], *, stopping: bool, awaits_member: bool) -> None:
        """Count a gang that holds quota."""
        self.reserving += 1
        self.admitted += not (stopping or awaits_member)
        self.awaits_member += awaits_member and not stopping
        self._charge(usage)

    def _charge(self, usage: Mapping[FlavorResource, int]) -> None:
        for key, amount in usage.items():
            self.usage[key] = self.usage.get(key, 0) + amount


@dataclass(frozen=True, slots=True)
class Counts:
    """One walk over everything."""

    queues: Mapping[str, QueueTotals] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], QueueTotals] = field(default_factory=dict)
    inherited: Mapping[str, QueueTotals] = field(default_factory=dict)
    """By cohort: what holds quota of queues that are gone and is charged there."""

    def below(self, vertex: Vertex) -> QueueTotals:
        """Return the numbers of a queue, or of everything at and below a cohort together."""
        total = QueueTotals()
        for each in vertex.below():
            totals = (self.queues if each.is_queue else self.inherited).get(each.name)
            if totals is not None:
                total.add(totals)
        return total

    def charged(self, vertex: Vertex) -> Usage:
        """Return what is charged to a queue, or to a cohort: there only what its children use beyond what they lend to
        nobody, as its quota has only what they lend.
        """
        totals = (self.queues if vertex.is_queue else self.inherited).get(vertex.name)
        usage = {} if totals is None else dict(totals.usage)
        for child in vertex.children:
            for key, amount in self.charged(child).items():
                beyond = amount - child.local.get(key, 0)
                if beyond > 0:
                    usage[key] = usage.get(key, 0) + beyond
        return usage


class QueueCounts:
    """Takes counts of one cluster."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._usages: dict[str, tuple[Reservation, Mapping[str, int], Mapping[FlavorResource, int]]] = {}
        self._tree: tuple[Policy, QuotaTree] | None = None
        self._last = Counts()
        self._taken_at = float("-inf")
        self._took_seconds = 0.0

    def take(self, max_age_seconds: float = 0.5) -> Counts:
        """Return the numbers as they were at most ``max_age_seconds`` ago, or a little more on a big cluster."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._taken_at >= max(max_age_seconds, IDLE_SHARE * self._took_seconds):
            self._last = self._walk()
            self._taken_at = loop.time()
            self._took_seconds = self._taken_at - now
        return self._last

    def tree(self, policy: Policy) -> QuotaTree:
        """Return the quota tree of a policy; that of the last one is kept."""
        kept = self._tree
        if kept is None or kept[0] is not policy:
            self._tree = kept = (policy, QuotaTree(policy))
        return kept[1]

    def _walk(self) -> Counts:
        queues: dict[str, QueueTotals] = {name: QueueTotals() for name in self._view.policy.queues}
        local: dict[tuple[str, str], QueueTotals] = {key: QueueTotals() for key in self._view.policy.local_queues}
        inherited: dict[str, QueueTotals] = {}
        entries = self._view.ledger.entries
        for job in self._view.jobs.values():
            pending = job.uid not in entries and job.finished is None and not job.deleting and job.is_ours
            # An orphan that runs is charged to the gang that it was made for.
            if pending and not (job.running and self._view.left_by(job)):
                self._pending(job, queues, local)
        for uid in self._usages.keys() - entries.keys():
            del self._usages[uid]
        for reservation in entries.values():
            self._holding(reservation, queues, local, inherited)
        return Counts(queues, local, inherited)

    def _pending(
        self, job: JobRecord, queues: dict[str, QueueTotals], local: dict[tuple[str, str], QueueTotals]
    ) -> None:
        name = self._view.policy.queue_of(job.namespace, job.queue_label)
        for totals in (queues.get(name or ""), local.get((job.namespace, job.queue_label or ""))):
            if totals is not None:
                totals.pending += 1

    def _holding(
        self,
        reservation: Reservation,
        queues: dict[str, QueueTotals],
        local: dict[tuple[str, str], QueueTotals],
        inherited: dict[str, QueueTotals],
    ) -> None:
        job = self._view.jobs.get(reservation.uid)
        label = "" if job is None else job.queue_label or ""
        usage, stopping = self._usage(reservation), reservation.stopping is not None
        awaits = job is not None and job.awaits_member
        for totals in (queues.get(reservation.queue or ""), local.get((reservation.namespace, label))):
            if totals is not None:
                totals.hold(usage, stopping=stopping, awaits_member=awaits)
        gone = "" if reservation.queue in queues else reservation.queue or ""
        above = heir(gone, self._view.policy.cohorts, queues)
        if above is not None:
            totals = queues.get(above) or inherited.setdefault(above, QueueTotals())
            totals.hold(usage, stopping=stopping, awaits_member=awaits)

    def _usage(self, reservation: Reservation) -> Mapping[FlavorResource, int]:
        given_back = self._view.given_back(reservation)
        known = self._usages.get(reservation.uid)
        if known is not None and known[0] is reservation and known[1] == given_back:
            return known[2]
        usage = interned(reservation.usage(given_back))
        self._usages[reservation.uid] = (reservation, given_back, usage)
        return usage


def activity(queue: Queue | None, local: LocalQueue | None = None) -> tuple[bool, str, str]:
    """Return whether a queue, or a local queue on it, admits; with Kueue's reason and a sentence."""
    if local is not None and local.stop_policy is not StopPolicy.NONE:
        return False, "Stopped", f"LocalQueue is stopped: {local.stop_policy}"
    if queue is None:
        return False, "ClusterQueueDoesNotExist", "There is no such ClusterQueue"
    if queue.inactive is not None:
        reason = "ClusterQueueIsInactive" if local is not None else queue.inactive_reason
        return False, reason, queue.inactive
    if queue.stop_policy is not StopPolicy.NONE:
        reason = "ClusterQueueIsInactive" if local is not None else "Stopped"
        return False, reason, f"Queue {queue.name} is stopped: {queue.stop_policy}"
    return True, "Ready", "Can submit new workloads to the queue" if local is not None else "Can admit new workloads"


def active_condition(queue: Queue | None, local: LocalQueue | None = None) -> dict[str, str]:
    """Return the condition Active of a queue, or of a local queue on it, without its time."""
    admits, reason, message = activity(queue, local)
    return {"type": "Active", "status": "True" if admits else "False", "reason": reason, "message": message}
