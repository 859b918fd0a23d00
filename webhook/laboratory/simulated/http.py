"""The simulated API server over HTTP or HTTPS, for ``kube.http.HttpApi``.

A bearer token names the caller. Everything else is the router's; here are only streams and warnings. Listens on
loopback only.
"""

import ssl
from collections.abc import Mapping
from typing import Final

import orjson
from aiohttp import web

from webhook.laboratory.simulated.objects.watches import Watch
from webhook.laboratory.simulated.requests.identity import User
from webhook.laboratory.simulated.requests.refusals import Refused
from webhook.laboratory.simulated.requests.router import MAX_BODY_BYTES, Answer, Request, Router

_LOOPBACK: Final = "127.0.0.1"


class HttpFrontEnd:
    """Serves one router on one port."""

    def __init__(self, router: Router, tokens: Mapping[str, User]) -> None:
        self._router = router
        self._tokens = tokens
        self._watches: dict[Watch, None] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""
        """Base URL once it listens."""

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen on loopback, on any free port."""
        app = web.Application(client_max_size=MAX_BODY_BYTES + 1)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _LOOPBACK, 0, ssl_context=tls)
        await site.start()
        bound = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://{_LOOPBACK}:{bound}"

    async def close(self) -> None:
        """End every watch and stop listening."""
        for watch in list(self._watches):
            watch.end()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            user = self._user(request)
            body = await request.read()
            query = dict(request.query)
            content_type = request.headers.get("Content-Type", "application/json")
            asked = Request(request.method, request.path, query, body, content_type, user)
            if self._router.is_watch(asked):
                return await self._stream(request, asked)
            answer = await self._router.handle(asked)
        except Refused as refused:
            answer = Answer(refused.code, orjson.dumps(refused.status))
        return self._response(answer)

    def _user(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self._tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    def _response(self, answer: Answer) -> web.Response:
        content_type = "application/json" if answer.body[:1] in (b"{", b"[") else "text/plain"
        response = web.Response(status=answer.status, body=answer.body, content_type=content_type)
        for warning in answer.warnings:
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
        return response

    async def _stream(self, request: web.Request, asked: Request) -> web.StreamResponse:
        watch = self._router.watch(asked)
        self._watches[watch] = None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            async for line in watch.lines():
                await response.write(line)
            await response.write_eof()
        except ConnectionError:
            # The watcher went away: nobody is left to be told.
            pass
        finally:
            watch.end()
            del self._watches[watch]
        return response


async def serve(router: Router, tokens: Mapping[str, User], tls: ssl.SSLContext | None = None) -> HttpFrontEnd:
    """Serve ``router`` on loopback; ``tokens`` says whose each bearer token is. Ends with ``HttpFrontEnd.close``."""
    front = HttpFrontEnd(router, tokens)
    await front.start(tls)
    return front
