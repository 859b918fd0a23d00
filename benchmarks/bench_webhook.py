"""Reviews answered per second by one webhook replica on one core, over TLS, as kube-apiserver sends them.

The server runs in a process of its own, pinned to one core, with the listener, certificates, logs and metrics of
production; the callers run on another core. Prints for each kind of review: how many a second, latency, and the
processor time one costs, which tells the capacity of a core even where the callers were the bottleneck.
"""

import argparse
import asyncio
import os
import platform
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import orjson
import trustme
import uvloop

from benchmarks import reviews
from webhook import logs
from webhook.server.http.app import build_app
from webhook.server.http.listener import Connections, serve
from webhook.server.http.tls import AUTHORITY, CERTIFICATE, KEY, ServingCertificate

CONNECTIONS: Final = 16
PEER: Final = (
    "Kueue's job webhook (main, Aug 2026), measured on a machine of this size: 1,723/s, p50 8.4 ms, p99 37.8 ms"
)


class Caller(asyncio.Protocol):
    """One connection that sends a request as soon as the last one was answered, and notes how long each took."""

    def __init__(self, request: bytes, count: int, done: asyncio.Future[list[float]]) -> None:
        self._request, self._left, self._done = request, count, done
        self._seconds: list[float] = []
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert orjson.loads(rest[:length])["response"]["allowed"], rest
        self._seconds.append(time.perf_counter() - self._sent)
        self._buffer = rest[length:]
        self._left -= 1
        if self._left:
            self._send()
        else:
            self._transport.close()
            self._done.set_result(self._seconds)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or EOFError("the server closed the connection"))

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)


def write_certificates(directory: Path) -> None:
    """Write a P-256 pair and its authority, as the certificate tooling issues them."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    leaf = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    (directory / CERTIFICATE).write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (directory / KEY).write_bytes(leaf.private_key_pem.bytes())
    (directory / AUTHORITY).write_bytes(authority.cert_pem.bytes())


async def server(directory: Path) -> None:
    """Serve until standard input ends; each line read is answered with the processor seconds used so far."""
    logs.configure("info")
    handler, connections = reviews.handler(), Connections()
    certificate = ServingCertificate(directory)
    app = build_app(handler, connections.close_after)
    listener = await serve(app, "127.0.0.1", 0, tls=certificate.context, connections=connections)
    print(listener.port, flush=True)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def report() -> None:
        if not sys.stdin.readline():
            ended.set()
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, used.ru_maxrss, flush=True)

    loop.add_reader(sys.stdin, report)
    await ended.wait()
    await listener.close()


class Server:
    """The server process, pinned to the first core."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bench_webhook", "--serve", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})
        self.port = int(self._read())

    def used(self) -> tuple[float, int]:
        """Return processor seconds used, and the largest resident size in KiB."""
        assert self.process.stdin is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        seconds, kibibytes = self._read().split()
        return float(seconds), int(kibibytes)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


async def measure(running: Server, trust: ssl.SSLContext, asked: tuple[str, str], body: bytes, count: int) -> None:
    """Send ``count`` reviews over each of 16 connections and print what it took."""
    path, what = asked
    head = (
        f"POST {path}?timeout=3s HTTP/1.1\r\nHost: tutti-webhook.tutti-system.svc:443\r\n"
        f"User-Agent: kube-apiserver-admission\r\nContent-Length: {len(body)}\r\nAccept: application/json, */*\r\n"
        "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    loop, request = asyncio.get_running_loop(), head.encode() + body
    before, started = running.used()[0], time.perf_counter()
    waits = [loop.create_future() for _ in range(CONNECTIONS)]
    for done in waits:
        await loop.create_connection(
            lambda done=done: Caller(request, count, done),  # type: ignore[misc]
            "127.0.0.1",
            running.port,
            ssl=trust,
            server_hostname="localhost",
        )
    seconds = sorted(taken for taken in await asyncio.gather(*waits) for taken in taken)
    wall, (after, kibibytes) = time.perf_counter() - started, running.used()
    each = (after - before) / len(seconds)
    print(
        f"{path:14} {what:20} {len(body):5} B {len(seconds) / wall:8,.0f}/s   "
        f"p50 {seconds[len(seconds) // 2] * 1e3:5.2f} ms   p99 {seconds[len(seconds) * 99 // 100] * 1e3:5.2f} ms   "
        f"{each * 1e6:4.0f} µs of processor each, {1 / each:,.0f}/s a core   {kibibytes // 1024} MiB"
    )


async def compare(rounds: int, count: int) -> None:
    """Ask everything ``rounds`` times."""
    logs.configure("error")
    others = os.sched_getaffinity(0) - {min(os.sched_getaffinity(0))}
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}; {CONNECTIONS} connections"
    )
    print(f"to beat: {PEER}")
    with tempfile.TemporaryDirectory() as name:
        write_certificates(Path(name))
        trust = ssl.create_default_context(cafile=Path(name) / AUTHORITY)
        running = Server(Path(name))
        os.sched_setaffinity(0, others or os.sched_getaffinity(0))
        try:
            for _ in range(rounds):
                for asked, body in (await reviews.bodies()).items():
                    await measure(running, trust, asked, body, count)
        finally:
            running.stop()


def main() -> None:
    """Run the benchmark, or the server half of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=600, help="reviews a connection")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        uvloop.run(server(arguments.serve))
    else:
        uvloop.run(compare(arguments.rounds, arguments.count))


if __name__ == "__main__":
    main()
