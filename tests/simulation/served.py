"""What a simulated cluster serves: as most clusters, what somebody there has use for.

Each of our processes lists and watches all that is served, and lists it again every minute: a third of that was of
kinds of which no story has an object, and of a second version of those that it has.
"""

from random import Random
from typing import Final

from tests.simulation.weather import Weather
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.objects.resources import Resource

UNUSED_GROUPS: Final = frozenset(
    {"batch.volcano.sh", "scheduling.volcano.sh", "topology.volcano.sh", "scheduling.sigs.k8s.io"}
)
OLD_VERSION: Final = ("kueue.x-k8s.io", "v1beta1")


def cluster_in(weather: Weather, chance: Random) -> SimulatedCluster:
    """Return the cluster of a story in ``weather``."""
    pace = Pace(pod_start_seconds=weather.start_seconds, pod_stop_seconds=weather.stop_seconds)
    cluster = SimulatedCluster(chance, pace=pace, namespaces=("tutti-system",), release=weather.release)
    registry = cluster.server.registry
    for resource in [each for each in registry if not weather.all_served and _is_unused(each)]:
        if not (weather.quota_tree and resource.plural == "elasticquotatrees"):
            registry.remove(resource)
    return cluster


def _is_unused(resource: Resource) -> bool:
    return resource.group in UNUSED_GROUPS or (resource.group, resource.version) == OLD_VERSION
