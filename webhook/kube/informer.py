"""Keeps records of one resource current: drives ``list_watch`` against an ``Api`` and tells who listens what changed.

Objects are projected to small records as they arrive and nothing else is kept: that, and yielding to the loop between
batches, is what keeps a list of thousands of pods from stopping admission. Each object is read by itself, no deeper
than ``wire.nesting`` says. An object that cannot be read, or a listener that fails, is logged and counted; the informer
goes on.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Generic

import structlog

from webhook import errors, metrics
from webhook.kube.api import Api
from webhook.kube.list_watch import (
    HEALTHY_SECONDS,
    IDLE_SECONDS,
    MISSING_RETRY_SECONDS,
    PAGE_SIZE,
    ListRequest,
    ListWatch,
    Progress,
    WatchRequest,
)
from webhook.kube.statuses import refusal
from webhook.kube.store import Change, Key, R, Store
from webhook.wire.nesting import LEVELS_MAX, WRAPPING_LEVELS, shallow_with_pauses
from webhook.wire.watch import (
    Malformed,
    Status,
    TooDeep,
    read_event,
    read_metadata,
    read_page,
    read_status,
    version_number,
)

log = structlog.get_logger(__name__)

BATCH: Final = 100
"""Objects taken in before other tasks get their turn."""
NAMED_MAX: Final = 100
"""Unreadable objects that are remembered by name; all are counted."""
REASON_CHARS_MAX: Final = 300
REFUSALS_MIN: Final = 3
"""Refusals of a list or watch in a row that are no passing trouble of the API server any more."""
LIST_TIMEOUT_SECONDS: Final = 60.0
"""One page of a big list on a busy server."""
AUDIT_SHARE: Final = 0.01
"""So much of a process's time goes into audits of one resource at most, unless a list takes very long."""
AUDIT_INTERVALS_MAX: Final = 10
"""So many intervals after the last list there is an audit all the same: it finds what a watch has missed."""
AUDIT_SPREAD: Final = 0.2
"""So far an audit may be off its interval: processes that start together do not list together for long."""


@dataclass(slots=True)
class WatchCounts:
    """What an informer has met so far, for who asks whether it met anything: tests do."""

    lists: int = 0
    """Complete lists."""
    events: int = 0
    unreadable: int = 0
    """Objects whose projection raised."""
    listener_failures: int = 0
    failures: int = 0
    """Requests refused or not answered."""


class Informer(Generic[R]):
    """Records of one resource by (namespace, name), current for as long as ``run`` runs."""

    def __init__(
        self,
        api: Api,
        path: str,
        decode: Callable[[bytes], R | None],
        *,
        rng: Random,
        name: str = "",
        label_selector: str = "",
        field_selector: str = "",
        on_change: Callable[[R | None, R | None], None] | None = None,
        page_size: int = PAGE_SIZE,
        idle_seconds: float = IDLE_SECONDS,
        missing_retry_seconds: float = MISSING_RETRY_SECONDS,
        audit_seconds: float | None = None,
        stand_in: Callable[[bytes, Exception], R | None] | None = None,
        on_refusal: Callable[[], None] = lambda: None,
        on_synced: Callable[[], object] = lambda: None,
    ) -> None:
        """``decode`` projects the JSON of one object, or returns None for an object to be treated as absent.

        Where it fails, what was known of the object stands; where nothing was, what ``stand_in`` makes of it.

        ``on_refusal`` is called when ``refusal`` changes, ``on_synced`` when ``synced`` is set, ``on_change`` as
        ``subscribe`` says. ``audit_seconds`` is about how often everything is listed again.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self.name = name or path.rsplit("/", 1)[-1]
        self.counts = WatchCounts()
        self.synced = asyncio.Event()
        """Set once everything was read for the first time, or the resource is known not to be served."""
        self.heard_seconds = float("-inf")
        """Monotonic time up to which all is known that there was: when the API server last sent a line of the watch, or
        was asked for a list that is whole by now.
        """
        self.refusal = ""
        """Why the API server has refused it several times in a row; empty while it answers, or is not there."""
        self._refusals = 0
        self._said = ""
        """The failure that was logged last; the same again, with nothing read in between, is not news."""
        self._on_refusal = on_refusal
        self._on_synced = on_synced
        self._list_asked_seconds = self.heard_seconds
        self._api = api
        self._path = path
        self._decode = decode
        self._stand_in = stand_in
        self._listeners: list[Callable[[R | None, R | None], None]] = [] if on_change is None else [on_change]
        self._rng, self._audit_seconds = rng, audit_seconds
        self._audit: asyncio.TimerHandle | None = None
        self._store: Store[R] = Store()
        self.type = ("", "")
        """The apiVersion and kind of its objects, as the list says; empty before there was one."""
        self._logged: set[Key] = set()
        """What a log says could not be read, since all was listed: who writes such things may do so all the time."""
        self.unreadable: dict[Key, str] = {}
        """Objects whose present state could not be read, and why; what was known of them before stands."""
        self._relist_asked = asyncio.Event()
        self._watching: asyncio.Timeout | None = None
        """Ends the watch that is under way, once it is told to."""
        self._rereads_asked = self._reread_running = self._rereads_done = 0
        self._reread_done: asyncio.Event | None = None
        """Is set at the end of a list, or at a refusal, where somebody waits for that."""
        self._machine = ListWatch(
            rng,
            selectors={key: text for key, text in selectors.items() if text},
            page_size=page_size,
            idle_seconds=idle_seconds,
            missing_retry_seconds=missing_retry_seconds,
        )

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def records(self) -> Mapping[Key, R]:
        """All records by (namespace, name); live, so copy what must not change under an await."""
        return self._store.records

    def get(self, namespace: str, name: str) -> R | None:
        """Return the record of that object, if it exists."""
        return self._store.records.get((namespace, name))

    def holds(self, namespace: str) -> bool:
        """Return whether objects of that namespace were read, those that cannot be read included."""
        return any(where == namespace for known in (self.records, self.unreadable) for where, _ in known)

    @property
    def trouble(self) -> str:
        """Why the last request failed, if nothing was read since; or ``refusal``."""
        return self.refusal or self._said

    @property
    def served(self) -> bool:
        """The API server knows the resource (its CRD is installed)."""
        return self._machine.served is True

    @property
    def position(self) -> int:
        """The newest resourceVersion seen: everything up to it is in ``records``."""
        return self._machine.position

    @property
    def listing(self) -> bool:
        """Changes that are told now were shown by a list, not by a watch."""
        return self._machine.listing

    def subscribe(self, listener: Callable[[R | None, R | None], None]) -> None:
        """Call ``listener(old, new)`` at every change from now on; ``new`` is None when the object is gone."""
        self._listeners.append(listener)

    def relist(self) -> None:
        """Read everything again soon, for example because ``decode`` now answers differently."""
        self._relist_asked.set()
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(0.0)

    async def reread(self, *, unless_refused: bool = False) -> bool:
        """Read everything again; return True when that is done: a list that began after this call was taken in.

        Waits for as long as the API server cannot be read; with ``unless_refused`` it returns False once there is a
        ``refusal``. Needs ``run`` to be running.
        """
        self._rereads_asked += 1
        ticket = self._rereads_asked
        self.relist()
        while self._rereads_done < ticket:
            if unless_refused and self.refusal:
                return False
            if self._reread_done is None:
                self._reread_done = asyncio.Event()
            await self._reread_done.wait()
        return True

    # -- running ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the records current until cancelled."""
        try:
            while True:
                if self._relist_asked.is_set() and not self._machine.within_list:
                    self._relist_asked.clear()
                    self._machine.relist()
                wait_seconds = await self._step_until_relist()
                if wait_seconds:
                    await self._rest(wait_seconds)
        finally:
            if self._audit is not None:
                self._audit.cancel()

    async def _rest(self, seconds: float) -> None:
        """Wait before the next request. A wish to list again ends that where the resource is not served: that was an
        answer, and no failure that has to be left in peace.
        """
        if self._machine.served is not False:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._relist_asked.wait()

    async def _step_until_relist(self) -> float:
        """Do one request; return how long to wait before the next. A wish to list again cuts a watch short.

        A list is finished first: wishes that come faster than it is read would keep it from ever being whole.
        """
        if self._machine.listing:
            return await self._step()
        self._watching = watching = asyncio.timeout(None)
        try:
            async with watching:
                return await self._step()
        except TimeoutError:
            if not watching.expired():
                raise
            return 0.0
        finally:
            self._watching = None

    async def _step(self) -> float:
        try:
            match self._machine.request():
                case ListRequest() as request:
                    return await self._list(request)
                case WatchRequest() as request:
                    return await self._watch(request)
        except Malformed as error:
            # Watching again from the same version could meet the same line for ever.
            self._machine.relist()
            return self._failed(errors.Unavailable(0, "Malformed", str(error)), answered=True)
        except errors.ApiError as error:
            return self._failed(error)

    def _failed(self, error: errors.ApiError, *, answered: bool = False) -> float:
        """``answered``: there was an answer, by which nothing can be read, though it is no status."""
        self.counts.failures += 1
        wait_seconds = self._machine.failed(error)
        # To be asked for less, or to ask later (408, 429, a server that starts), is no refusal.
        later = isinstance(error, errors.Unavailable) and error.status < 500 and not answered
        if wait_seconds and not later and not isinstance(error, errors.NotFound | errors.Gone):
            self._refusals += 1
            if self._refusals >= REFUSALS_MIN:
                self._note_refusal(str(error)[:REASON_CHARS_MAX])
        elif isinstance(error, errors.NotFound):
            self._not_refused()
        if self._machine.served is False:
            self._store.begin_list()
            self.unreadable.clear()
            self._tell(self._store.end_list())
            self._note_read()
            if not self.synced.is_set():
                log.info("informer.not_served", informer=self.name, path=self._path)
            self._note_synced()
        elif str(error) != self._said:
            self._said = str(error)
            log.warning("informer.failed", informer=self.name, error=self._said, retry_seconds=round(wait_seconds, 1))
        return wait_seconds

    # -- lists ------------------------------------------------------------------------------------------------------

    async def _list(self, request: ListRequest) -> float:
        if request.first:
            self._reread_running = self._rereads_asked
            self._list_asked_seconds = asyncio.get_running_loop().time()
        body = await self._api.request("GET", self._path, query=request.query, timeout_seconds=LIST_TIMEOUT_SECONDS)
        try:
            page = read_page(body)
        except TooDeep:
            page = read_page(await shallow_with_pauses(body, LEVELS_MAX + WRAPPING_LEVELS))
        self.type = (page.api_version, page.kind.removesuffix("List"))
        progress = self._machine.page_read(page.metadata.resource_version, page.metadata.continue_token)
        if progress is Progress.STALE:
            log.warning("informer.stale_list", informer=self.name, position=self.position)
            return self._machine.stale()
        if request.first:
            self._store.begin_list()
            self.unreadable.clear()
        await self._take_in(page.objects())
        if progress is Progress.COMPLETE:
            self._tell(self._store.end_list())
            self._listed()
        return 0.0

    async def _take_in(self, objects: Iterable[bytes]) -> None:
        for number, raw in enumerate(objects, start=1):
            self._tell(self._listed_changes(await shallow_with_pauses(raw)))
            if number % BATCH == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _listed_changes(self, raw: bytes) -> Iterable[Change[R]]:
        try:
            record = self._decode(raw)
            return () if record is None else self._store.put_listed(record)
        except Exception as error:
            return self._kept_listed(raw, error)

    def _kept_listed(self, raw: bytes, error: Exception) -> Iterable[Change[R]]:
        try:
            metadata = read_metadata(raw)
        except Malformed:
            self._unreadable(("", ""), error)
            return ()
        key = (metadata.namespace, metadata.name)
        self._unreadable(key, error)
        changes = self._store.keep_listed(key, metadata.uid)
        record = self._stood_in(key, raw, error)
        return changes if record is None else (*changes, *self._store.put_listed(record))

    def _note_refusal(self, why: str) -> None:
        if why != self.refusal:
            self.refusal = why
            self._wake_rereads()
            self._on_refusal()

    def _not_refused(self) -> None:
        self._refusals = 0
        self._note_refusal("")

    def _listed(self) -> None:
        self._machine.listed()
        self._said = ""
        self._logged.clear()
        self.counts.lists += 1
        self.heard_seconds = self._list_asked_seconds
        self._note_read()
        self._note_synced()
        self._not_refused()
        if self._audit_seconds is not None:
            if self._audit is not None:
                self._audit.cancel()
            self._audit = asyncio.get_running_loop().call_later(self._until_audit(self._audit_seconds), self.relist)

    def _until_audit(self, usual_seconds: float) -> float:
        """Return after how long everything is listed again.

        Where there is much, all processes at once would keep the API server and themselves from everything else.
        """
        took_seconds = asyncio.get_running_loop().time() - self._list_asked_seconds
        seconds = max(usual_seconds, min(took_seconds / AUDIT_SHARE, usual_seconds * AUDIT_INTERVALS_MAX))
        return seconds * (1 + self._rng.uniform(-AUDIT_SPREAD, AUDIT_SPREAD))

    def _note_synced(self) -> None:
        if not self.synced.is_set():
            self.synced.set()
            self._on_synced()

    def _note_read(self) -> None:
        self._rereads_done = self._reread_running
        self._wake_rereads()

    def _wake_rereads(self) -> None:
        if self._reread_done is not None:
            self._reread_done.set()
            self._reread_done = None

    # -- watches ----------------------------------------------------------------------------------------------------

    async def _watch(self, request: WatchRequest) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        lines = self._api.watch(self._path, query=request.query, idle_seconds=request.idle_seconds)
        # A quiet one says nothing for a minute.
        works = loop.call_later(HEALTHY_SECONDS, self._not_refused) if self._refusals else None
        try:
            number = 0
            async for line in lines:
                self._tell(self._event_changes(await shallow_with_pauses(line, LEVELS_MAX + 1)))
                self.heard_seconds, self._said = loop.time(), ""
                if self._refusals:
                    self._not_refused()
                number += 1
                if number % BATCH == 0:
                    # Lines that arrived together are handed over without a pause in between.
                    await asyncio.sleep(0)
        finally:
            if works is not None:
                works.cancel()
            if isinstance(lines, AsyncGenerator):
                await lines.aclose()
        return self._machine.watch_ended(loop.time() - started)

    def _event_changes(self, line: bytes) -> Iterable[Change[R]]:
        event = read_event(line)
        self.counts.events += 1
        if event.type == "ERROR":
            status = read_status(event.object) or Status(500, "InternalError", "unreadable watch error")
            raise refusal(status.code or 500, bytes(event.object), is_write=False)
        metadata = read_metadata(event.object)
        changes: Iterable[Change[R]] = ()
        if event.type != "BOOKMARK":
            changes = self._object_changes(
                event.type,
                bytes(event.object),
                (metadata.namespace, metadata.name),
                metadata.uid,
                version_number(metadata.resource_version),
            )
        self._machine.advanced(metadata.resource_version)
        return changes

    def _object_changes(
        self, event_type: str, raw: bytes, key: Key, uid: str, resource_version: int
    ) -> Iterable[Change[R]]:
        self.unreadable.pop(key, None)
        if event_type == "DELETED":
            return self._store.drop(key, uid, resource_version)
        try:
            record = self._decode(raw)
            if record is not None:
                return self._store.put(record)
        except Exception as error:
            self._unreadable(key, error)
            changes = self._store.keep(key, uid)
            stood_in = self._stood_in(key, raw, error)
            return changes if stood_in is None else (*changes, *self._store.put(stood_in))
        return self._store.drop(key, uid, resource_version) if key in self._store.records else ()

    def _stood_in(self, key: Key, raw: bytes, error: Exception) -> R | None:
        if self._stand_in is None or key in self._store.records:
            return None
        try:
            return self._stand_in(raw, error)
        except Exception:
            log.exception("informer.nothing_stands_in", informer=self.name, object="/".join(key))
            return None

    # -- telling ----------------------------------------------------------------------------------------------------

    def _tell(self, changes: Iterable[Change[R]]) -> None:
        for old, new in changes:
            for listener in self._listeners:
                try:
                    listener(old, new)
                except Exception:
                    self.counts.listener_failures += 1
                    log.exception("informer.listener_failed", informer=self.name)

    def _unreadable(self, key: Key, error: Exception) -> None:
        self.counts.unreadable += 1
        if len(self.unreadable) < NAMED_MAX:
            self.unreadable[key] = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
        metrics.UNREADABLE_OBJECTS.labels(self.name).inc()
        if key not in self._logged and len(self._logged) < NAMED_MAX:
            self._logged.add(key)
            log.exception("informer.unreadable", informer=self.name, object="/".join(key))
