"""How reads share the event loop and the memory of a process that also decides about jobs.

Anybody who may list one namespace may ask as often as he likes, and what he asks for may match nothing. So what counts
is what was looked at, not what was found, and all reads of the process together have one stretch of work at a time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from webhook.visibility.documents.watch_cache import Document, Key

STRETCH: Final = 100_000
"""Work between two turns of other tasks, about 2 ms. A byte of a document is 1."""
DOCUMENT_WORK: Final = 1_000
"""What any document costs beside its length."""
TERM_WORK: Final = 10
"""What a document is compared with costs, once for each document."""
WORK_SECONDS: Final = 2e-8
"""What one of work takes. Reads rest for as long as they work: decisions that await often keep half of the loop."""
LEAST_REST_SECONDS: Final = 0.002
"""Shorter rests are put together: the event loop's own timer counts in milliseconds."""
RETRY_SECONDS: Final = 1
_Found = tuple[Key, Document]


class Busy(Exception):
    """There are too many reads of this sort under way; try again later."""


class Pace:
    """Hands out stretches of work, one at a time, to all reads in the order in which they ask."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._owed_seconds = 0.0
        """Rest for work that was done."""

    async def turn(self, work: int = 0) -> None:
        """Return when the caller may do ``work``, until it awaits again; no other read works in the same turn."""
        # The next one is woken when the lock is left, so that it cannot work in the same turn of the loop as this one.
        async with self._turn:
            rest = self._owed_seconds if self._owed_seconds >= LEAST_REST_SECONDS else 0
            await asyncio.sleep(rest)
            self._owed_seconds += work * WORK_SECONDS - rest

    async def stretches(self, found: Iterable[_Found], terms: int) -> AsyncIterator[list[_Found]]:
        """Yield documents that are compared with ``terms`` values each, as many in a turn as may be looked at in it.

        The caller looks at all of them before it awaits: those whose clients read again at one moment would otherwise
        all go on in one turn.
        """
        stretch, left = list[_Found](), STRETCH
        for each in found:
            stretch.append(each)
            left -= DOCUMENT_WORK + each[1].size + TERM_WORK * terms
            if left <= 0:
                await self.turn(STRETCH - left)
                yield stretch
                stretch, left = [], STRETCH
        if stretch:
            await self.turn(STRETCH - left)
            yield stretch


class Seats:
    """Lets in so many reads at once of one place (a namespace, or all of them), and so many in all."""

    def __init__(self, sort: str, one_place_max: int, all_max: int) -> None:
        self._sort = sort
        self._one_place_max = one_place_max
        self._all_max = all_max
        self._taken: Counter[str | None] = Counter()

    @contextmanager
    def taken(self, place: str | None) -> Iterator[None]:
        """Let one read in until the context is left. Raises Busy."""
        where = "all namespaces" if place is None else f"namespace {place}"
        self._check(self._taken[place], self._one_place_max, f" of {where}")
        self._check(self._taken.total(), self._all_max, "")
        self._taken[place] += 1
        try:
            yield
        finally:
            self._taken[place] -= 1
            if not self._taken[place]:
                del self._taken[place]

    def _check(self, taken: int, most: int, of_what: str) -> None:
        if taken >= most:
            raise Busy(f"{self._sort}{of_what} under way: {taken}, the most at once; try again later")
