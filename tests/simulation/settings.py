"""How our processes are configured in a weather."""

from typing import Any, Final

from tests.simulation.gpu_pods import GPU
from tests.simulation.load import MESH, MESH_RESOURCE
from tests.simulation.queues import CREDITS, CREDITS_A_GPU
from tests.simulation.weather import Weather
from webhook.config import Config
from webhook.jobs.pricing.injections import AddedContainer
from webhook.kueue_settings import FairSharing, Resources

MESH_ASKS: Final = {"requests": {MESH_RESOURCE: "1"}, "limits": {MESH_RESOURCE: "1"}}
USUAL: Final = Config(
    start={"timeout_seconds": 30, "recovery_seconds": 30, "backoff_seconds": 5, "backoff_max_seconds": 20},
    audit_seconds=60,
    missing_kind_retry_seconds=600,
    events_per_second=0,
)


def config_in(weather: Weather) -> Config:
    """Return the configuration that a weather asks for."""
    changes: dict[str, Any] = {}
    if weather.fair:
        strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        changes["fair_sharing"] = FairSharing.model_validate({"preemptionStrategies": strategies})
    if weather.in_credits:
        transformation = {"input": GPU, "strategy": "Replace", "outputs": {CREDITS: str(CREDITS_A_GPU)}}
        changes["resources"] = Resources.model_validate({"transformations": [transformation]})
    if weather.meshed:
        added = AddedContainer.model_validate({"name": MESH, **MESH_ASKS, "podLabels": {MESH: "true"}})
        changes["added_containers"] = (added,)
    if weather.hidden:
        changes |= {"hide_neighbours": True, "events_per_second": 20.0}
    return USUAL.model_copy(update=changes)
