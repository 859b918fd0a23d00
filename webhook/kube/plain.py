"""Objects kept as they stand in the API: of kinds that are read seldom, or have more than a few fields that matter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from webhook.untyped.kept_text import kept_text
from webhook.wire.watch import version_number


@dataclass(frozen=True, slots=True)
class Plain:
    """One object as it stands in the API, kept as text: what that says takes eight times the memory once it is read."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    text: bytes
    """Its JSON, without its managedFields."""

    @property
    def document(self) -> Mapping[str, Any]:
        """What the object says. Each time it is read again; keep it where it is asked for often."""
        document: Mapping[str, Any] = orjson.loads(self.text)
        return document


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
        kept_text(document),
    )
