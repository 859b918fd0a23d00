"""The HTTP surface of the read API: discovery, OpenAPI, and get, list and watch of two resources. Nothing is written.

Accept headers are honoured as kubectl sends them: tables where it can render them, JSON otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from webhook.visibility.documents.reporter import Reporter
from webhook.visibility.documents.watch_cache import Expired, Key, WatchCache
from webhook.visibility.http import discovery, openapi
from webhook.visibility.http.group import API_VERSION, GROUP, RESOURCES, ROOT
from webhook.visibility.http.responses import refuse, reply
from webhook.visibility.http.selecting import Selection, selection
from webhook.visibility.http.tables import row, table
from webhook.visibility.http.watching import SECONDS_MAX, Watch, WatchRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CloseAfter = Callable[[web.Request], bool]
_OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
_JSON: Final = "application/json"
BATCH: Final = 200
"""Documents listed before other tasks get their turn."""


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
        app.router.add_get(f"{ROOT}/{plural}", front.reader(plural))
        app.router.add_get(f"{ROOT}/namespaces/{{namespace}}/{plural}", front.reader(plural))
        app.router.add_get(f"{ROOT}/namespaces/{{namespace}}/{plural}/{{name}}", front.reader(plural))
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
            await self._reporter.fresh(chosen.resource, chosen.namespace)
            if request.query.get("watch", "").lower() in ("1", "true"):
                return await self._watch(request, chosen)
            name = request.match_info.get("name")
            return await self._list(request, chosen) if name is None else self._get(request, chosen, name)

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
        version, asked, now = self._cache.advance(), _asked(request), self._now()
        texts: list[bytes] = []
        rows: list[dict[str, Any]] = []
        for number, (_, document) in enumerate(self._cache.documents(chosen.resource, chosen.namespace), start=1):
            parsed = document.parse() if asked.table or not chosen.everything else None
            if parsed is not None and not chosen.matches(parsed):
                continue
            if parsed is not None and asked.table:
                rows.append(row(chosen.resource, parsed, now, asked.include))
            else:
                texts.append(document.render())
            if number % BATCH == 0:
                await asyncio.sleep(0)
        if asked.table:
            return reply(table(chosen.resource, rows, version))
        return web.Response(body=_list_text(chosen.resource, version, texts), content_type=_JSON)

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
            await response.prepare(request)
            async for line in Watch(self._cache, asked_for, self._now).lines():
                await response.write(line)
            await response.write_eof()
        except ConnectionResetError:
            pass
        finally:
            self._reporter.watch_closed(chosen.resource)
        return response


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


def _list_text(resource: str, version: int, items: list[bytes]) -> bytes:
    head = f'{{"kind":"{RESOURCES[resource].kind}List","apiVersion":"{API_VERSION}",'
    head += f'"metadata":{{"resourceVersion":"{version}"}},"items":['
    return head.encode() + b",".join(items) + b"]}\n"
