"""When the plain pods of a PodGroup are read as one gang: at once if they are few, otherwise after a pause.

Reading them costs as much as there are pods, and each of them may change all the time: a tenant's thousands must not
hold up the others, nor a process that starts and is told of one after another.
"""

import asyncio
from collections.abc import Callable
from typing import Final

FEW: Final = 32
"""So many are read at each change."""
REST_SECONDS_A_POD: Final = 2e-4
"""Twenty times what reading one takes."""

Group = tuple[str, str]
"""Namespace and name of a PodGroup."""


class Gathering:
    """Of all groups of one cluster."""

    def __init__(self, gather: Callable[[Group], None]) -> None:
        """``gather`` reads one group."""
        self._gather = gather
        self._due: set[Group] = set()

    def changed(self, group: Group, pods: int) -> None:
        """Have a group of so many ``pods`` read, one of which has changed."""
        if pods <= FEW:
            self._gather(group)
        elif group not in self._due:
            self._due.add(group)
            asyncio.get_running_loop().call_later(pods * REST_SECONDS_A_POD, self._rested, group)

    def _rested(self, group: Group) -> None:
        self._due.discard(group)
        self._gather(group)
