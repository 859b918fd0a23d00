"""Small maps that thousands of gangs share, kept once: their pods' counts, flavors, and what queues are charged."""

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Interned(dict[K, V]):
    """A map that can be found again as long as somebody has it, and that nobody changes."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # One of each content: what is in a map may be one itself.


_MAPS: Final[WeakValueDictionary[tuple[tuple[Hashable, object], ...], Mapping[Any, Any]]] = WeakValueDictionary()


def interned(record: Mapping[K, V]) -> Mapping[K, V]:
    """Return a map equal to ``record``, in the same order, that is in use already, if there is.

    Its values are texts, numbers of one type, or maps that are shared themselves.
    """
    return _MAPS.setdefault(tuple(record.items()), _Interned(record))
