"""The HTTP surface of the read API: discovery, OpenAPI, and get, list and watch of two resources. Nothing is written.

Accept headers are honoured as kubectl sends them: tables where it can render them, JSON otherwise.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from webhook.visibility.documents.reporter import Reporter
from webhook.visibility.documents.watch_cache import Expired, Key, WatchCache
from webhook.visibility.http import discovery, openapi
from webhook.visibility.http.group import API_VERSION, GROUP, RESOURCES, ROOT
from webhook.visibility.http.listing import pieces
from webhook.visibility.http.pace import RETRY_SECONDS, Busy, Pace, Seats
from webhook.visibility.http.responses import busy, refuse, reply
from webhook.visibility.http.selecting import Selection, selection
from webhook.visibility.http.tables import row, table
from webhook.visibility.http.watching import SECONDS_MAX, Watch, WatchRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CloseAfter = Callable[[web.Request], bool]
_OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
_JSON: Final = "application/json"
_IS_LAST: Final = web.RequestKey("is_last", bool)
"""The connection ends with the answer."""
LISTS_MAX: Final = (32, 128)
WATCHES_MAX: Final = (64, 512)
"""At once: of one namespace or of all namespaces, and in all. A list that waits for its client to read holds references
to its documents, a watch the names of those it has told: some 100 bytes for each, 2 MB for 20,000."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The form of the answer, by the Accept header."""

    table: bool
    include: str


def build_app(
    cache: WatchCache,
    reporter: Reporter,
    *,
    now: Callable[[], float],
    refusal: Callable[[web.Request], str | None],
    ready: Callable[[], bool] = lambda: True,
    close_after: CloseAfter = lambda request: False,
) -> web.Application:
    """Return the application.

    ``refusal`` says why a caller is not the front proxy; ``ready`` whether the caches are full.
    """
    front = _Front(cache, reporter, now, ready)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Asked first: a connection whose first request is a watch must not look as if it had never sent one.
        is_last = close_after(request)
        request[_IS_LAST] = is_last
        response = await _guarded(request, handler, refusal)
        if is_last and not response.prepared:
            response.force_close()
        return response

    app = web.Application(middlewares=[guard])
    for path in sorted(_OPEN_PATHS):
        app.router.add_get(path, front.health)
    app.router.add_get("/apis", _fixed(discovery.aggregated(), discovery.AGGREGATED))
    app.router.add_get(ROOT, _fixed(discovery.resource_list()))
    app.router.add_get("/openapi/v3", _fixed(openapi.index()))
    app.router.add_get(f"/openapi/v3{ROOT}", _fixed(openapi.document()))
    for plural in RESOURCES:
        for place in ("", "/namespaces/{namespace}"):
            # What is sent piece by piece would follow the header of a HEAD request, too.
            app.router.add_get(f"{ROOT}{place}/{plural}", front.reader(plural), allow_head=False)
        app.router.add_get(f"{ROOT}/namespaces/{{namespace}}/{plural}/{{name}}", front.reader(plural), allow_head=False)
    return app


async def _guarded(
    request: web.Request, handler: Handler, refusal: Callable[[web.Request], str | None]
) -> web.StreamResponse:
    if request.path not in _OPEN_PATHS and (why := refusal(request)) is not None:
        return refuse(401, why)
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed:
        return refuse(405, f"{API_VERSION} is read-only: it shows what Tutti knows; write to the job itself")
    except web.HTTPNotFound:
        return refuse(404, "the server could not find the requested resource")


def _fixed(document: Mapping[str, Any], content_type: str = _JSON) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return reply(document, content_type=content_type)

    return answer


class _Front:
    """Answers reads."""

    def __init__(
        self, cache: WatchCache, reporter: Reporter, now: Callable[[], float], ready: Callable[[], bool]
    ) -> None:
        self._cache = cache
        self._reporter = reporter
        self._now = now
        self._ready = ready
        self._pace = Pace()
        self._lists = Seats("lists", *LISTS_MAX)
        self._watches = Seats("watches", *WATCHES_MAX)

    async def health(self, _request: web.Request) -> web.StreamResponse:
        """Answer a probe."""
        return web.Response(text="ok\n")

    def reader(self, resource: str) -> Handler:
        """Return the handler of get, list and watch of a resource."""

        async def read(request: web.Request) -> web.StreamResponse:
            if not self._ready():
                return refuse(503, "Tutti has not read the cluster yet")
            try:
                chosen = selection(resource, request.match_info.get("namespace"), request.query)
            except ValueError as error:
                return refuse(400, str(error))
            is_watch = request.query.get("watch", "").lower() in ("1", "true")
            name = request.match_info.get("name")
            if name is not None and not is_watch:
                await self._reporter.fresh(chosen.resource, chosen.namespace)
                return self._get(request, chosen, name)
            answer, seats = (self._watch, self._watches) if is_watch else (self._list, self._lists)
            try:
                with seats.taken(chosen.namespace):
                    await self._reporter.fresh(chosen.resource, chosen.namespace)
                    return await answer(request, chosen)
            except Busy as error:
                return busy(str(error), chosen.resource, RETRY_SECONDS)

        return read

    def _get(self, request: web.Request, chosen: Selection, name: str) -> web.StreamResponse:
        found = self._cache.get(Key(chosen.resource, chosen.namespace or "", name))
        if found is None:
            return refuse(404, f'{chosen.resource}.{GROUP} "{name}" not found', resource=chosen.resource, name=name)
        asked = _asked(request)
        if asked.table:
            rows = [row(chosen.resource, found.parse(), self._now(), asked.include)]
            return reply(table(chosen.resource, rows, found.version))
        return web.Response(body=found.render(), content_type=_JSON)

    async def _list(self, request: web.Request, chosen: Selection) -> web.StreamResponse:
        asked = _asked(request)
        include = asked.include if asked.table else None
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await _send(request, response, pieces(self._cache, self._pace, chosen, self._now, include))
        return response

    async def _watch(self, request: web.Request, chosen: Selection) -> web.StreamResponse:
        name = request.match_info.get("name")
        if name is not None:
            chosen = selection(chosen.resource, chosen.namespace, request.query, name)
        try:
            asked_for = _watch_request(request, chosen)
            if asked_for.version is not None:
                self._cache.position(asked_for.version)
        except Expired as expired:
            return refuse(410, str(expired), resource=chosen.resource)
        except ValueError as error:
            return refuse(400, str(error))
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        self._reporter.watch_opened(chosen.resource)
        try:
            await _send(request, response, Watch(self._cache, asked_for, self._now, self._pace).lines())
        finally:
            self._reporter.watch_closed(chosen.resource)
        return response


async def _send(request: web.Request, response: web.StreamResponse, parts: AsyncIterator[bytes]) -> None:
    """Send what comes until it ends or nobody reads it any more."""
    if request[_IS_LAST]:
        response.force_close()
    with suppress(ConnectionResetError):
        await response.prepare(request)
        async for part in parts:
            await response.write(part)
        await response.write_eof()


def _asked(request: web.Request) -> _Asked:
    """Return the first form of the Accept header that we can make."""
    include = request.query.get("includeObject", "Metadata")
    for part in request.headers.get("Accept", "").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if kind in (_JSON, "*/*") and not any(p.startswith("as=") for p in parameters):
            break
        if kind == _JSON and {"as=table", "v=v1", "g=meta.k8s.io"} <= set(parameters):
            return _Asked(True, include)
    return _Asked(False, include)


def _watch_request(request: web.Request, chosen: Selection) -> WatchRequest:
    """Return what a watch asks for. Raises ValueError for a number that is none."""
    query, asked = request.query, _asked(request)
    initial = query.get("sendInitialEvents", "").lower() == "true"
    text = query.get("resourceVersion", "")
    version = None if initial or text in ("", "0") else _number("resourceVersion", text)
    seconds = float(_number("timeoutSeconds", query.get("timeoutSeconds") or "0")) or SECONDS_MAX
    return WatchRequest(
        chosen,
        version,
        include=asked.include if asked.table else None,
        bookmarks=query.get("allowWatchBookmarks", "").lower() in ("1", "true"),
        initial_end=initial,
        seconds=min(max(seconds, 1.0), SECONDS_MAX),
    )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(f"{name}: Invalid value: {text[:64]!r}: is not a number")
    return int(text)
