"""A served handler and raw HTTP: what goes over the socket is written by the test, byte for byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from webhook.server.handler import ReviewHandler
from webhook.server.http.app import Stranger, build_app
from webhook.server.http.listener import Connections, ListeningApp, serve


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection to the webhook."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """Read one answer. Raises IncompleteReadError when the connection ends instead."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Reply(int(status_line.split()[1]), headers, body)

    async def ended(self) -> bool:
        """Return whether the server closed the connection."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


class Served:
    """A listening handler."""

    def __init__(self, listener: ListeningApp, connections: Connections, host: str, tls: ssl.SSLContext | None) -> None:
        self.listener = listener
        self.connections = connections
        self._host = host
        self.trust = tls

    async def connect(self) -> Wire:
        name = "localhost" if self.trust else None
        return Wire(
            *await asyncio.open_connection(self._host, self.listener.port, ssl=self.trust, server_hostname=name)
        )

    async def exchange(self, data: bytes) -> Reply:
        """Send raw bytes on a fresh connection and return the first answer."""
        wire = await self.connect()
        try:
            await wire.send(data)
            return await wire.reply()
        finally:
            wire.close()

    async def post(
        self, body: bytes, path: str = "/validate/jobs", query: str = "?timeout=3s", **headers: str
    ) -> Reply:
        """Post one review. Header names are written with underscores; an empty value leaves the header out."""
        return await self.exchange(post(body, path + query, **headers))


def post(body: bytes, target: str = "/validate/jobs?timeout=3s", **headers: str) -> bytes:
    """Return the bytes of a POST as kube-apiserver writes it."""
    lines = {
        "Host": "tutti-webhook.tutti-system.svc",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


@asynccontextmanager
async def served(
    handler: ReviewHandler,
    *,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
    port: int = 0,
    stranger: Stranger = lambda request: False,
) -> AsyncIterator[Served]:
    """Serve ``handler`` on loopback for the length of a test."""
    connections = Connections(spread=lambda: 0.5)
    app = build_app(handler, connections.close_after, lambda: connections.draining, stranger)
    listener = await serve(app, "127.0.0.1", port, tls=tls, connections=connections)
    try:
        yield Served(listener, connections, "127.0.0.1", trust)
    finally:
        await listener.close()
