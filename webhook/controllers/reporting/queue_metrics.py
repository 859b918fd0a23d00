"""Metrics by queue. Only the leader has any: a sum over all replicas counts nothing twice."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import Gauge

from webhook import metrics
from webhook.cluster.queue_counts import Counts, QueueCounts, activity
from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy
from webhook.core.quota.loans import Loans, loans
from webhook.core.quota.tree import AmountsByFlavor, QuotaTree, Vertex
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


_Sums = dict[tuple[Gauge, tuple[str, ...]], float]
"""What each series shows."""


class _Series(NamedTuple):
    """The gauges of a queue's or cohort's amounts, and the labels that all of them have."""

    gauges: tuple[Gauge, ...]
    name: str
    above: str


@dataclass(slots=True)
class QueueGauges:
    """What queues and cohorts own, use, borrow and lend, as it is when somebody scrapes."""

    view: View
    counts: QueueCounts
    leading: Callable[[], bool]

    def look(self) -> Callable[[], None]:
        """Return what sets every gauge as it is now: it may run in a thread, as thousands of queues take a while."""
        return partial(self._set, self.view.policy, self.counts.take(_AGE_SECONDS) if self.leading() else None)

    def _set(self, policy: Policy, counts: Counts | None) -> None:
        """Set every gauge again; a replica that does not lead (``counts`` is None) has none."""
        for gauge in (*_AMOUNTS_OF_QUEUES, *_AMOUNTS_OF_COHORTS, *_GANGS):
            gauge.clear()
        if counts is None:
            return
        for (gauge, labels), number in _sums(policy, self.counts.tree(policy), counts).items():
            gauge.labels(*labels).set(number)


def _sums(policy: Policy, tree: QuotaTree, counts: Counts) -> _Sums:
    """Return what each series shows. The queues and cohorts of one series are added up first: a series costs more."""
    named = frozenset(sorted(tree.cohorts)[: metrics.QUEUES_MAX])
    charged = {vertex: counts.charged(vertex) for vertex in tree.vertices}
    lent = loans((vertex for vertex in tree.vertices if vertex.parent is None), charged.__getitem__)
    sums = _Sums()
    for name, queue in policy.queues.items():
        label, tally, vertex = metrics.queue_label(name), counts.queues.get(name), tree.queues[name]
        if tally is not None:
            _add(sums, metrics.QUEUE_WAITING, (label,), tally.pending + tally.awaits_member)
            _add(sums, metrics.QUEUE_RUNNING, (label,), tally.admitted)
        sums[metrics.QUEUE_ACTIVE, (label,)] = activity(queue)[0]
        series = _Series(_AMOUNTS_OF_QUEUES, label, _cohort(vertex.parent, named))
        _add_amounts(sums, series, vertex, charged[vertex], lent[vertex])
    for vertex in tree.cohorts.values():
        series = _Series(_AMOUNTS_OF_COHORTS, _cohort(vertex, named), _cohort(vertex.parent, named))
        _add_amounts(sums, series, vertex, charged[vertex], lent[vertex])
    return sums


def _cohort(vertex: Vertex | None, named: frozenset[str]) -> str:
    """Return a cohort's name, where it is not one of too many; empty for none."""
    if vertex is None:
        return ""
    return vertex.name if vertex.name in named else metrics.OTHERS


def _add(sums: _Sums, gauge: Gauge, labels: tuple[str, ...], amount: float) -> None:
    sums[gauge, labels] = sums.get((gauge, labels), 0) + amount


def _add_amounts(sums: _Sums, series: _Series, vertex: Vertex, used: AmountsByFlavor, borrowing: Loans) -> None:
    """Add one vertex's amounts, in units of the resource, to the series of its name."""
    limits = {key: vertex.potential(key) for key in vertex.quotas}
    parts = (vertex.subtree, used, borrowing.borrowed, borrowing.lent, limits)
    # Cohorts have no gauge for the last.
    for gauge, amounts in zip(series.gauges, parts, strict=False):
        for key in limits if amounts is limits else vertex.subtree.keys() | used.keys():
            if not key.is_internal:
                labels = (series.name, series.above, key.flavor, key.resource)
                _add(sums, gauge, labels, amounts.get(key, 0) / 1000)
