"""Events that wait to be written, by namespace: each has its turn, and the one with most loses when there are too many.

So a namespace that makes thousands of them delays and displaces only its own. Of one namespace the oldest is written
first, and dropped first.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A bounded queue with turns."""

    def __init__(self, most: int) -> None:
        """``most`` is how many wait at a time, of all namespaces together."""
        self._most = most
        self._waiting: dict[str, deque[T]] = {}
        """By namespace, in the order of their turns."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, namespace: str, event: T) -> bool:
        """Queue an event; return whether none had to be dropped for it."""
        self._waiting.setdefault(namespace, deque()).append(event)
        self._count += 1
        if self._count <= self._most:
            return True
        self._take(max(self._waiting, key=lambda name: len(self._waiting[name])))
        return False

    def take(self) -> T:
        """Return the oldest event of the namespace whose turn it is. Raises StopIteration when there is none."""
        namespace = next(iter(self._waiting))
        event = self._take(namespace)
        if namespace in self._waiting:
            self._waiting[namespace] = self._waiting.pop(namespace)
        return event

    def _take(self, namespace: str) -> T:
        event = self._waiting[namespace].popleft()
        self._count -= 1
        if not self._waiting[namespace]:
            del self._waiting[namespace]
        return event
