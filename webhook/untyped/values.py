"""Single values of an object, read whatever type somebody wrote: what is of another type counts as absent."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def text(value: object) -> str:
    """Return a text, the empty one for anything else."""
    return value if isinstance(value, str) else ""


def integer(value: object) -> int:
    """Return a number that is written as such or as decimal text, as versions are; 0 for anything else."""
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        return int(value[:32])
    return value if type(value) is int else 0


def items(value: object) -> list[Any]:
    """Return a list, the empty one for anything else."""
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    """Return a map, an empty one for anything else."""
    return value if isinstance(value, dict) else _EMPTY


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the maps of a list, and nothing for anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def seconds(value: object) -> float:
    """Return a timestamp of an object as Unix time; 0 when it is absent or unreadable."""
    if not isinstance(value, str):
        return 0.0
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return 0.0
