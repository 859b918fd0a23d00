"""What simulated clusters serve, and what they do not."""

import pytest

from tests.simulation.weather import Weather
from tests.simulation.world import World


def served(weather: Weather) -> set[str]:
    registry = World(1, weather).cluster.server.registry
    return {f"{each.plural}.{each.version}.{each.group}" for each in registry}


@pytest.mark.virtual_time
async def test_what_no_story_uses_is_served_only_where_all_is() -> None:
    """All our processes list what is served again each minute, and kinds without objects show nothing."""
    kueues = ("clusterqueues", "localqueues", "resourceflavors", "cohorts", "workloadpriorityclasses", "topologies")
    kueues += ("admissionchecks", "multikueueconfigs", "multikueueclusters")
    assert served(Weather(all_served=True)) - served(Weather()) == {
        "podgroups.v1alpha1.scheduling.sigs.k8s.io",
        "elasticquotatrees.v1beta1.scheduling.sigs.k8s.io",
        "queues.v1beta1.scheduling.volcano.sh",
        "podgroups.v1beta1.scheduling.volcano.sh",
        "hypernodes.v1alpha1.topology.volcano.sh",
        "jobs.v1alpha1.batch.volcano.sh",
        *(f"{plural}.v1beta1.kueue.x-k8s.io" for plural in kueues),
    }
