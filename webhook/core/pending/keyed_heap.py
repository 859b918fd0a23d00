"""A heap in which each item has one place, which may change: what kube-scheduler's queues are made of.

The first is asked for several times as often as a place is changed.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_ITEM, _STAYS = 2, 3


class KeyedHeap(Generic[T]):
    """Items by place, the smallest first. Entries of places that an item no longer has are dropped when met."""

    def __init__(self) -> None:
        self._entries: list[list[Any]] = []
        """Of each its place, the number of its push, the item, and whether it has that place still."""
        self._current: dict[T, list[Any]] = {}
        self._pushed = 0

    def push(self, place: Any, item: T) -> None:
        """Give ``item`` this place and no other; of equal places the earlier push goes first."""
        before = self._current.get(item)
        if before is not None:
            before[_STAYS] = False
        self._pushed += 1
        entry = self._current[item] = [place, self._pushed, item, True]
        heappush(self._entries, entry)

    def place_of(self, item: T) -> Any:
        """Return the place of ``item``; None when it is not here."""
        known = self._current.get(item)
        return None if known is None else known[0]

    def discard(self, item: T) -> None:
        """Take ``item`` out, if it is here."""
        entry = self._current.pop(item, None)
        if entry is not None:
            entry[_STAYS] = False

    def first(self) -> T | None:
        """Return the first item, which stays."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if entry[_STAYS]:
                first: T = entry[_ITEM]
                return first
            heappop(entries)
        return None

    def pop(self) -> tuple[Any, T] | None:
        """Take the first item out, and return it with its place."""
        entries = self._entries
        while entries:
            place, _, item, stays = heappop(entries)
            if stays:
                del self._current[item]
                return place, item
        return None

    def __iter__(self) -> Iterator[T]:
        return iter(self._current)

    def copy(self, renamed: Callable[[T], T | None]) -> "KeyedHeap[T]":
        """Return an independent heap of what ``renamed`` makes of the items; those that it makes None are left out."""
        twin: KeyedHeap[T] = KeyedHeap()
        twin._pushed = self._pushed
        for item, (place, number, _, _) in self._current.items():
            other = renamed(item)
            if other is not None:
                twin._current[other] = [place, number, other, True]
        twin._entries = list(twin._current.values())
        heapify(twin._entries)
        return twin
