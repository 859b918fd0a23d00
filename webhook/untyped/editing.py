"""Edit JSON objects without touching the original, and say the difference as a JSON Patch (RFC 6902).

Edits share everything they do not touch, so the difference is found by walking only what changed. The patch is small:
one operation at the highest place that is new, one per changed leaf.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.untyped.paths import escape

Operation = dict[str, Any]
"""One JSON Patch operation: ``op``, ``path`` and, except for ``remove``, ``value``."""
Patch = list[Operation]


class Blocked(ValueError):
    """An edit would have to replace something that is not a map: the object is malformed, leave it to validation."""


def put(node: Any, place: Sequence[str | int], value: Any) -> Any:
    """Return ``node`` with ``value`` at ``place``; missing maps and a next list item are made. Raises Blocked."""
    if not place:
        return value
    key, rest = place[0], place[1:]
    if isinstance(key, int):
        node = [] if node is None else node
        if not isinstance(node, list) or key > len(node):
            raise Blocked(f"no item {key}")
        if key == len(node):
            return [*node, put(None, rest, value)]
        changed = put(node[key], rest, value)
        return node if changed is node[key] else [*node[:key], changed, *node[key + 1 :]]
    if node is None:
        node = {}
    if not isinstance(node, dict):
        raise Blocked(f"{key}: parent is not a map")
    current = node.get(key)
    changed = put(current, rest, value)
    return node if key in node and (changed is current or changed == current) else {**node, key: changed}


def put_if_possible(node: Any, place: Sequence[str | int], value: Any) -> Any:
    """Return ``node`` with ``value`` at ``place``; as it is where that would have to replace something else."""
    try:
        return put(node, place, value)
    except Blocked:
        return node


def drop(node: Any, place: Sequence[str | int], *, prune: bool = False) -> Any:
    """Return ``node`` without what is at ``place``; nothing there is fine. ``prune`` drops maps left empty."""
    key, rest = place[0], place[1:]
    if isinstance(key, int):
        if not isinstance(node, list) or key >= len(node):
            return node
        if not rest:
            return [*node[:key], *node[key + 1 :]]
        changed = drop(node[key], rest, prune=prune)
        return node if changed is node[key] else [*node[:key], changed, *node[key + 1 :]]
    if not isinstance(node, dict) or key not in node:
        return node
    if rest:
        changed = drop(node[key], rest, prune=prune)
        if changed is node[key]:
            return node
        if changed or not prune:
            return {**node, key: changed}
    return {other: value for other, value in node.items() if other != key}


def diff(old: Any, new: Any) -> Patch:
    """Return the patch that makes ``old`` into ``new``."""
    return list(_diff(old, new, ""))


def _diff(old: Any, new: Any, pointer: str) -> Iterator[Operation]:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _diff_maps(old, new, pointer)
    elif isinstance(old, list) and isinstance(new, list) and new:
        yield from _diff_lists(old, new, pointer)
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": pointer, "value": new}


def _diff_maps(old: Mapping[str, Any], new: Mapping[str, Any], pointer: str) -> Iterator[Operation]:
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": f"{pointer}/{escape(key)}"}
    for key, value in new.items():
        if key in old:
            # Most of an edited object is shared: do not even start on what is the same.
            if old[key] is not value:
                yield from _diff(old[key], value, f"{pointer}/{escape(key)}")
        else:
            yield {"op": "add", "path": f"{pointer}/{escape(key)}", "value": value}


def _diff_lists(old: Sequence[Any], new: Sequence[Any], pointer: str) -> Iterator[Operation]:
    if len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _diff(before, after, f"{pointer}/{index}")
    elif len(new) > len(old) and new[: len(old)] == old:
        for item in new[len(old) :]:
            yield {"op": "add", "path": f"{pointer}/-", "value": item}
    elif len(new) == len(old) - 1:
        index = next((i for i, item in enumerate(new) if item != old[i]), len(new))
        if new[index:] == old[index + 1 :]:
            yield {"op": "remove", "path": f"{pointer}/{index}"}
        else:
            yield {"op": "replace", "path": pointer, "value": new}
    else:
        yield {"op": "replace", "path": pointer, "value": new}
