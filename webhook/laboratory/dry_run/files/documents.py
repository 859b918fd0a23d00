"""The documents of a text: YAML, or JSON values one after the other, as ``kubectl`` takes them.

A key that is written twice in a map is told: the API server refuses it, and mostly a ``---`` is missing before it.
"""

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

# libyaml reads ten times faster, but wheels without it exist.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_REPEATED: Final = 20


class _Loader(_Base):  # type: ignore[misc]
    """YAML without timestamps: Kubernetes knows them as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.repeated.append(f"{key.value!r:.60} in line {key.start_mark.line + 1}")
                seen.add(key.value)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Documents:
    """What a text holds."""

    found: list[object] = field(default_factory=list)
    """In order; None where a document is empty."""
    repeated: list[str] = field(default_factory=list)
    """Each key that is written twice in one map, with where that is; the last one counts."""


def documents_in(text: str) -> Documents:
    """Return the documents of ``text``. Raises yaml.YAMLError, ValueError or RecursionError."""
    return _json_documents(text) or _yaml_documents(text)


def _yaml_documents(text: str) -> Documents:
    loader, found = _Loader(text), []
    try:
        while loader.check_data():
            found.append(loader.get_data())
    finally:
        loader.dispose()
    return Documents(found, loader.repeated[:_MOST_REPEATED])


def _json_documents(text: str) -> Documents | None:
    """Return JSON values that follow each other, or None when ``text`` is something else."""
    rest = text.lstrip("\ufeff \t\r\n")
    if not rest.startswith("{"):
        return None
    repeated: list[str] = []

    def told(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repeated.append(f"one of {', '.join(members)}"[:80])
        return members

    decoder, found = json.JSONDecoder(object_pairs_hook=told), []
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except json.JSONDecodeError:
            return None
        found.append(document)
        rest = rest[end:].lstrip()
    return Documents(found, repeated[:_MOST_REPEATED])
