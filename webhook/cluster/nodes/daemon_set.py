"""A DaemonSet as placement sees it: on which nodes its pods run, and what each takes there."""

from dataclasses import dataclass, replace
from typing import Any

import orjson

from webhook.core.model.gang import Toleration
from webhook.core.nodes.shape import Shape, shape_of
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.pod_set import pod_set_of
from webhook.wire.watch import version_number

_NODE_TROUBLES = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable", "network-unavailable")
_BORNE = (
    Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute"),
    Toleration("node.kubernetes.io/unreachable", "Exists", effect="NoExecute"),
    *(Toleration(f"node.kubernetes.io/{trouble}", "Exists", effect="NoSchedule") for trouble in _NODE_TROUBLES),
)
"""What the controller of DaemonSets lets all their pods tolerate."""


@dataclass(frozen=True, slots=True)
class StoredDaemonSet:
    """One state of one DaemonSet object."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    shape: Shape


def decode(raw: bytes) -> StoredDaemonSet:
    """Return the DaemonSet in ``raw``. Raises Unreadable, or what else it meets, where it cannot be read."""
    document: dict[str, Any] = orjson.loads(raw)
    metadata, spec = document["metadata"], document["spec"]["template"]["spec"]
    pods = pod_set_of(PodSetSite("", 1, None, spec, spec), "", NO_CONTEXT)
    return StoredDaemonSet(
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        version_number(metadata["resourceVersion"]),
        shape_of(replace(pods, tolerations=(*pods.tolerations, *_BORNE))),
    )
