"""Queues as documents: every vertex of an ElasticQuotaTree in the namespace ``kube-queue``, as kube-queue makes them.

The queues of the other dialects are listed elsewhere, so that ``kubectl get queue -n kube-queue`` shows the tree and
nothing else: a LocalQueue appears under its name in its namespace (where Kueue's users look for "queues"), and
ClusterQueues, cohorts and Volcano's queues in Tutti's own namespace.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

from webhook.cluster.queue_counts import QueueTotals, Usage, active_condition
from webhook.core.assignment.fair_sharing import Share
from webhook.core.model.policy import LocalQueue, Policy, Queue
from webhook.core.notation import amounts, names, quantity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.loans import Loans
from webhook.core.quota.tree import QuotaTree, Vertex, for_people
from webhook.dialects import elastic_quota_tree, volcano
from webhook.dialects.deleted import is_deleted
from webhook.dialects.elastic_quota_tree import queue_object_name
from webhook.dialects.kueue import objects as kueue
from webhook.visibility.http.group import API_VERSION, FULL_NAME, QUEUES

_NAMES: Final = UUID("6f1ad6ee-5bd1-4d0b-9cf5-6b8f1d1f8a54")
"""Object uids are a function of the place, so that replicas and restarts agree."""
_PARENT_FULL_NAME: Final = "kube-queue/parent-quota-fullname"
_MADE_FROM_TREE: Final = "create-by-kubequeue"

Source = tuple[str, str, str]
"""Kind, namespace and name of the object that defines a queue."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One vertex of the quota tree and where it is listed."""

    namespace: str
    name: str
    vertex: Vertex
    queue: Queue | None
    """None for an inner vertex."""
    dialect: str
    source: Source


def listed_vertices(policy: Policy, tree: QuotaTree) -> list[Listed]:
    """Return every queue and cohort of ``policy``; ``tree`` is its quota tree."""
    leaves = [_leaf(policy.queues[name], vertex) for name, vertex in sorted(tree.queues.items())]
    return leaves + [_inner(policy, vertex) for _, vertex in sorted(tree.cohorts.items())]


def _leaf(queue: Queue, vertex: Vertex) -> Listed:
    if queue.dialect == elastic_quota_tree.DIALECT:
        return Listed(*_place_in_tree(queue.name), vertex, queue, queue.dialect, _TREE)
    kind = volcano.KIND if queue.dialect == volcano.DIALECT else "ClusterQueue"
    return Listed(names.SYSTEM_NAMESPACE, queue.name, vertex, queue, queue.dialect, (kind, "", queue.name))


def _inner(policy: Policy, vertex: Vertex) -> Listed:
    dialects = (policy.queues[below.name].dialect for below in vertex.below() if below.is_queue)
    dialect = next(dialects, kueue.DIALECT)
    if dialect == elastic_quota_tree.DIALECT:
        return Listed(*_place_in_tree(vertex.name), vertex, None, dialect, _TREE)
    bare = vertex.name.removeprefix(volcano.cohort_name(""))
    source = (volcano.KIND, "", bare) if dialect == volcano.DIALECT else ("Cohort", "", bare)
    return Listed(names.SYSTEM_NAMESPACE, queue_object_name(f"cohort/{vertex.name}"), vertex, None, dialect, source)


_TREE: Final = (elastic_quota_tree.KIND, elastic_quota_tree.NAMESPACE, elastic_quota_tree.NAME)


def _place_in_tree(path: str) -> tuple[str, str]:
    return elastic_quota_tree.QUEUE_NAMESPACE, queue_object_name(path)


# -- documents -------------------------------------------------------------------------------------------------------


def queue_document(
    listed: Listed, totals: QueueTotals, borrowing: Loans, share: Share, free: Mapping[str, int], *, created: str | None
) -> dict[str, Any]:
    """Return the document of a queue or cohort, without a resourceVersion."""
    vertex = listed.vertex
    metadata = _metadata(listed.namespace, listed.name, created)
    gone = listed.queue is not None and is_deleted(listed.queue)
    metadata["annotations"] = {FULL_NAME: f"(deleted) {vertex.name}" if gone else vertex.name}
    if vertex.parent is not None:
        metadata["annotations"][_PARENT_FULL_NAME] = vertex.parent.name
    if listed.dialect == elastic_quota_tree.DIALECT:
        metadata["labels"] = {_MADE_FROM_TREE: "true"}
    strategy = None if listed.queue is None else listed.queue.strategy
    spec = {
        "dialect": listed.dialect,
        **({} if strategy is None else {"queueingStrategy": str(strategy)}),
        **({} if vertex.parent is None else {"parent": vertex.parent.name}),
        "weight": quantity.render(vertex.weight_millis),
        "quota": [_quota(vertex, key) for key in vertex.quotas if not key.is_internal],
    }
    nominal = for_people({key: vertex.subtree[key] for key in owned(vertex)})
    status = _numbers(totals, nominal, borrows=vertex.parent is not None)
    status["limit"] = amounts.quantities(_limits(vertex))
    status["available"] = amounts.quantities(free)
    status["lent"] = amounts.quantities(for_people(borrowing.lent))
    status["borrowedFrom"] = [
        {"name": lender.name, "amounts": amounts.quantities(for_people(part))}
        for lender, part in sorted(borrowing.lenders.items(), key=lambda entry: (entry[0].is_queue, entry[0].name))
    ]
    status["weightedShare"] = _LARGEST if share[0] else int(share[1])
    status["conditions"] = [] if listed.queue is None else [_since(active_condition(listed.queue), created)]
    return _document(metadata, spec, status)


_LARGEST: Final = 2**63 - 1
"""As in Kueue: the share of who borrows and has no weight."""


def local_queue_document(  # noqa: PLR0917
    local: LocalQueue,
    queue: Queue | None,
    vertex: Vertex | None,
    totals: QueueTotals,
    held: Usage,
    free: Mapping[str, int],
    *,
    created: str | None,
) -> dict[str, Any]:
    """Return the document of a namespace's handle on ``queue`` (None while that does not exist), of which ``held`` is
    in use and ``free`` could be taken now: what its users may count on.
    """
    spec: dict[str, Any] = {"dialect": kueue.DIALECT, "clusterQueue": local.queue, "quota": []}
    if queue is not None:
        spec["queueingStrategy"] = str(queue.strategy)
    status = _numbers(totals, None)
    if vertex is not None:
        spec["quota"] = [_quota(vertex, key) for key in vertex.quotas if not key.is_internal]
        status["queueUsage"] = amounts.quantities(for_people(held))
        status["limit"] = amounts.quantities(_limits(vertex))
        status["available"] = amounts.quantities(free)
    status["conditions"] = [_since(active_condition(queue, local), created)]
    return _document(_metadata(local.namespace, local.name, created), spec, status)


def _document(metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": QUEUES.kind, "metadata": metadata, "spec": spec, "status": status}


def _metadata(namespace: str, name: str, created: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": str(uuid5(_NAMES, f"{namespace}/{name}"))}
    if created is not None:
        metadata["creationTimestamp"] = created
    return metadata


def _quota(vertex: Vertex, key: FlavorResource) -> dict[str, str]:
    quota = vertex.quotas[key]
    document = {
        "flavor": key.flavor,
        "resource": key.resource,
        "nominal": quantity.render(vertex.subtree[key], key.resource),
    }
    if quota.borrowing_limit is not None and vertex.parent is not None:
        document["borrowingLimit"] = quantity.render(quota.borrowing_limit, key.resource)
    if quota.lending_limit is not None and vertex.parent is not None:
        document["lendingLimit"] = quantity.render(quota.lending_limit, key.resource)
    return document


def _numbers(totals: QueueTotals, nominal: Mapping[str, int] | None, *, borrows: bool = False) -> dict[str, Any]:
    usage = for_people(totals.usage)
    numbers: dict[str, Any] = {
        "pending": totals.pending,
        "admitted": totals.admitted,
        "reserving": totals.reserving,
        **({"awaitingMember": totals.awaits_member} if totals.awaits_member else {}),
        "usage": amounts.quantities(usage),
    }
    if nominal is not None:
        borrowed = {name: usage[name] - amount for name, amount in nominal.items() if name in usage and borrows}
        numbers["nominal"] = amounts.quantities(nominal)
        numbers["borrowed"] = amounts.quantities({name: amount for name, amount in borrowed.items() if amount > 0})
    return numbers


def owned(vertex: Vertex) -> list[FlavorResource]:
    """Return what a queue has quota of; of a cohort also what those below it bring."""
    return [key for key, amount in vertex.subtree.items() if key in vertex.quotas or amount]


def _limits(vertex: Vertex) -> dict[str, int]:
    """Return the most that a vertex may use of each resource: without a borrowing limit its cohort bounds it."""
    return for_people({key: vertex.potential(key) for key in owned(vertex)})


def _since(condition: dict[str, str], created: str | None) -> dict[str, str]:
    return condition if created is None else {**condition, "lastTransitionTime": created}


def creation_times(objects: Iterable[Mapping[str, Any]]) -> dict[Source, str]:
    """Return when the policy objects were created, as their metadata says."""
    read = ((str(obj.get("kind")), obj.get("metadata") or {}) for obj in objects)
    return {
        (kind, str(metadata.get("namespace") or ""), str(metadata.get("name"))): str(metadata["creationTimestamp"])
        for kind, metadata in read
        if metadata.get("creationTimestamp")
    }
