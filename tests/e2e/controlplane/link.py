"""The network between some processes and the API server, which a test may slow down or cut.

It passes bytes on and reads none of them, so that TLS ends where it always does. It runs in a thread of its own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
READ_BYTES: Final = 1 << 16
HELD_SECONDS: Final = 0.05


class Link:
    """Listens on ``port`` for connections to the API server at a URL while the ``with`` block runs."""

    def __init__(self, port: int, server: str) -> None:
        self.port = port
        self.delay_seconds = 0.0
        """What is sent to the API server is held back for so long: each request takes this much longer."""
        self._target = urlsplit(server).port
        self._is_cut = self._holds = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(asyncio.start_server(self._accept, HOST, self.port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._call(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut(self) -> None:
        """End every connection, and each new one at once."""
        self._is_cut = True
        self._call(self._end_all())

    def hold(self) -> None:
        """Pass nothing on, and tell nobody: connections stay open."""
        self._holds = True

    def mend(self) -> None:
        """Pass everything on again, without a delay."""
        self._is_cut, self._holds, self.delay_seconds = False, False, 0.0

    def _call(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _end_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        # An end of the link is no failure: asyncio would report each with its traceback.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            answers, onward = await asyncio.open_connection(HOST, self._target)
            await self._serve(reader, writer, answers, onward)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        onward: asyncio.StreamWriter,
    ) -> None:
        ends = (writer, onward)
        self._writers.update(ends)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._hold_back(reader, onward))
                both.create_task(self._pass_on(answers, writer))
        except* OSError:
            pass
        finally:
            for end in ends:
                end.close()
            self._writers.difference_update(ends)

    async def _hold_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            await self._send(data, writer)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            await self._send(data, writer)
        writer.close()

    async def _send(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        while self._holds:
            await asyncio.sleep(HELD_SECONDS)
        writer.write(data)
        await writer.drain()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
