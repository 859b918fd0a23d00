"""What a Service does: one address in front of several replicas, of which only those that are ready get connections.

Run as ``python -m tests.e2e.controlplane.balancer --listen PORT --replica PORT=READY_URL ...``; all on 127.0.0.1.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
from collections.abc import Callable
from typing import Final, cast

import aiohttp
import uvloop

HOST: Final = "127.0.0.1"
PROBE_SECONDS: Final = 0.5
FAILURES: Final = 2
"""So many failed probes in a row take a replica out, as a readiness probe's failureThreshold does."""


class Replica:
    """One process behind the balancer, and whether it said that it is ready."""

    def __init__(self, port: int, probe: str) -> None:
        self.port = port
        self._probe = probe
        self._failures = FAILURES

    @property
    def ready(self) -> bool:
        """Whether new connections may go here."""
        return self._failures < FAILURES

    async def follow(self, session: aiohttp.ClientSession) -> None:
        """Probe for ever."""
        while True:
            self._failures = 0 if await self._answers(session) else self._failures + 1
            await asyncio.sleep(PROBE_SECONDS)

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(self._probe, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


class Balancer:
    """Hands each connection to the next ready replica; one that refuses it is passed over."""

    def __init__(self, replicas: list[Replica]) -> None:
        self._replicas = replicas
        self._turn = itertools.cycle(range(len(replicas)))
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, port: int) -> None:
        """Accept connections and probe the replicas, for ever."""
        server = await asyncio.get_running_loop().create_server(lambda: _End(self._accepted), HOST, port)
        async with aiohttp.ClientSession() as session, server, asyncio.TaskGroup() as tasks:
            for replica in self._replicas:
                tasks.create_task(replica.follow(session))
            await server.serve_forever()

    def _accepted(self, end: "_End") -> None:
        task = asyncio.get_running_loop().create_task(self._connect(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, end: "_End") -> None:
        for replica in self._order():
            with contextlib.suppress(OSError):
                _, other = await asyncio.get_running_loop().create_connection(_End, HOST, replica.port)
                end.join(other)
                return
        end.transport.abort()

    def _order(self) -> list[Replica]:
        """Return the ready replicas, beginning with the one whose turn it is."""
        first = next(self._turn)
        turned = self._replicas[first:] + self._replicas[:first]
        return [replica for replica in turned if replica.ready]


class _End(asyncio.Protocol):
    """One end of a forwarded connection: what comes in here goes out at the other.

    A Service costs its users next to nothing, so this is bare transports: what it burns is missing in every figure.
    """

    transport: asyncio.Transport

    def __init__(self, accepted: "Callable[[_End], None]" = lambda _end: None) -> None:
        self._accepted = accepted
        self._other: _End | None = None
        self._early = b""
        """What came before there was somebody to give it to."""

    def join(self, other: "_End") -> None:
        """Forward between the two from now on."""
        self._other, other._other = other, self
        if self.transport.is_closing() or other.transport.is_closing():
            self.transport.abort()
            other.transport.abort()
        elif self._early:
            other.transport.write(self._early)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early += data
        else:
            self._other.transport.write(data)

    def eof_received(self) -> bool:
        """End this direction only; with nobody at the other end yet, both."""
        if self._other is None:
            return False
        if self._other.transport.can_write_eof() and not self._other.transport.is_closing():
            self._other.transport.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if self._other is not None:
            if error is None:
                self._other.transport.close()
            else:
                self._other.transport.abort()

    def pause_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--replica", action="append", required=True, metavar="PORT=READY_URL")
    given = parser.parse_args()
    faulthandler.enable()
    replicas = [Replica(int(port), probe) for port, _, probe in (entry.partition("=") for entry in given.replica)]
    uvloop.run(Balancer(replicas).serve(given.listen))


if __name__ == "__main__":
    main()
