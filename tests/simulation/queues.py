"""Namespaces and queues as administrators set them up, before anything happens."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.simulation import flavors, racks

QUEUES: Final = ("red", "blue", "alone")
NOMINAL_GPUS: Final = {"red": 4, "blue": 4, "alone": 3}
COHORT: Final = {"red": "shared", "blue": "shared", "alone": None}
CREDITS: Final = "example.com/credits"
CREDITS_A_GPU: Final = 10
"""What a GPU is charged where queues count credits."""
NAMESPACES: Final = ("team-a", "team-b")
HARD_PODS: Final = {"team-a": 9}
PRIORITIES: Final = {"low": 10, "high": 1000}
VERSION: Final = "kueue.x-k8s.io/v1beta2"


def namespaces() -> Iterator[dict[str, Any]]:
    """Yield the namespaces, and what bounds their pods."""
    for namespace in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for namespace, pods in HARD_PODS.items():
        metadata = {"name": "hard", "namespace": namespace}
        yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": str(pods)}}}


def priorities() -> Iterator[dict[str, Any]]:
    """Yield the classes of priority."""
    for name, value in PRIORITIES.items():
        yield {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def queues(
    rng: Random, *, in_credits: bool, backfill: bool, racked: bool, two_flavors: bool
) -> Iterator[dict[str, Any]]:
    """Yield flavors and queues, each with a strategy by chance; ``backfill`` is one of these or is not."""
    flavor: dict[str, Any] = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "gpus"}}
    if racked:
        yield racks.TOPOLOGY
        flavor["spec"] = {"nodeLabels": racks.POOL, "topologyName": "racks"}
    yield from flavors.documents(VERSION) if two_flavors else (flavor,)
    for queue in QUEUES:
        strategy = rng.choice(("StrictFIFO", "Backfill" if backfill else "BestEffortFIFO"))
        spec = {
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [_group(queue, in_credits=in_credits, two_flavors=two_flavors)],
        }
        if COHORT[queue] is not None:
            spec["cohortName"] = COHORT[queue]
        yield {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec}
        for namespace in NAMESPACES:
            metadata = {"name": queue, "namespace": namespace}
            yield {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": queue}}


def _group(queue: str, *, in_credits: bool, two_flavors: bool) -> dict[str, Any]:
    counted, each = (CREDITS, CREDITS_A_GPU) if in_credits else ("nvidia.com/gpu", 1)
    quotas = {"gpus": NOMINAL_GPUS[queue]}
    if two_flavors:
        quotas = dict(zip(flavors.NAMES, flavors.NOMINAL_GPUS[queue], strict=True))
    return {
        "coveredResources": [counted],
        "flavors": [
            {"name": name, "resources": [{"name": counted, "nominalQuota": gpus * each}]}
            for name, gpus in quotas.items()
            if gpus
        ],
    }
