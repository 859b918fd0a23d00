"""Connections: retired by age, drained at a stop, and never closed under a request's feet."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from tests.unit.server.reviews import job, review, view
from tests.unit.server.wire_level import post, served
from webhook.server.handler import ReviewHandler
from webhook.server.http.health import build_health_app
from webhook.server.http.listener import HEADER_SECONDS, KEEP_ALIVE_SECONDS, SILENT_MAX, serve


class Slow(ReviewHandler):
    """Takes longer than a header may."""

    async def review(
        self, path: str, body: bytes, timeout_seconds: float, *, hopped: bool = False
    ) -> tuple[int, bytes]:
        await asyncio.sleep(HEADER_SECONDS * 2)
        return await super().review(path, body, timeout_seconds, hopped=hopped)


BODY = review(job(queue=None))
pytestmark = pytest.mark.virtual_time


async def test_an_idle_connection_outlives_the_api_servers_pool() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await wire.send(post(BODY))
        assert "connection" not in (await wire.reply()).headers
        await asyncio.sleep(59)
        await wire.send(post(BODY))
        assert (await wire.reply()).status == 200
        wire.close()


async def test_a_connection_dialled_ahead_of_its_first_request_outlives_the_api_servers_pool() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await asyncio.sleep(100)
        await wire.send(post(BODY))
        assert (await wire.reply()).status == 200
        wire.close()


async def test_a_header_may_come_in_pieces_and_the_answer_may_take_its_time() -> None:
    handler = Slow(view())
    async with served(handler, port=443) as web:
        wire = await web.connect()
        head, body = post(BODY)[: -len(BODY)], BODY
        for piece in (head[:-3], head[-3:-1], head[-1:], body):
            await wire.send(piece)
            await asyncio.sleep(1)
        assert (await wire.reply()).status == 200
        wire.close()


async def test_a_connection_that_nobody_ever_uses_ends_at_last() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await asyncio.sleep(KEEP_ALIVE_SECONDS + 1)
        assert await wire.ended()


async def test_of_too_many_silent_connections_the_oldest_go_and_nobody_who_speaks() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        speaking = await web.connect()
        await speaking.send(post(BODY))
        await speaking.reply()
        first = await web.connect()
        await asyncio.sleep(1)
        others = [await web.connect() for _ in range(SILENT_MAX)]
        await asyncio.sleep(HEADER_SECONDS + 1)
        assert await first.ended()
        for wire in (others[0], others[-1], speaking):
            await wire.send(post(BODY))
            assert (await wire.reply()).status == 200
        for wire in (speaking, *others):
            wire.close()


async def test_an_old_connection_ends_with_an_answer() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await wire.send(post(BODY))
        await wire.reply()
        await asyncio.sleep(61)
        await wire.send(post(BODY))
        assert (await wire.reply()).headers["connection"] == "close"
        assert await wire.ended()


async def test_a_stop_answers_everybody_once_more_and_ends_when_nobody_is_left() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wires = [await web.connect() for _ in range(3)]
        for wire in wires:
            await wire.send(post(BODY))
            await wire.reply()
        started = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(web.listener.drain())
        await asyncio.sleep(1)
        for wire in wires:
            assert not stopping.done()
            await wire.send(post(BODY))
            reply = await wire.reply()
            assert (reply.status, reply.headers["connection"]) == (200, "close")
        await stopping
        assert asyncio.get_running_loop().time() - started < 3


async def test_a_draining_replica_tells_its_peers() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        assert (await web.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
        web.connections.draining = True
        assert (await web.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).status == 503


async def test_a_stop_does_not_wait_for_ever_for_an_idle_caller() -> None:
    async with served(ReviewHandler(view()), port=443) as web:
        wire = await web.connect()
        await wire.send(post(BODY))
        await wire.reply()
        started = asyncio.get_running_loop().time()
        await web.listener.drain(seconds_max=10)
        assert asyncio.get_running_loop().time() - started < 15
        wire.close()


async def get(path: str) -> tuple[int, bytes]:
    """Return status and body of what the health port answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", 8080)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_the_health_port_says_alive_ready_and_what_is_counted() -> None:
    problems: list[str] = []
    listener = await serve(build_health_app(lambda: problems), "127.0.0.1", 8080)
    assert await get("/healthz") == (200, b"ok\n")
    assert await get("/readyz") == (200, b"ok\n")
    problems.append("pods has not been read yet")
    assert await get("/readyz") == (503, b"pods has not been read yet\n")
    exposed = (await get("/metrics"))[1]
    assert b"tutti_reviews_total" in exposed
    assert b"_created{" not in exposed
    await listener.close()


async def test_a_scrape_sets_thousands_of_series_beside_the_loop_that_answers_others() -> None:
    looked: list[threading.Thread] = []
    set_by: list[threading.Thread] = []

    def look() -> Callable[[], None]:
        looked.append(threading.current_thread())
        return lambda: set_by.append(threading.current_thread())

    listener = await serve(build_health_app(list, look=look), "127.0.0.1", 8080)
    assert (await get("/metrics"))[0] == 200
    assert looked == [threading.main_thread()]
    assert len(set_by) == 1
    assert set_by != looked
    await listener.close()
