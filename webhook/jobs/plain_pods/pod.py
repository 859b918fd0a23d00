"""A pod object to the record that fences and quorum count."""

from contextlib import suppress
from typing import Any

import orjson
import structlog

from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.pods import PodRecord, WaitingPod
from webhook.core.notation import names
from webhook.core.notation.problem import Unreadable
from webhook.jobs.plain_pods.group_names import group_of, size_of_group
from webhook.jobs.plain_pods.groups import gang_uid, role_of
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.pricing.host_ports import host_ports
from webhook.jobs.pricing.pod_requests import price
from webhook.jobs.pricing.resizing import as_held
from webhook.jobs.reading.made_for import made_for, named
from webhook.jobs.reading.pod_set import pod_set_of
from webhook.untyped.values import seconds, text
from webhook.wire import pods as wire
from webhook.wire.watch import version_number

log = structlog.get_logger(__name__)
_MESSAGE_MAX = 300
"""Characters kept of a message of the scheduler's, which names each sort of node that does not do, or of a node's."""
_GATED = "SchedulingGated"
"""Reason of a pod that the scheduler has not looked at, for it waits behind a gate."""
_GATES_MAX = 3
"""Gates of others that are named."""
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing")
"""Reasons for which a container waits though nothing is wrong."""

_KEPT_LABELS = frozenset(
    (
        *names.POD_GROUP_LABELS,
        names.KUEUE_POD_GROUP,
        names.MIN_AVAILABLE_LABEL,
        *names.QUEUE_LABELS,
        names.PRIORITY_CLASS_LABEL,
        *names.PREEMPTIBLE_LABELS,
    )
)


def decode(raw: bytes) -> PodRecord:
    """Return the record of the pod in ``raw``."""
    pod = wire.decode(raw)
    metadata, labels, own = pod.metadata, pod.metadata.labels or {}, pod.metadata.annotations or {}
    spec = wire.spec(pod)
    gang: str | None = labels.get(names.GANG_LABEL)
    owner = next((reference.uid for reference in metadata.owner_references or () if reference.controller), "")
    cost = _price(spec, pod.status)
    pod_set = labels.get(names.POD_SET_LABEL, "")
    said = {"metadata": {"labels": labels, "annotations": own}, "spec": spec}
    group = group_of(said) if gang is not None else None
    if group is not None and gang != gang_uid(metadata.namespace, group):
        group = None
    waiting = None
    gate = _gate(spec) if gang is not None else None
    if gate is not None:
        pod_set = pod_set if group is None else role_of(cost, spec)
        waiting = _waiting(pod, spec, PodSet(pod_set, 1, cost), gate)
    if gang in names.NOT_ADMITTED:
        # A job that starts by gates alone never names its gang in its templates: its controller's pods tell whose.
        gang = owner if waiting is not None and pod_set and owner else None
    return PodRecord(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=version_number(metadata.resource_version),
        price=cost,
        gang=gang,
        pod_set=pod_set,
        phase=pod.status.phase,
        terminating=metadata.deletion_timestamp is not None,
        gone_by_seconds=seconds(metadata.deletion_timestamp),
        ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()),
        node=spec.get("nodeName") or "",
        host_ports=host_ports(spec),
        owner_uid=owner,
        made_for="" if owner else made_for(labels),
        named=named(metadata.namespace, labels, "" if owner else made_for(labels)) if gang is None else (),
        labels=tuple(sorted((key, value) for key, value in labels.items() if key in _KEPT_LABELS)),
        group=group or "",
        group_size=size_of_group(said) if group else 0,
        priority=spec.get("priority") or 0 if group else 0,
        created_seconds=seconds(metadata.creation_timestamp),
        admission=own.get(names.ADMISSION, "") if group else "",
        unscheduled=_unscheduled(pod.status) if gang is not None else "",
        foreign_gates=_foreign_gates(spec) if gang is not None else (),
        unstarted=_unstarted(pod.status) if gang is not None else "",
        waiting=waiting,
    )


def _unscheduled(status: wire.Status) -> str:
    found = (
        c for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False" and c.reason != _GATED
    )
    return next((c.message or c.reason for c in found), "")[:_MESSAGE_MAX]


def _unstarted(status: wire.Status) -> str:
    if status.phase != "Pending":
        return ""
    states = (each.state for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())))
    waiting = (state.waiting for state in states if state is not None and state.waiting is not None)
    found = (each for each in waiting if each.reason and each.reason not in _ON_ITS_WAY)
    return next((f"{each.reason}: {each.message}".removesuffix(": ") for each in found), "")[:_MESSAGE_MAX]


def unread(raw: bytes) -> PodRecord:
    """Return the record of a pod that ``decode`` failed on: it counts as one that runs and asks nothing, so that the
    gang whose label it carries is not taken for gone.

    Raises what it meets where not even that can be read.
    """
    metadata = orjson.loads(raw)["metadata"]
    return PodRecord(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        resource_version=version_number(metadata["resourceVersion"]),
        price=PodPrice(),
        gang=text((metadata.get("labels") or {}).get(names.GANG_LABEL)) or None,
        terminating=metadata.get("deletionTimestamp") is not None,
        gone_by_seconds=seconds(metadata.get("deletionTimestamp")),
    )


def _gate(spec: dict[str, Any]) -> int | None:
    gates = _gates(spec)
    return gates.index(names.SCHEDULING_GATE) if names.SCHEDULING_GATE in gates else None


def _gates(spec: dict[str, Any]) -> list[object]:
    return [gate.get("name") for gate in spec.get("schedulingGates") or ()]


def _foreign_gates(spec: dict[str, Any]) -> tuple[str, ...]:
    return tuple(text(gate) for gate in _gates(spec) if gate != names.SCHEDULING_GATE)[:_GATES_MAX]


def _waiting(pod: wire.Pod, spec: dict[str, Any], asks: PodSet, gate: int) -> WaitingPod:
    own = pod.metadata.annotations
    # What cannot be priced was refused at the door; one that got past it counts by what can be read, as any pod does.
    with suppress(Unreadable):
        asks = pod_set_of(PodSetSite(asks.name, 1, None, spec, spec), "", NO_CONTEXT)
        asks.share_price()
    return WaitingPod(
        asks=asks,
        labels=pod.metadata.labels or {},
        has_annotations=own is not None,
        node_selector=spec.get("nodeSelector"),
        tolerations=len(spec["tolerations"]) if isinstance(spec.get("tolerations"), list) else None,
        gate=gate,
        requeue=(own or {}).get(names.REQUEUE, ""),
        affinity=spec.get("affinity") or {},
    )


def _price(spec: dict[str, Any], status: wire.Status) -> PodPrice:
    """Return the price of a pod that exists; one that cannot be priced is counted by what can be read of it."""
    try:
        return price(as_held(spec, status)).interned()
    except Unreadable as error:
        log.warning("pod.unpriceable", error=str(error))
        return PodPrice()
