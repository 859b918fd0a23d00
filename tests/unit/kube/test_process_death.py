"""A process is dead if connections to it ended and are refused, and in no other case."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from webhook.kube import process_death
from webhook.kube.process_death import death_of

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_death, "AGAIN_SECONDS", 0.01)


class Process:
    """What listens, as a process does; its kernel ends its connections with it."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.connections: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.came.set()

    async def hang_up(self) -> None:
        """End all connections, and go on listening."""
        self.came.clear()
        for writer in self.connections:
            writer.close()
        self.connections.clear()

    async def die(self) -> None:
        self._server.close()
        await self.hang_up()


def timers_of(port: int) -> list[str]:
    """Return what the kernel waits for in each connection to a port, as /proc writes it."""
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [row[5] for row in rows if row[2] == f"0100007F:{port:04X}" and row[3] == "01"]


@asynccontextmanager
async def watched(address: str) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(death_of(address))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_it_is_told_when_connections_end_and_are_refused() -> None:
    process = Process()
    port = await process.start()
    async with watched(f"127.0.0.1:{port}") as death:
        await process.came.wait()
        await process.hang_up()
        await process.came.wait()
        assert not death.done()
        await process.die()
        async with asyncio.timeout(10):
            await death


async def test_who_was_never_reached_is_not_taken_for_dead() -> None:
    process = Process()
    port = await process.start()
    await process.die()
    async with watched(f"127.0.0.1:{port}") as death:
        await asyncio.sleep(0.2)
        assert not death.done()
        await process.start(port)
        async with asyncio.timeout(10):
            await process.came.wait()
        await process.die()
        async with asyncio.timeout(10):
            await death


async def test_a_connection_that_nobody_knows_any_more_is_found_out() -> None:
    """Its end may have been lost on the way, and its server is silent anyway."""
    process = Process()
    port = await process.start()
    async with watched(f"127.0.0.1:{port}"):
        await process.came.wait()
        await asyncio.sleep(0.05)
        assert [timer[:2] for timer in timers_of(port)] == ["02"], "the kernel asks whether it is there"
        await process.die()


@pytest.mark.parametrize(
    "address", ["", "nobody", "localhost:80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:999999", "::1:", "[::"]
)
async def test_an_address_that_is_none_tells_nothing(address: str) -> None:
    async with watched(address) as death:
        await asyncio.sleep(0.05)
        assert not death.done()
