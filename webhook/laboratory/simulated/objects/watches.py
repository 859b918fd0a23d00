"""Watch streams: changes of one kind as lines, with selectors, bookmarks, time-outs and ends.

An object that leaves the selector is told as DELETED and one that enters it as ADDED, as the watch cache of a real API
server does. A stream is always in revision order. A reader that falls too far behind is cut off without an error: a
real server does that too, under load it is the normal case.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from math import inf
from typing import Final

import orjson

from webhook.core.model.frozen import frozen
from webhook.laboratory.simulated.objects.conversion import as_served
from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.objects.store import Event, EventType, Store, Stored
from webhook.laboratory.simulated.requests.refusals import Refused
from webhook.laboratory.simulated.requests.selectors import ObjectPredicate, Predicate, everything

BOOKMARK_SECONDS: Final = 60.0
BACKLOG: Final = 10_000
"""Lines that may wait for a slow reader before it is cut off."""


@frozen
class Selection:
    """Which objects of a kind a list or watch is about."""

    namespace: str | None = None
    labels: Predicate = everything
    fields: ObjectPredicate | None = None

    def holds(self, stored: Stored) -> bool:
        """Return whether it selects the object."""
        if self.namespace is not None and stored.object["metadata"].get("namespace", "") != self.namespace:
            return False
        if self.labels is not everything and not self.labels(stored.labels):
            return False
        return self.fields is None or self.fields(stored.object)

    def change(self, event: Event) -> EventType | None:
        """Return what a change is to who sees the selected objects alone; None where it is nothing."""
        now = event.type != "DELETED" and self.holds(event.current)
        before = event.previous is not None and self.holds(event.previous)
        if now:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


def render(resource: Resource, stored: Stored) -> bytes:
    """Return the object's JSON in the version of ``resource``."""
    return as_served(resource, stored).raw


class Watch:
    """One open watch. ``lines`` ends when the time is over, the server ends it, or the reader is too slow."""

    def __init__(
        self, store: Store, resource: Resource, selection: Selection, *, bookmarks: bool, timeout_seconds: float
    ) -> None:
        self._store = store
        self.resource = resource
        self._selection = selection
        self._bookmarks = bookmarks
        self._timeout_seconds = timeout_seconds
        self._lines: deque[bytes] = deque()
        self._waiter: asyncio.Future[bool] | None = None
        """The reader, while it waits for a line."""
        self._timer: asyncio.TimerHandle | None = None
        """Wakes the reader when it has waited long enough. Mostly a line comes first, and the next wait ends then."""
        self._ended = False
        self._after = 0
        """Revision that the reader has seen. A server that was set back says nothing until it is there again."""
        self._selects_all = selection == Selection()
        store.on_restore[self.end] = None
        self._unsubscribe = store.subscribe(self._take, resource.storage)

    def start(self, revision: int | None, *, initial: bool = False, marked: bool = False) -> None:
        """Queue what happened since ``revision``, or all objects as ADDED when ``initial``.

        ``marked`` closes the initial objects with the bookmark that ``sendInitialEvents`` promises. A revision that is
        too old is told in the stream, as a real server does.
        """
        try:
            if initial:
                for stored in self._store.items(self.resource.storage, self._selection.namespace):
                    if self._selection.holds(stored):
                        self._push(b'{"type":"ADDED","object":%b}\n' % render(self.resource, stored))
                if marked:
                    self._push(self._bookmark(initial_end=True))
            elif revision is not None:
                self._after = revision
                for event in self._store.since(self.resource.storage, revision):
                    self._take(event)
        except Refused as refused:
            self._push(b'{"type":"ERROR","object":%b}\n' % orjson.dumps(refused.status))
            self.end()

    async def lines(self, idle_seconds: float = inf) -> AsyncIterator[bytes]:
        """Yield the lines as they come; end when none came for ``idle_seconds``."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout_seconds
        bookmark = loop.time() + BOOKMARK_SECONDS
        idle = loop.time() + idle_seconds
        try:
            while True:
                while self._lines:
                    yield self._lines.popleft()
                    idle = loop.time() + idle_seconds
                if self._ended:
                    return
                # A timer may fire a hair before its time: what has run out is what was waited for, not what a
                # comparison with the clock says.
                if await self._woken_before(min(ends, bookmark, idle)):
                    continue
                if idle < min(ends, bookmark):
                    return
                if self._bookmarks and self._store.revision >= self._after:
                    yield self._bookmark()
                    idle = loop.time() + idle_seconds
                if ends <= bookmark:
                    return
                bookmark += BOOKMARK_SECONDS
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.end()

    @property
    def ended(self) -> bool:
        """Whether no more lines come than are queued."""
        return self._ended

    def end(self) -> None:
        """End the stream after the lines that are queued already."""
        if not self._ended:
            self._ended = True
            self._store.on_restore.pop(self.end, None)
            self._unsubscribe()
            self._woken()

    async def _woken_before(self, when: float) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiter = waiter
        if self._timer is None or self._timer.when() != when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(when, self._time_is_over)
        return await waiter

    def _time_is_over(self) -> None:
        self._timer = None
        self._settle(woken=False)

    def _woken(self) -> None:
        self._settle(woken=True)

    def _settle(self, *, woken: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(woken)

    def _take(self, event: Event) -> None:
        kind = self._seen_as(event)
        if kind is None or event.revision <= self._after:
            return
        if event.current.object["apiVersion"] == self.resource.api_version:
            self._push(event.line(kind))
        else:
            self._push(b'{"type":"%b","object":%b}\n' % (kind.encode(), render(self.resource, event.current)))

    def _seen_as(self, event: Event) -> EventType | None:
        if self._selects_all:
            return event.type
        for selection, kind in event.seen:
            if selection is self._selection:
                return kind
        kind = self._selection.change(event)
        event.seen.append((self._selection, kind))
        return kind

    def _push(self, line: bytes) -> None:
        if len(self._lines) >= BACKLOG:
            self._lines.clear()
            self.end()
            return
        self._lines.append(line)
        self._woken()

    def _bookmark(self, initial_end: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        item = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % orjson.dumps(item)
