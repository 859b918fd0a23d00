"""Namespaces and queues as administrators set them up, before anything happens."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from tests.simulation import flavors, limits, quota_tree, racks
from tests.simulation.trees import Trees
from tests.simulation.weather import Weather
from webhook.core.ledger.record import Reservation
from webhook.core.notation.amounts import FlavorResource

QUEUES: Final = ("red", "blue", "alone")
NOMINAL_GPUS: Final = {"red": 4, "blue": 4, "alone": 3}
COHORT: Final = {"red": "shared", "blue": "shared", "alone": None}
USUAL: Final = Trees({name: (NOMINAL_GPUS[name], COHORT[name]) for name in QUEUES})
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


def policy(weather: Weather, rng: Random) -> Iterator[dict[str, Any]]:
    """Yield what says who may have how much."""
    if weather.quota_tree:
        yield quota_tree.document()
    else:
        yield from _queues(weather, rng)
    for name, value in PRIORITIES.items() if weather.priorities else ():
        yield {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def trees_in(weather: Weather) -> Trees:
    """Return who owns how much."""
    return quota_tree.USUAL if weather.quota_tree else limits.USUAL if weather.limits else USUAL


def overdrawn(weather: Weather, held: Iterable[tuple[Reservation, Mapping[FlavorResource, int]]]) -> str:
    """Return what is beyond bounds that sums of a whole tree do not show, empty when nothing is. ``held`` is what each
    gang is charged.
    """
    if weather.two_flavors:
        return flavors.overdrawn(held)
    if weather.quota_tree:
        return quota_tree.overdrawn(held)
    return limits.overdrawn(held) if weather.limits else ""


def _queues(weather: Weather, rng: Random) -> Iterator[dict[str, Any]]:
    """Yield flavors and queues, each with a strategy by chance."""
    flavor: dict[str, Any] = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "gpus"}}
    if weather.racked:
        yield racks.TOPOLOGY
        flavor["spec"] = {"nodeLabels": racks.POOL, "topologyName": "racks"}
    yield from flavors.documents(flavor) if weather.two_flavors else (flavor,)
    for queue in QUEUES:
        strategy = rng.choice(("StrictFIFO", "Backfill" if weather.limited else "BestEffortFIFO"))
        spec = {
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [_group(queue, weather)],
        }
        if COHORT[queue] is not None:
            spec["cohortName"] = COHORT[queue]
        if weather.limits:
            spec |= limits.of_queue(queue, fair=weather.fair)
        yield {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec}
        for namespace in NAMESPACES:
            metadata = {"name": queue, "namespace": namespace}
            yield {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": queue}}


def _group(queue: str, weather: Weather) -> dict[str, Any]:
    counted, each = (CREDITS, CREDITS_A_GPU) if weather.in_credits else ("nvidia.com/gpu", 1)
    quotas = {"gpus": NOMINAL_GPUS[queue]}
    if weather.two_flavors:
        quotas = dict(zip(flavors.NAMES, flavors.NOMINAL_GPUS[queue], strict=True))
    bounds = limits.of_quota(queue) if weather.limits else {}
    return {
        "coveredResources": [counted],
        "flavors": [
            {"name": name, "resources": [{"name": counted, "nominalQuota": gpus * each, **bounds}]}
            for name, gpus in quotas.items()
            if gpus
        ],
    }
