"""The webhook's HTTP surface: what kube-apiserver's client needs and nothing that it does not.

HTTP statuses other than 200 say "this was no review": a denial is always inside a review, because an HTTP error counts
as a failure of the webhook and not as a decision. Never a redirect, never ``Retry-After`` (the API server would retry
ten times into our overload), no decompression, bodies up to 7 MiB, everything answered before the caller's deadline.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from aiohttp import web

from webhook.kube.client_certificate import common_name
from webhook.server.handler import ReviewHandler
from webhook.server.review import metrics
from webhook.server.review.settings import ReviewSettings
from webhook.server.sharding.hop import HOP_HEADER
from webhook.wire.admission_review import BODY_BYTES_MAX

BODY_SECONDS_MAX: Final = 2.0
"""Longest wait for the rest of a body."""
READING_BYTES_MAX: Final = 64 * 2**20
"""Bodies being read at the same time; the next one is refused before it is read."""
READING_MAX: Final = 4096
"""Requests in work at the same time."""
BUDGETS_MAX: Final = 64
QUERY_CHARS_MAX: Final = 64
"""Bounds on the queries whose parsed time-out is kept."""
_SECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_JSON: Final = "application/json"
_HEADERS: Final = {"Content-Type": _JSON, "Server": "tutti"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Stranger = Callable[[web.Request], bool]
"""Whether a caller has not shown that it is an API server."""
CloseAfter = Callable[[web.Request], bool]
"""Whether the connection should end with this answer (age, draining)."""


def parse_timeout(query: str, settings: ReviewSettings) -> float:
    """Return the seconds we may take, from the query ``timeout=3s`` that the API server sends (a Go duration)."""
    asked = next((part[8:] for part in query.split("&") if part.startswith("timeout=")), "")
    match = _SECONDS.fullmatch(asked)
    seconds = settings.timeout_default_seconds if match is None else float(match[1]) * _UNITS[match[2]]
    return min(max(seconds, settings.timeout_min_seconds), settings.timeout_max_seconds) * settings.timeout_share


class _Front:
    """Reads one review off the wire and hands it to the handler."""

    def __init__(self, handler: ReviewHandler, close_after: CloseAfter, stranger: Stranger) -> None:
        self._handler = handler
        self._stranger = stranger
        self._close_after = close_after
        self._reading_bytes = 0
        self._reading = 0
        self._budgets: dict[str, float] = {}

    async def post(self, path: str, request: web.Request) -> web.StreamResponse:
        """Answer one POST to ``path``."""
        # Who says that it is a replica has to prove that by the body.
        unknown = HOP_HEADER not in request.headers and self._stranger(request)
        refused = 401 if unknown else _refuse_headers(request)
        if refused is not None:
            return self._reply(request, refused, b"")
        length = BODY_BYTES_MAX if request.content_length is None else request.content_length
        if length > BODY_BYTES_MAX:
            return self._reply(request, 413, b"")
        if self._reading_bytes + length > READING_BYTES_MAX or self._reading >= READING_MAX:
            return self._reply(request, 503, b"")
        self._reading_bytes += length
        self._reading += 1
        try:
            status, answer = await self._review(path, request)
        finally:
            self._reading_bytes -= length
            self._reading -= 1
        return self._reply(request, status, answer)

    async def _review(self, path: str, request: web.Request) -> tuple[int, bytes]:
        budget = self._budget(request.raw_path.partition("?")[2])
        if request.content.is_eof():
            body = request.content.read_nowait()
            if len(body) > BODY_BYTES_MAX:
                return 413, b""
        else:
            loop = asyncio.get_running_loop()
            started = loop.time()
            try:
                async with asyncio.timeout(min(budget, BODY_SECONDS_MAX)):
                    body = await request.read()
            except TimeoutError:
                return 408, b""
            except web.HTTPRequestEntityTooLarge:
                return 413, b""
            budget -= loop.time() - started
        if not body:
            return 400, b"empty body"
        hop, forwarder = request.headers.get(HOP_HEADER), self._handler.forwarder
        if hop is not None and (forwarder is None or not forwarder.takes(hop, path, body)):
            return 403, b"only another replica passes reviews on"
        return await self._handler.review(path, body, budget, hopped=hop is not None)

    def _budget(self, query: str) -> float:
        """Return the seconds a raw query grants. The API server sends one of a few; they are parsed once."""
        budget = self._budgets.get(query)
        if budget is None:
            budget = parse_timeout(query, self._handler.settings)
            if len(self._budgets) < BUDGETS_MAX and len(query) < QUERY_CHARS_MAX:
                self._budgets[query] = budget
        return budget

    def _reply(self, request: web.Request, status: int, body: bytes) -> web.Response:
        if status == 200:
            response = web.Response(body=body, headers=_HEADERS)
        else:
            response = web.Response(status=status, body=body or None, content_type="text/plain")
            if status != 400:
                # Unread bytes may still be on their way: the connection is no use any more.
                response.force_close()
            if not body:
                metrics.count_bad_request(status)
        if self._close_after(request):
            response.force_close()
        return response


def _refuse_headers(request: web.Request) -> int | None:
    headers = request.headers
    content_type = headers.get("Content-Type", "")
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        return 415
    if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        return 415
    return None


def named_in_certificate(names: Collection[str]) -> Stranger:
    """Return who is a stranger where clients show certificates: who shows none, or one of another name.

    The TLS layer has checked the signature. No ``names`` are every name.
    """

    def stranger(request: web.Request) -> bool:
        name = common_name(request.get_extra_info("peercert"))
        return name is None or bool(names and name not in names)

    return stranger


def build_app(
    handler: ReviewHandler,
    close_after: CloseAfter = lambda request: False,
    draining: Callable[[], bool] = lambda: False,
    stranger: Stranger = lambda request: False,
) -> web.Application:
    """Return the application that answers reviews.

    ``/healthz`` is there for the other replicas' liveness check: one that is draining answers 503, so that they take
    over what it owns while it still answers what reaches it. A ``stranger`` asks for no review; other replicas pass
    theirs on whether they are strangers or not.
    Serve it with ``listener.serve``: the keep-alive, decompression and handshake settings are the listener's.
    """
    app = web.Application(client_max_size=BODY_BYTES_MAX + 1)
    front = _Front(handler, close_after, stranger)
    for path in handler.paths:
        app.router.add_post(path, partial(front.post, path))

    async def live(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=503 if draining() else 200)

    app.router.add_get("/healthz", live)
    return app
