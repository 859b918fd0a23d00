"""The few fields of a Pod that Tutti reads from lists and watches; the spec stays untyped for pricing."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson


class OwnerReference(msgspec.Struct, gc=False):
    """metadata.ownerReferences[]."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """The parts of ObjectMeta that decide anything."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(msgspec.Struct, gc=False):
    """status.conditions[]."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str | None = None


class Resources(msgspec.Struct):
    """status.containerStatuses[].resources: what the node has given so far."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class Waiting(msgspec.Struct, gc=False):
    """status.containerStatuses[].state.waiting: why a container has not started."""

    reason: str = ""
    message: str = ""


class State(msgspec.Struct):
    """status.containerStatuses[].state."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    """status.containerStatuses[], as far as an in-place resize and what cannot start show there."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: dict[str, Any] | None = None
    state: State | None = None


class Status(msgspec.Struct, rename="camel"):
    """The parts of PodStatus that decide anything."""

    phase: str = "Pending"
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(msgspec.Struct):
    """A Pod as it arrives; ``spec`` is decoded on demand, because equal specs price equally."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: Status = msgspec.field(default_factory=Status)


class PodList(msgspec.Struct):
    """A list of pods."""

    items: list[Pod] = []


_pod = msgspec.json.Decoder(Pod)
_pod_list = msgspec.json.Decoder(PodList)


def decode(raw: bytes) -> Pod:
    """Return the pod in ``raw``. Raises msgspec.MsgspecError when it is not one."""
    return _pod.decode(raw)


def decode_list(raw: bytes) -> list[Pod]:
    """Return the pods of the list in ``raw``. Raises msgspec.MsgspecError when it is not one."""
    return _pod_list.decode(raw).items


def spec(pod: Pod) -> dict[str, Any]:
    """Return the pod's spec as plain data.

    By orjson: msgspec takes eighty times as long for a number like 3.803397272171526e+304.
    """
    document = orjson.loads(bytes(pod.spec))
    assert isinstance(document, dict)
    return document


def status(pod: Mapping[str, Any]) -> Status:
    """Return the status of a pod that is plain data. Raises msgspec.ValidationError when it is none."""
    return msgspec.convert(pod.get("status") or {}, Status)
