"""A heap in which each item has one place, which may change: what kube-scheduler's queues are made of."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KeyedHeap(Generic[T]):
    """Items by place, the smallest first. Entries of places that an item no longer has are dropped when met."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, int, T]] = []
        self._current: dict[T, tuple[Any, int, T]] = {}
        self._pushed = 0

    def push(self, place: Any, item: T) -> None:
        """Give ``item`` this place and no other; of equal places the earlier push goes first."""
        self._pushed += 1
        entry = self._current[item] = (place, self._pushed, item)
        heappush(self._entries, entry)

    def place_of(self, item: T) -> Any:
        """Return the place of ``item``; None when it is not here."""
        known = self._current.get(item)
        return None if known is None else known[0]

    def discard(self, item: T) -> None:
        """Take ``item`` out, if it is here."""
        self._current.pop(item, None)

    def first(self) -> T | None:
        """Return the first item, which stays."""
        entries, current = self._entries, self._current
        while entries:
            entry = entries[0]
            if current.get(entry[2]) is entry:
                return entry[2]
            heappop(entries)
        return None

    def __iter__(self) -> Iterator[T]:
        return iter(self._current)

    def copy(self, renamed: Callable[[T], T | None]) -> "KeyedHeap[T]":
        """Return an independent heap of what ``renamed`` makes of the items; those that it makes None are left out."""
        twin: KeyedHeap[T] = KeyedHeap()
        twin._pushed = self._pushed
        for item, (place, number, _) in self._current.items():
            other = renamed(item)
            if other is not None:
                twin._current[other] = (place, number, other)
        twin._entries = list(twin._current.values())
        heapify(twin._entries)
        return twin
