"""Metrics by queue. Only the leader has any: a sum over all replicas counts nothing twice."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Gauge

from webhook import metrics
from webhook.cluster.queue_counts import QueueCounts, activity
from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy
from webhook.core.quota.loans import Loans, loans
from webhook.core.quota.tree import AmountsByFlavor, Node, QuotaTree
from webhook.jobs.pricing.context import ReadContext

_AGE_SECONDS: Final = 5.0
"""Scrapes within this time share a walk over the cluster."""
_AMOUNTS_OF_QUEUES: Final = (
    metrics.QUEUE_NOMINAL,
    metrics.QUEUE_USAGE,
    metrics.QUEUE_BORROWED,
    metrics.QUEUE_LENT,
    metrics.QUEUE_LIMIT,
)
_AMOUNTS_OF_COHORTS: Final = (
    metrics.COHORT_NOMINAL,
    metrics.COHORT_USAGE,
    metrics.COHORT_BORROWED,
    metrics.COHORT_LENT,
)
_GANGS: Final = (metrics.QUEUE_WAITING, metrics.QUEUE_RUNNING, metrics.QUEUE_ACTIVE)


def admitted(reservation: Reservation, gang: Gang, context: ReadContext, now: float) -> None:
    """Count an admission and how long the gang has waited for it, unless it was moved before others."""
    queue = metrics.queue_label(reservation.queue)
    classes = {**context.priority_classes, **context.workload_priority_classes}
    priority = metrics.class_label(gang.priority, classes.items())
    metrics.ADMITTED.labels(queue).inc()
    if gang.created_seconds >= 0:
        metrics.WAIT_SECONDS.labels(queue, priority).observe(max(0.0, now - gang.created_seconds))


@dataclass(slots=True)
class QueueGauges:
    """What queues and cohorts own, use, borrow and lend, as it is when somebody scrapes."""

    view: View
    counts: QueueCounts
    leading: Callable[[], bool]
    _tree: tuple[Policy, QuotaTree] | None = None

    def refresh(self) -> None:
        """Set every gauge again; a replica that does not lead has none."""
        for gauge in (*_AMOUNTS_OF_QUEUES, *_AMOUNTS_OF_COHORTS, *_GANGS):
            gauge.clear()
        if not self.leading():
            return
        policy, counts = self.view.policy, self.counts.take(_AGE_SECONDS)
        if self._tree is None or self._tree[0] is not policy:
            self._tree = (policy, QuotaTree(policy))
        tree = self._tree[1]
        lent = loans((node for node in tree.nodes if node.parent is None), counts.charged)
        for name, queue in policy.queues.items():
            label, tally = metrics.queue_label(name), counts.queues.get(name)
            if tally is not None:
                metrics.QUEUE_WAITING.labels(label).inc(tally.pending)
                metrics.QUEUE_RUNNING.labels(label).inc(tally.admitted)
            metrics.QUEUE_ACTIVE.labels(label).set(activity(queue)[0])
            node = tree.queues[name]
            cohort = "" if node.parent is None else _cohort(tree, node.parent)
            _amounts(_AMOUNTS_OF_QUEUES, (label, cohort), node, counts.charged(node), lent[node])
        for node in tree.cohorts.values():
            above = "" if node.parent is None else _cohort(tree, node.parent)
            _amounts(_AMOUNTS_OF_COHORTS, (_cohort(tree, node), above), node, counts.charged(node), lent[node])


def _cohort(tree: QuotaTree, node: Node) -> str:
    """Return a cohort's name, where it is not one of too many."""
    known = len(tree.cohorts) <= metrics.QUEUES_MAX or node.name in sorted(tree.cohorts)[: metrics.QUEUES_MAX]
    return node.name if known else metrics.OTHERS


def _amounts(
    gauges: tuple[Gauge, ...], labels: tuple[str, str], node: Node, used: AmountsByFlavor, borrowing: Loans
) -> None:
    """Add one node's amounts to the series of its labels, in units of the resource."""
    limits = {key: node.potential(key) for key in node.quotas}
    # Cohorts have no gauge for the last.
    for gauge, amounts in zip(gauges, (node.subtree, used, borrowing.borrowed, borrowing.lent, limits), strict=False):
        for key in limits if amounts is limits else node.subtree.keys() | used.keys():
            if not key.is_internal:
                gauge.labels(*labels, key.flavor, key.resource).inc(amounts.get(key, 0) / 1000)
