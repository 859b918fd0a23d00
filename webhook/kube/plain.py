"""Objects kept as plain data: of kinds that have few objects, but more than a few fields that matter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from webhook.wire.watch import version_number


@dataclass(frozen=True, slots=True)
class Plain:
    """One object as it stands in the API."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    document: Mapping[str, Any]


def plain(raw: bytes) -> Plain:
    """Return the object in ``raw`` without its managedFields."""
    document = orjson.loads(raw)
    metadata = document["metadata"]
    metadata.pop("managedFields", None)
    return Plain(
        metadata["uid"],
        metadata.get("namespace", ""),
        metadata["name"],
        version_number(metadata["resourceVersion"]),
        document,
    )
