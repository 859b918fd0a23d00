"""How the application is served: no connection ends under a request's feet, old ones retire, a stop loses none.

kube-apiserver keeps up to 25 idle connections for 90 s and sticks to one replica with them. A server that closes an
idle connection races the next POST on it, which then fails with EOF. So we never close first: idle time-out 120 s, and
a connection ends by ``Connection: close`` on an answer, when it is old (which rebalances) or when we are draining.

That goes for connections that have said nothing yet, too: Go's client dials for a request, may send it over another
connection that became free meanwhile, and keeps the new one for the next. Of these only the number is bounded. Whoever
has begun a request must finish its header in time.
"""

import asyncio
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

import structlog
from aiohttp import web

KEEP_ALIVE_SECONDS: Final = 120.0
HEADER_SECONDS: Final = 5.0
"""A connection that began its first request and has not sent the whole header by then is closed."""
SILENT_MAX: Final = 256
"""Connections that may wait with their first request. Of more the oldest are closed, once they have waited for
``HEADER_SECONDS``: far more than API servers keep, so that somebody else is to blame."""
HANDSHAKE_SECONDS: Final = 5.0
AGE_SECONDS: Final = 60.0
AGE_SPREAD_SECONDS: Final = 10.0
DRAIN_SECONDS_MAX: Final = 95.0
"""Longer than the API server keeps an idle connection."""
REAP_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 8192
HEADER_END: Final = b"\r\n\r\n"

log = structlog.get_logger(__name__)


class Connections:
    """Who is connected since when, and how far they are with their first request."""

    def __init__(self, spread: Callable[[], float] = random.random) -> None:
        self.draining = False
        self._spread = spread
        self._retire_seconds: dict[Any, float] = {}
        """Connection to the time from which its next answer is its last."""
        self._silent_since: dict[Any, float] = {}
        """Since when connections that have said nothing are known, oldest first."""
        self._began: dict[Any, float] = {}
        """When connections that have not finished their first header began it."""

    def began(self, connection: Any) -> None:
        """Note that the first bytes of ``connection`` have come."""
        self._silent_since.pop(connection, None)
        self._began[connection] = asyncio.get_running_loop().time()

    def asked(self, connection: Any) -> None:
        """Note that the first request's header is there: from now on the connection ends with an answer."""
        self._began.pop(connection, None)
        spread = (2 * self._spread() - 1) * AGE_SPREAD_SECONDS
        self._retire_seconds[connection] = asyncio.get_running_loop().time() + AGE_SECONDS + spread

    def close_after(self, request: web.Request) -> bool:
        """Return whether the connection should end with the answer to ``request``."""
        if self.draining:
            return True
        return asyncio.get_running_loop().time() >= self._retire_seconds.get(request.protocol, float("inf"))

    def reap(self, server: web.Server, now_seconds: float) -> None:
        """Close connections that are too slow or too many; forget those that are gone."""
        present = server.connections
        tables = (self._retire_seconds, self._silent_since, self._began)
        for table in tables:
            for connection in table.keys() - set(present):
                del table[connection]
        for connection in present:
            if not any(connection in table for table in tables):
                self._silent_since[connection] = now_seconds
        for connection, since in [*self._overdue(now_seconds)]:
            if now_seconds - since >= HEADER_SECONDS - REAP_SECONDS:
                connection.force_close()
        for connection in present[CONNECTIONS_MAX:]:
            connection.force_close()

    def _overdue(self, now_seconds: float) -> Iterator[tuple[Any, float]]:
        """Yield the connections to be closed once they have waited for ``HEADER_SECONDS``, and since when they wait."""
        yield from self._began.items()
        for place, (connection, since) in enumerate(self._silent_since.items()):
            if place < len(self._silent_since) - SILENT_MAX or now_seconds - since >= KEEP_ALIVE_SECONDS:
                yield connection, since


class _Ear(asyncio.Protocol):
    """Stands before a connection's own protocol until its first header has come, and is out of the way from then on."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._tail:
            self._connections.began(self._inner)
        if HEADER_END in self._tail + data:
            self._connections.asked(self._inner)
            self._transport.set_protocol(self._inner)
        else:
            self._tail = (self._tail + data)[1 - len(HEADER_END) :]
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)


class ListeningApp:
    """One listening application; ``port`` is the real one where 0 was asked for."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server, connections: Connections) -> None:
        self.port = int(server.sockets[0].getsockname()[1])
        self._runner = runner
        self._server = server
        self._connections = connections
        self._reaper = asyncio.get_running_loop().create_task(self._reap(), name="connection reaper")

    async def drain(self, seconds_max: float = DRAIN_SECONDS_MAX) -> None:
        """Keep answering, each answer the last of its connection, until nobody is connected or the time is up."""
        self._connections.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._protocols.connections:
                    await asyncio.sleep(REAP_SECONDS / 2)
        await self.close()

    async def close(self) -> None:
        """Stop at once."""
        self._reaper.cancel()
        with suppress(asyncio.CancelledError):
            await self._reaper
        self._server.close()
        await self._runner.cleanup()

    @property
    def _protocols(self) -> web.Server:
        server = self._runner.server
        assert server is not None
        return server

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self._connections.reap(self._protocols, asyncio.get_running_loop().time())


async def serve(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    connections: Connections | None = None,
) -> ListeningApp:
    """Serve ``app``. Build it with ``connections.close_after``, so that old connections retire and draining works."""
    runner = web.AppRunner(
        app,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        auto_decompress=False,
        handler_cancellation=True,
        access_log=None,
        lingering_time=1.0,
        shutdown_timeout=2.0,
        handle_signals=False,
    )
    await runner.setup()
    protocols, connections = runner.server, connections or Connections()
    assert protocols is not None
    # Not a TCPSite: that one leaves the TLS handshake a whole minute.
    server = await asyncio.get_running_loop().create_server(
        lambda: _Ear(protocols(), connections),
        host,
        port,
        ssl=tls,
        backlog=1024,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )
    return ListeningApp(runner, server, connections)
