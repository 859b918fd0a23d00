"""Paths into JSON objects: dotted text in configuration, tuples in code, JSON pointers (RFC 6901) in patches."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

Path = tuple[str, ...]
"""Keys from the root of an object. ``*`` stands for every item of a list or every value of a map."""

EACH: Final = "*"


def parse(text: str) -> Path:
    """Return the path written as dotted text, for example ``spec.replicatedJobs.*.active``; empty text is the root."""
    return tuple(text.split(".")) if text else ()


def render(path: Path) -> str:
    """Return a path as people write it: ``spec.template``."""
    return ".".join(path)


def escape(key: str) -> str:
    """Return one reference token of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


@lru_cache(maxsize=4096)
def pointer(*path: str | int) -> str:
    """Return the JSON pointer of a path whose keys are raw."""
    return "".join(f"/{escape(str(key))}" for key in path)


def find(node: Any, path: Path) -> Any:
    """Return what is at ``path`` (without ``*``) below ``node``, or None where anything on the way is missing."""
    try:
        for key in path:
            if node is None:
                return None
            node = node.get(key)
        return node
    except AttributeError:
        # No map: of JSON nothing else has such a method. Each review asks some twenty times, and rarely meets it.
        return None


def find_at(node: Any, place: Iterable[str | int]) -> Any:
    """Return what is at ``place``, which may lead through lists, or None where anything on the way is missing."""
    for key in place:
        if isinstance(node, list):
            is_index = isinstance(key, int) or (key.isdecimal() and len(key) < 10)  # int() refuses thousands of digits.
            node = node[int(key)] if is_index and int(key) < len(node) else None
        else:
            node = node.get(key) if isinstance(node, dict) else None
    return node


def find_mapping(node: Any, path: Path) -> Mapping[str, Any]:
    """Return the map at ``path``, or an empty one where it is missing or something else."""
    found = find(node, path)
    return found if isinstance(found, dict) else {}


def find_each(node: Any, path: Path) -> Iterator[Any]:
    """Yield everything that ``path`` (with ``*``) matches below ``node``; nothing where it leads nowhere."""
    for position, key in enumerate(path):
        if key == EACH:
            children = node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
            for child in children:
                yield from find_each(child, path[position + 1 :])
            return
        if not isinstance(node, dict) or key not in node:
            return
        node = node[key]
    yield node


def find_gap(node: Any, path: Path) -> Path | None:
    """Return the path of the first map on the way to ``path`` that is missing, or None when only the leaf may be."""
    for length, key in enumerate(path[:-1], start=1):
        node = node.get(key) if isinstance(node, dict) else None
        if node is None:
            return path[:length]
    return None


def nest(path: Path, value: Any) -> Any:
    """Return ``value`` inside one map for each key of ``path``."""
    for key in reversed(path):
        value = {key: value}
    return value
