"""Watches: what changed in the watch cache since a version, line by line, as documents or as one-row tables.

As in Kubernetes: without a version, or from version 0, everything that stands comes first; from a version, what changed
since; a version that is too old answers ERROR 410 and the client lists again. Bookmarks tell the version reached, when
asked for. A list sent as a watch (``sendInitialEvents``) ends with an annotated bookmark.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from webhook.visibility.documents.watch_cache import Document, Expired, Key, WatchCache
from webhook.visibility.http.group import API_VERSION, RESOURCES
from webhook.visibility.http.pace import Pace
from webhook.visibility.http.responses import status
from webhook.visibility.http.selecting import Selection
from webhook.visibility.http.tables import row, table

BOOKMARK_SECONDS: Final = 30.0
SECONDS_MAX: Final = 3600.0
LEAST_SECONDS: Final = 0.1
"""No wait is shorter."""
_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """One watch as asked for."""

    selection: Selection
    version: int | None
    """None: begin with everything that stands."""
    include: str | None = None
    """includeObject of a watch of tables; None: documents."""
    bookmarks: bool = False
    initial_end: bool = False
    """Say by a bookmark when everything that stands was sent."""
    seconds: float = SECONDS_MAX


class Watch:
    """The lines of one watch."""

    def __init__(
        self, cache: WatchCache, request: WatchRequest, now: Callable[[], float], pace: Pace | None = None
    ) -> None:
        self._cache = cache
        self._pace = pace or Pace()
        self._request = request
        self._now = now
        self._resource = request.selection.resource
        self._shown: set[Key] = set()
        """What the client holds."""
        self._doubtful: set[Key] = set()
        """What it may hold besides: another replica may have noticed it earlier, or its labels are not known here."""
        self._with_columns = True
        self._position = 0

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the events until the time is up, the version has expired or this replica stops."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._request.seconds
        # Who asks for none waits for changes alone: each look takes a turn from all other reads.
        bookmark_at = loop.time() + BOOKMARK_SECONDS if self._request.bookmarks else math.inf
        try:
            async for line in self._begin():
                yield line
            while (left := ends - loop.time()) > LEAST_SECONDS and not self._cache.ended:
                is_bookmark_due = loop.time() >= bookmark_at
                async for line in self._changes(is_bookmark_due):
                    yield line
                if is_bookmark_due:
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                    yield self._bookmark()
                wait = min(left, max(LEAST_SECONDS, bookmark_at - loop.time()))
                await self._cache.moved(wait, self._position)
        except Expired as expired:
            yield _event("ERROR", orjson.dumps(status(410, str(expired))))

    async def _begin(self) -> AsyncIterator[bytes]:
        """Find where to begin; yield everything that stands, if that is where."""
        selection, version = self._request.selection, self._request.version
        await self._pace.turn()
        self._position = self._cache.advance() if version is None else self._cache.position(version)
        if version is None:
            found = self._cache.documents(selection.resource, selection.namespace)
        else:
            found = self._cache.held(selection.resource, selection.namespace, version)
        async for stretch in self._pace.stretches(found, selection.terms):
            if version is not None:
                for key, document in stretch:
                    if self._selects(document):
                        is_sure = document.labels_known and document.since_version <= self._position
                        (self._shown if is_sure else self._doubtful).add(key)
                continue
            for line in [line for key, document in stretch for line in self._tell(key, document)]:
                yield line
        if version is None and self._request.initial_end:
            yield self._bookmark(_INITIAL_END)

    async def _changes(self, is_bookmark_due: bool) -> AsyncIterator[bytes]:
        await self._pace.turn()
        changes = self._cache.changes(self._resource, self._position)
        # Known before anything is sent: what changes while it is being sent comes after this version.
        self._position = self._cache.advance() if is_bookmark_due else self._cache.version
        placed = [change for change in changes if self._request.selection.has_place(change[0])]
        async for stretch in self._pace.stretches(placed, self._request.selection.terms):
            for line in [line for key, document in stretch for line in self._tell(key, document)]:
                yield line

    def _tell(self, key: Key, document: Document) -> Iterable[bytes]:
        known, may_be_held = key in self._shown, key in self._doubtful
        self._doubtful.discard(key)
        if not document.deleted and self._selects(document):
            self._shown.add(key)
            yield self._change("MODIFIED" if known else "ADDED", document)
        elif known or may_be_held or (document.deleted and not document.since_version and self._selects(document)):
            # The last is of what was never written here: nobody knows whether the client holds it.
            self._shown.discard(key)
            yield self._change("DELETED", document)

    def _selects(self, document: Document) -> bool:
        chosen = self._request.selection
        return chosen.everything or chosen.matches(document.parse(), labels_known=document.labels_known)

    def _change(self, kind: str, document: Document) -> bytes:
        if self._request.include is None:
            return _event(kind, document.render())
        made = table(
            self._resource,
            [row(self._resource, document.parse(), self._now(), self._request.include)],
            document.version,
        )
        if not self._with_columns:
            del made["columnDefinitions"]
        self._with_columns = False
        return _event(kind, orjson.dumps(made))

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self._position), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self._request.include is not None:
            made = table(self._resource, [], self._position)
            return _event("BOOKMARK", orjson.dumps({**made, "metadata": metadata}))
        kind = RESOURCES[self._resource].kind
        return _event("BOOKMARK", orjson.dumps({"kind": kind, "apiVersion": API_VERSION, "metadata": metadata}))


def _event(kind: str, document: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), document)
