"""The simulated API server over HTTP or HTTPS, for kubectl and for ``kube.http.HttpApi``.

A bearer token names the caller; members of ``system:masters`` may impersonate others, as ``kubectl --as`` does.
Everything else is the router's; here are only streams, Tables, warnings and aggregated APIs. Listens on loopback only.
"""

import ssl
from collections.abc import Mapping
from typing import Final

import orjson
from aiohttp import web

from webhook.simulated import tables
from webhook.simulated.aggregation import Aggregator
from webhook.simulated.identity import User
from webhook.simulated.refusals import Json, Refused
from webhook.simulated.router import MAX_BODY_BYTES, Answer, Request, Router
from webhook.simulated.watches import Watch

_ADMINS: Final = "system:masters"
_LOOPBACK: Final = "127.0.0.1"


class HttpFrontEnd:
    """Serves one router on one port."""

    def __init__(
        self,
        router: Router,
        tokens: Mapping[str, User],
        *,
        aggregator: Aggregator | None = None,
        anonymous: User | None = None,
    ) -> None:
        self._router = router
        self._tokens = tokens
        self._aggregator = aggregator
        self._anonymous = anonymous
        self._watches: dict[Watch, None] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""
        """Base URL once it listens."""

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        """Listen on loopback, on any free port for 0."""
        app = web.Application(client_max_size=MAX_BODY_BYTES + 1)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _LOOPBACK, port, ssl_context=tls)
        await site.start()
        bound = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://{_LOOPBACK}:{bound}"

    async def close(self) -> None:
        """End every watch and stop listening."""
        for watch in list(self._watches):
            watch.end()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._aggregator is not None:
            await self._aggregator.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            user = self._user(request)
            body = await request.read()
            if self._aggregator is not None and self._aggregator.service(request.path) is not None:
                return await self._aggregator.forward(request, body, user)
            query = dict(request.query)
            content_type = request.headers.get("Content-Type", "application/json")
            asked = Request(request.method, request.path, query, body, content_type, user)
            if self._router.is_watch(asked):
                return await self._stream(request, asked)
            answer = await self._router.handle(asked)
        except Refused as refused:
            answer = Answer(refused.code, orjson.dumps(refused.status))
        return self._response(request, answer)

    def _user(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self._tokens.get(token.strip()) if scheme.lower() == "bearer" else self._anonymous
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        name = request.headers.get("Impersonate-User")
        if name is None:
            return user
        if _ADMINS not in user.groups:
            raise Refused(403, "Forbidden", f'users "{name}" is forbidden: User "{user.name}" cannot impersonate')
        return User.named(name, *request.headers.getall("Impersonate-Group", ()))

    def _response(self, request: web.Request, answer: Answer) -> web.Response:
        body = answer.body
        if (
            answer.objects is not None
            and answer.resource is not None
            and tables.wanted(request.headers.get("Accept", ""))
        ):
            objects = [stored.object for stored in answer.objects]
            body = self._table(answer, objects)
        response = web.Response(status=answer.status, body=body, content_type=_content_type(body))
        for warning in answer.warnings:
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
        return response

    def _table(self, answer: Answer, objects: list[Json]) -> bytes:
        assert answer.resource is not None, "checked by the caller"
        server = self._router.server
        version = answer.list_version or objects[0]["metadata"]["resourceVersion"]
        return tables.table(server.store, answer.resource, objects, version, server.clock.now())

    async def _stream(self, request: web.Request, asked: Request) -> web.StreamResponse:
        watch = self._router.watch(asked)
        self._watches[watch] = None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        as_table = tables.wanted(request.headers.get("Accept", ""))
        try:
            await response.prepare(request)
            async for line in watch.lines():
                await response.write(self._row(watch, line) if as_table else line)
            await response.write_eof()
        except ConnectionError:
            # The watcher went away: nobody is left to be told.
            pass
        finally:
            watch.end()
            del self._watches[watch]
        return response

    def _row(self, watch: Watch, line: bytes) -> bytes:
        event = orjson.loads(line)
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return line
        server, item = self._router.server, event["object"]
        version = item["metadata"]["resourceVersion"]
        body = tables.table(server.store, watch.resource, [item], version, server.clock.now())
        return b'{"type":"%b","object":%b}\n' % (event["type"].encode(), body)


async def serve(
    router: Router,
    tokens: Mapping[str, User],
    tls: ssl.SSLContext | None = None,
    *,
    port: int = 0,
    aggregator: Aggregator | None = None,
) -> HttpFrontEnd:
    """Serve ``router`` on loopback; ``tokens`` says whose each bearer token is. Ends with ``HttpFrontEnd.close``."""
    front = HttpFrontEnd(router, tokens, aggregator=aggregator)
    await front.start(tls, port)
    return front


def _content_type(body: bytes) -> str:
    return "application/json" if body[:1] in (b"{", b"[") else "text/plain"
