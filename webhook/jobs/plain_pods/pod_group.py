"""PodGroup objects of every generation, as far as they bind the pods that join them."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.model.frozen import frozen
from webhook.untyped import paths
from webhook.untyped.values import integer

_VOLCANO: Final = "scheduling.volcano.sh"
_VOLCANO_PLACES: Final = ("networkTopology", "subGroupPolicy")
GENERATIONS: Final = {
    "scheduling.sigs.k8s.io": "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "scheduling.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    _VOLCANO: "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "scheduling.k8s.io/v1alpha2": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "scheduling.k8s.io/v1beta1": "/apis/scheduling.k8s.io/v1beta1/podgroups",
}
"""Generation to path, oldest first: where PodGroups of several have one name, the first counts. Of the native API the
version differs from release to release."""


@frozen
class PodGroupRecord:
    """A PodGroup of any generation."""

    namespace: str
    name: str
    min_member: int
    schedule_timeout_seconds: int | None = None
    """How long its gangs have to start; None: as configured."""
    queue: str | None = None
    """Volcano's: the queue of plain pods that carry no label of one."""
    generation: str = ""
    """API group it was read from; with the version where that tells generations apart."""
    api_version: str = ""
    uid: str = ""
    network_topology: Any = None
    """Volcano's field of that name."""
    unfollowed: tuple[str, ...] = ()
    """Fields of Volcano's that say where pods of jobs go that join it, and are not carried out."""


NO_GROUP: Final = PodGroupRecord("", "", 0)
"""What a PodGroup states that is not there."""


def read(generation: str, document: Mapping[str, Any]) -> PodGroupRecord:
    """Return the record of a stored PodGroup. Total: what is of another type counts as absent."""
    metadata, spec = document["metadata"], paths.find_mapping(document, ("spec",))
    return PodGroupRecord(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        min_member=_least_members(spec),
        schedule_timeout_seconds=_schedule_timeout_seconds(spec),
        queue=queue_of(generation, document),
        generation=generation,
        api_version=GENERATIONS[generation].removeprefix("/apis/").removesuffix("/podgroups"),
        uid=metadata["uid"],
        network_topology=spec.get(_VOLCANO_PLACES[0]) if generation == _VOLCANO else None,
        unfollowed=tuple(field for field in _VOLCANO_PLACES if generation == _VOLCANO and spec.get(field)),
    )


def queue_of(generation: str, document: Mapping[str, Any]) -> str | None:
    """Return the queue that a PodGroup of an API group names for its pods, as Volcano's may; None for any other."""
    queue = paths.find(document, ("spec", "queue")) if generation == _VOLCANO else None
    return queue if isinstance(queue, str) and queue else None


def _least_members(spec: Mapping[str, Any]) -> int:
    native = paths.find(spec, ("schedulingPolicy", "gang", "minCount"))
    return integer(spec.get("minMember")) or integer(native)


def _schedule_timeout_seconds(spec: Mapping[str, Any]) -> int | None:
    """Return the start time-out of a PodGroup. One that gives pods no time at all is no time-out."""
    stated = spec.get("scheduleTimeoutSeconds")
    return stated if type(stated) is int and stated > 0 else None
