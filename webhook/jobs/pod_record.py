"""A pod object to the record that fences and quorum count."""

from typing import Any

import structlog

from webhook.core import names
from webhook.core.gang import PodPrice
from webhook.core.pods import PodRecord
from webhook.jobs.pod_requests import PriceError, price
from webhook.wire import pods as wire

log = structlog.get_logger(__name__)

_KEPT_LABELS = frozenset((*names.POD_GROUP_LABELS, names.MIN_AVAILABLE_LABEL, *names.QUEUE_LABELS))


def decode(raw: bytes) -> PodRecord:
    """Return the record of the pod in ``raw``."""
    pod = wire.decode(raw)
    metadata, labels = pod.metadata, pod.metadata.labels or {}
    spec = wire.spec(pod)
    gang = labels.get(names.GANG_LABEL)
    owner = next((reference.uid for reference in metadata.owner_references or () if reference.controller), "")
    return PodRecord(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=int(metadata.resource_version or 0),
        price=_price(spec),
        gang=None if gang in (None, names.GANG_PENDING) else gang,
        pod_set=labels.get(names.POD_SET_LABEL, ""),
        phase=pod.status.phase,
        terminating=metadata.deletion_timestamp is not None,
        gated=any(gate.get("name") == names.SCHEDULING_GATE for gate in spec.get("schedulingGates") or ()),
        ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
        node=spec.get("nodeName") or "",
        owner_uid=owner,
        labels=tuple(sorted((key, value) for key, value in labels.items() if key in _KEPT_LABELS)),
    )


def _price(spec: dict[str, Any]) -> PodPrice:
    """Return the price of a pod that exists; one that cannot be priced is counted by what can be read of it."""
    try:
        return price(spec)
    except PriceError as error:
        log.warning("pod.unpriceable", error=str(error))
        return PodPrice()
