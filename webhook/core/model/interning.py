"""Small maps that thousands of gangs share, kept once: their pods' counts, the flavors that they were given."""

from collections.abc import Mapping
from typing import Final, TypeVar
from weakref import WeakValueDictionary

V = TypeVar("V")


class _Interned(dict[str, V]):
    """A map that can be found again as long as somebody has it, and that nobody changes."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # One of each content: what is in a map may be one itself.


_MAPS: Final[WeakValueDictionary[tuple[tuple[str, object], ...], _Interned[object]]] = WeakValueDictionary()


def interned(record: Mapping[str, V]) -> Mapping[str, V]:
    """Return a map equal to ``record``, in the same order, that is in use already, if there is.

    Its values are texts, numbers of one type, or maps that are shared themselves.
    """
    return _MAPS.setdefault(tuple(record.items()), _Interned(record))  # type: ignore[return-value]
