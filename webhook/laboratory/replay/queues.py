"""A policy made fit for a log: its queues found by the names the log knows, and each of them by itself.

A log knows no namespaces. Its queue, tenant or user ``x`` is taken for the queue that jobs of a namespace ``x``, or
jobs labelled with a queue ``x``, would wait in; a policy of a single queue takes everybody. Namespace selectors do not
count.
"""

from collections.abc import Iterable
from dataclasses import replace

from webhook.core.model.policy import (
    Cohort,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    Policy,
    Preemption,
    Queue,
    Quota,
    ResourceGroup,
)
from webhook.core.notation.problem import Problem
from webhook.core.notation.quantity import MILLI
from webhook.core.quota.tree import QuotaTree
from webhook.dialects.elastic_quota_tree import queue_object_name
from webhook.dialects.field import is_subdomain
from webhook.errors import WrongInput


def queue_named(policy: Policy, name: str) -> str | None:
    """Return the queue of ``policy`` that the log's queue ``name`` stands for; None when there is none."""
    direct = policy.queue_of(name, name) or policy.queue_of(name, None)
    if direct is not None:
        return direct
    locals_ = policy.local_queues.values()
    for found in ({q.queue for q in locals_ if q.namespace == name}, {q.queue for q in locals_ if q.name == name}):
        known = found & policy.queues.keys()
        if len(known) == 1:
            return known.pop()
    for queue in (name, object_name(name)):
        if queue in policy.queues:
            return queue
    return next(iter(policy.queues)) if len(policy.queues) == 1 else None


def object_name(name: str) -> str:
    """Return what a ClusterQueue for the log's queue ``name`` is called: the same, if a cluster would take that."""
    return name if is_subdomain(name) else queue_object_name(f"queue-{name}")


def fitted(policy: Policy, names: Iterable[str]) -> Policy:
    """Return ``policy`` with a local queue ``(name, name)`` for each of a log's ``names`` that it has a queue for."""
    wanted = {name: queue_named(policy, name) for name in names}
    return replace(
        policy,
        queues={name: replace(queue, namespace_selector=LabelSelector()) for name, queue in policy.queues.items()},
        local_queues={(name, name): LocalQueue(name, name, queue) for name, queue in wanted.items() if queue},
    )


def alone(policy: Policy) -> Policy:
    """Return ``policy`` with each queue by itself: its own nominal quota, no cohort, nothing lent or borrowed."""
    queues = {name: _by_itself(queue) for name, queue in policy.queues.items()}
    return replace(policy, queues=queues, cohorts={}, problems=())


def _by_itself(queue: Queue) -> Queue:
    groups = tuple(
        ResourceGroup(
            group.resources,
            tuple(FlavorQuotas(f.flavor, {r: Quota(q.nominal) for r, q in f.quotas.items()}) for f in group.flavors),
        )
        for group in queue.resource_groups
    )
    rules = Preemption(within_queue=queue.preemption.within_queue)
    return replace(queue, cohort=None, resource_groups=groups, preemption=rules)


def resource_in(policy: Policy, default: str) -> str:
    """Return which resource of ``policy`` a log's jobs ask: ``default``, or the only one that it has.

    Raises WrongInput when neither is there.
    """
    nodes: tuple[Queue | Cohort, ...] = (*policy.queues.values(), *policy.cohorts.values())
    covered = {resource for vertex in nodes for group in vertex.resource_groups for resource in group.resources}
    if default in covered or not covered:
        return default
    if len(covered) == 1:
        return covered.pop()
    what = f"no queue has {default}, which the jobs of this log ask"
    fix = f"give it quota of {default}, or of one resource only"
    raise WrongInput((Problem("policy", ", ".join(sorted(covered)), what, fix),))


def capacity(policy: Policy, resource: str) -> float:
    """Return how much of ``resource`` all queues and cohorts own together, in whole units."""
    quotas = (item for vertex in QuotaTree(policy).vertices for item in vertex.quotas.items())
    return sum(quota.nominal for key, quota in quotas if key.resource == resource) / MILLI
