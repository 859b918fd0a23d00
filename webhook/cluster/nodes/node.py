"""A Node object as placement sees it; images, addresses and heartbeats are dropped as it arrives."""

from dataclasses import dataclass
from sys import intern
from typing import Any

import msgspec

from webhook.core.model.policy import Taint
from webhook.core.nodes.node import NodeRecord
from webhook.core.notation.quantity import parse
from webhook.wire.watch import version_number


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str = "0"
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct):
    key: str
    effect: str
    value: str = ""


class _Spec(msgspec.Struct):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    allocatable: dict[str, Any] | None = None
    conditions: list[_Condition] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER = msgspec.json.Decoder(_Node)


@dataclass(frozen=True, slots=True)
class StoredNode:
    """One state of one Node object."""

    uid: str
    resource_version: int
    node: NodeRecord
    namespace: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name


def decode(raw: bytes) -> StoredNode:
    """Return the node in ``raw``. Raises msgspec.MsgspecError or QuantityError where it cannot be read.

    A node that says nothing of being ready counts as ready: for kube-scheduler its taints alone say that it is not.
    """
    found = _DECODER.decode(raw)
    metadata, spec, status = found.metadata, found.spec, found.status
    ready = next((c.status for c in status.conditions or () if c.type == "Ready"), "True")
    record = NodeRecord(
        metadata.name,
        {intern(name): parse(amount) for name, amount in (status.allocatable or {}).items()},
        # Thousands of nodes have the same keys, and mostly the same values.
        {intern(key): intern(value) for key, value in (metadata.labels or {}).items()},
        tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints or ()),
        ready=ready == "True",
        cordoned=spec.unschedulable,
    )
    return StoredNode(metadata.uid, version_number(metadata.resource_version), record)
