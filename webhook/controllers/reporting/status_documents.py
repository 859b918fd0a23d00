"""What the status of a policy object or PodGroup says: the fields of Kueue, kube-queue and scheduler-plugins."""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.cluster.queue_counts import Counts, QueueTotals, active_condition
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import LocalQueue, Queue, Quota
from webhook.core.notation import amounts, quantity
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.tree import Vertex, for_people

Status = dict[str, Any]


def cluster_queue_status(queue: Queue, totals: QueueTotals) -> Status:
    """Return the status of a ClusterQueue, without the time of its condition."""
    quotas = _quotas(queue)
    usage = _flavors_usage(quotas, totals.usage, borrows=queue.cohort is not None)
    return {
        "conditions": [active_condition(queue)],
        **_numbers(totals),
        "flavorsReservation": usage,
        "flavorsUsage": usage,
    }


def local_queue_status(local: LocalQueue, queue: Queue | None, totals: QueueTotals, version: str) -> Status:
    """Return the status of a LocalQueue in an API ``version``, without the time of its condition."""
    usage = _flavors_usage({} if queue is None else _quotas(queue), totals.usage)
    return {
        "conditions": [active_condition(queue, local)],
        **_numbers(totals),
        "flavorsReservation": usage,
        "flavorUsage" if version == "v1beta1" else "flavorsUsage": usage,
    }


def elastic_quota_tree_status(vertex: Vertex, namespaces: Mapping[str, list[str]], counts: Counts) -> Status:
    """Return the status of one vertex of an ElasticQuotaTree and all below; ``namespaces`` by queue."""
    # Every resource of the policy, so that a merge patch leaves no stale amount behind.
    used = for_people(dict.fromkeys(vertex.subtree, 0)) | for_people(counts.below(vertex).usage)
    status: Status = {
        "name": vertex.name.rpartition("/")[2],
        "used": amounts.quantities(used),
        "children": [elastic_quota_tree_status(child, namespaces, counts) for child in vertex.children],
    }
    if vertex.name in namespaces:
        status["namespaces"] = sorted(namespaces[vertex.name])
    return status


def pod_group_status(pods: Iterable[PodRecord], least: int, *, started: bool) -> Status:
    """Return the status of a PodGroup whose gangs have these ``pods``; ``started``: one of them was admitted."""
    counts = {"running": 0, "succeeded": 0, "failed": 0}
    scheduled = 0
    for pod in pods:
        name = pod.phase.lower()
        if name in counts:
            counts[name] += 1
        scheduled += bool(pod.node) and not pod.terminal
    return {"phase": _phase(counts, scheduled, least, started), "scheduled": scheduled, **counts}


def _phase(counts: Mapping[str, int], scheduled: int, least: int, started: bool) -> str:
    if counts["running"] + counts["succeeded"] >= least and counts["running"]:
        return "Running"
    if not counts["running"] and counts["succeeded"] and counts["succeeded"] >= least:
        return "Finished"
    if not counts["running"] and counts["failed"]:
        return "Failed"
    if scheduled >= least > 0:
        return "Scheduled"
    return "Scheduling" if started else "Pending"


def _numbers(totals: QueueTotals) -> Status:
    return {
        "pendingWorkloads": totals.pending,
        "reservingWorkloads": totals.reserving,
        "admittedWorkloads": totals.admitted,
    }


def _quotas(queue: Queue) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor.flavor, resource): quota
        for group in queue.resource_groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


def _flavors_usage(
    quotas: Mapping[FlavorResource, Quota], usage: Mapping[FlavorResource, int], *, borrows: bool | None = None
) -> list[Status]:
    """Return usage by flavor; what is borrowed is told where ``borrows`` says whether there is a cohort."""
    flavors: dict[str, list[Status]] = {}
    for key, quota in quotas.items():
        total = usage.get(key, 0)
        resource: Status = {"name": key.resource, "total": quantity.render(total, key.resource)}
        if borrows is not None:
            over = max(0, total - quota.nominal) if borrows else 0
            resource["borrowed"] = quantity.render(over, key.resource)
        flavors.setdefault(key.flavor, []).append(resource)
    return [{"name": flavor, "resources": resources} for flavor, resources in flavors.items()]
