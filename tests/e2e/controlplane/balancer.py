"""What a Service does: one address in front of several replicas, of which only those that are ready get connections.

Run as ``python -m tests.e2e.controlplane.balancer --listen PORT --replica PORT=READY_URL ...``; all on 127.0.0.1.
"""

import argparse
import asyncio
import contextlib
import itertools
from typing import Final

import aiohttp

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

    async def serve(self, port: int) -> None:
        """Accept connections and probe the replicas, for ever."""
        server = await asyncio.start_server(self._forward, HOST, port)
        async with aiohttp.ClientSession() as session, server, asyncio.TaskGroup() as tasks:
            for replica in self._replicas:
                tasks.create_task(replica.follow(session))
            await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for replica in self._order():
            with contextlib.suppress(OSError):
                upstream = await asyncio.open_connection(HOST, replica.port)
                break
        else:
            writer.transport.abort()
            return
        await asyncio.gather(_pump(reader, upstream[1]), _pump(upstream[0], writer))

    def _order(self) -> list[Replica]:
        """Return the ready replicas, beginning with the one whose turn it is."""
        first = next(self._turn)
        turned = self._replicas[first:] + self._replicas[:first]
        return [replica for replica in turned if replica.ready]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction; when it ends, end that direction only, and when it breaks, break the connection."""
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--replica", action="append", required=True, metavar="PORT=READY_URL")
    given = parser.parse_args()
    replicas = [Replica(int(port), probe) for port, _, probe in (entry.partition("=") for entry in given.replica)]
    asyncio.run(Balancer(replicas).serve(given.listen))


if __name__ == "__main__":
    main()
