"""How the application is served: connections that never speak are closed, old ones retire, a stop loses no request.

kube-apiserver keeps up to 25 idle connections for 90 s and sticks to one replica with them. A server that closes an
idle connection races the next POST on it, which then fails with EOF. So we never close first: idle time-out 120 s, and
a connection ends by ``Connection: close`` on an answer, when it is old (which rebalances) or when we are draining.
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog
from aiohttp import web

KEEP_ALIVE_SECONDS: Final = 120.0
FIRST_REQUEST_SECONDS: Final = 5.0
"""A connection that has not sent a whole request header by then is closed."""
HANDSHAKE_SECONDS: Final = 5.0
AGE_SECONDS: Final = 60.0
AGE_SPREAD_SECONDS: Final = 10.0
DRAIN_SECONDS_MAX: Final = 95.0
"""Longer than the API server keeps an idle connection."""
SWEEP_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 8192

log = structlog.get_logger(__name__)


class Connections:
    """Who is connected since when. ``close_after`` is asked once an answer."""

    def __init__(self, spread: Callable[[], float] = random.random) -> None:
        self.draining = False
        self._spread = spread
        self._retire_seconds: dict[Any, float] = {}
        """Connection to the time from which its next answer is its last."""
        self._silent_since: dict[Any, float] = {}

    def close_after(self, request: web.Request) -> bool:
        """Return whether the connection should end with the answer to ``request``."""
        if self.draining:
            return True
        now = asyncio.get_running_loop().time()
        connection = request.protocol
        retire = self._retire_seconds.get(connection)
        if retire is None:
            self._silent_since.pop(connection, None)
            self._retire_seconds[connection] = now + AGE_SECONDS + (2 * self._spread() - 1) * AGE_SPREAD_SECONDS
            return False
        return now >= retire

    def sweep(self, server: web.Server, now_seconds: float) -> None:
        """Close connections that have been silent for too long since they were opened; forget those that are gone."""
        present = server.connections
        for connection in present:
            if connection not in self._retire_seconds:
                since = self._silent_since.setdefault(connection, now_seconds)
                if now_seconds - since >= FIRST_REQUEST_SECONDS - SWEEP_SECONDS:
                    connection.force_close()
        if len(present) > CONNECTIONS_MAX:
            for connection in present[CONNECTIONS_MAX:]:
                connection.force_close()
        gone = set(present)
        for table in (self._retire_seconds, self._silent_since):
            for connection in table.keys() - gone:
                del table[connection]


class Listener:
    """One listening application; ``port`` is the real one where 0 was asked for."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server, connections: Connections) -> None:
        self.port = int(server.sockets[0].getsockname()[1])
        self._runner = runner
        self._server = server
        self._connections = connections
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="connection sweeper")

    async def drain(self, seconds_max: float = DRAIN_SECONDS_MAX) -> None:
        """Keep answering, each answer the last of its connection, until nobody is connected or the time is up."""
        self._connections.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._protocols.connections:
                    await asyncio.sleep(SWEEP_SECONDS / 2)
        await self.close()

    async def close(self) -> None:
        """Stop at once."""
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        self._server.close()
        await self._runner.cleanup()

    @property
    def _protocols(self) -> web.Server:
        server = self._runner.server
        assert server is not None
        return server

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._connections.sweep(self._protocols, asyncio.get_running_loop().time())


async def serve(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    connections: Connections | None = None,
) -> Listener:
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
    assert runner.server is not None
    # Not a TCPSite: that one leaves the TLS handshake a whole minute.
    server = await asyncio.get_running_loop().create_server(
        runner.server,
        host,
        port,
        ssl=tls,
        backlog=1024,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )
    return Listener(runner, server, connections or Connections())
