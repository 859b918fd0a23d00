"""Requests over real sockets: what is sent, what comes back, and which failure means what."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from webhook import errors
from webhook.kube.api import MERGE_PATCH, PAGE_BYTES_MAX
from webhook.kube.http import Credentials, HttpApi, new_session

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """An HTTP server on loopback that answers as the test says."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.handler: Handler = self.answer(200, b"{}")
        self.url = ""

    def answer(self, status: int, body: bytes) -> Handler:
        async def handler(request: web.Request) -> web.Response:
            return web.Response(status=status, body=body, content_type="application/json")

        return handler

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        return await self.handler(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[HttpApi]:
    api = HttpApi(server.url, new_session(False, "tutti-test"))
    yield api
    await api.close()


class Token:
    """Stands in for the library's configuration object."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    async def get_api_key_with_prefix(self, identifier: str) -> str | None:
        assert identifier == "BearerToken"
        return self.value


# -- what is sent ---------------------------------------------------------------------------------------------------


async def test_a_patch_arrives_as_it_was_written(api: HttpApi, server: Server) -> None:
    server.handler = server.answer(200, b'{"kind":"Job"}')
    answer = await api.request(
        "PATCH", "/apis/batch/v1/namespaces/a/jobs/b", body=b'{"spec":{}}', content_type=MERGE_PATCH
    )
    (request,) = server.requests
    assert answer == b'{"kind":"Job"}'
    assert (request.method, request.path) == ("PATCH", "/apis/batch/v1/namespaces/a/jobs/b")
    assert request.headers["Content-Type"] == MERGE_PATCH
    assert request.headers["User-Agent"] == "tutti-test"
    assert server.bodies == [b'{"spec":{}}']


async def test_query_values_are_escaped(api: HttpApi, server: Server) -> None:
    await api.request("GET", "/api/v1/pods", query={"labelSelector": "a in (b,c),!d", "continue": "x+/=&y"})
    assert dict(server.requests[0].query) == {"labelSelector": "a in (b,c),!d", "continue": "x+/=&y"}


async def test_a_path_stays_a_path(api: HttpApi, server: Server) -> None:
    await api.request("GET", "/api/v1/namespaces/a b?x#y/pods")
    assert server.requests[0].path == "/api/v1/namespaces/a b?x#y/pods"
    assert not server.requests[0].query


async def test_the_server_is_told_when_to_give_up_a_write(api: HttpApi, server: Server) -> None:
    await api.request("PUT", "/x", body=b"{}", timeout_seconds=2)
    await api.request("PUT", "/x", body=b"{}", query={"timeout": "1.5s"}, timeout_seconds=2)
    await api.request("GET", "/x", timeout_seconds=2)
    assert [request.query.get("timeout") for request in server.requests] == ["2s", "1.5s", None]


async def test_sixty_four_requests_are_in_flight_at_once(api: HttpApi, server: Server) -> None:
    together = asyncio.Barrier(64)

    async def wait_for_all(request: web.Request) -> web.Response:
        await together.wait()
        return web.Response(body=b"{}")

    server.handler = wait_for_all
    answers = await asyncio.gather(*[api.request("PATCH", f"/{number}", body=b"{}") for number in range(64)])
    assert answers == [b"{}"] * 64


async def test_a_page_is_read_up_to_its_bound_and_what_is_no_page_to_its_end(api: HttpApi, server: Server) -> None:
    server.handler = server.answer(200, b" " * PAGE_BYTES_MAX)
    assert len(await api.request("GET", "/x", query={"limit": "500"})) == PAGE_BYTES_MAX
    server.handler = server.answer(200, b" " * (PAGE_BYTES_MAX + 1))
    with pytest.raises(errors.TooLarge):
        await api.request("GET", "/x", query={"limit": "500"})
    assert len(await api.request("GET", "/x")) == PAGE_BYTES_MAX + 1
    with pytest.raises(errors.Unavailable, match="longer than") as raised:
        await api.request("PATCH", "/x", body=b"{}")
    assert raised.value.outcome_unknown


# -- refusals -------------------------------------------------------------------------------------------------------


async def test_a_refusal_is_raised_with_reason_and_message(api: HttpApi, server: Server) -> None:
    server.handler = server.answer(409, b'{"kind":"Status","reason":"AlreadyExists","message":"jobs \\"b\\" exists"}')
    with pytest.raises(errors.Conflict) as caught:
        await api.request("POST", "/x", body=b"{}")
    assert (caught.value.reason, caught.value.message) == ("AlreadyExists", 'jobs "b" exists')


@pytest.mark.parametrize(("method", "unknown"), [("PATCH", True), ("DELETE", True), ("GET", False)])
async def test_a_server_error_leaves_the_outcome_of_a_write_open(
    api: HttpApi, server: Server, method: str, unknown: bool
) -> None:
    server.handler = server.answer(500, b'{"reason":"InternalError","message":"etcdserver: request timed out"}')
    with pytest.raises(errors.Unavailable) as caught:
        await api.request(method, "/x", body=b"{}" if method != "GET" else None)
    assert caught.value.outcome_unknown is unknown


async def test_a_redirect_is_not_followed(api: HttpApi, server: Server) -> None:
    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound("/elsewhere")

    server.handler = redirect
    with pytest.raises(errors.Invalid):
        await api.request("GET", "/x")
    assert len(server.requests) == 1


# -- no answer ------------------------------------------------------------------------------------------------------


async def test_a_hanging_server_ends_in_a_time_out(api: HttpApi, server: Server) -> None:
    released = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    server.handler = hang
    with pytest.raises(errors.Unavailable) as caught:
        await api.request("PUT", "/x", body=b"{}", timeout_seconds=0.05)
    released.set()
    assert (caught.value.status, caught.value.reason) == (0, "Timeout")
    assert caught.value.outcome_unknown


async def test_a_server_that_stops_in_the_middle_of_its_answer_ends_in_a_time_out(api: HttpApi, server: Server) -> None:
    released = asyncio.Event()

    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        await released.wait()
        return response

    server.handler = half
    with pytest.raises(errors.Unavailable):
        await api.request("GET", "/x", timeout_seconds=0.05)
    released.set()


@pytest.mark.parametrize(("method", "unknown"), [("PUT", True), ("DELETE", True), ("POST", True), ("GET", False)])
async def test_a_reset_is_reported_and_the_request_never_sent_twice(
    api: HttpApi, server: Server, method: str, unknown: bool
) -> None:
    await api.request("GET", "/warm-up")

    async def reset(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.handler = reset
    with pytest.raises(errors.Unavailable) as caught:
        await api.request(method, "/x", body=b"{}" if method != "GET" else None)
    assert caught.value.outcome_unknown is unknown
    assert len(server.requests) == 2


async def test_a_write_that_found_no_server_was_not_applied() -> None:
    async with aiohttp.ClientSession() as session:
        api = HttpApi("http://127.0.0.1:1", session)
        with pytest.raises(errors.Unavailable) as caught:
            await api.request("PUT", "/x", body=b"{}")
        assert not caught.value.outcome_unknown


@pytest.mark.parametrize("host", ["m..example.org", f"{64 * 'a'}.example.org", "m\\example.org"])
async def test_a_host_that_cannot_be_is_one_that_does_not_answer(host: str) -> None:
    api = HttpApi(f"http://{host}", new_session(False, "tutti-test"))
    with pytest.raises(errors.Unavailable):
        await api.request("GET", "/x")
    with pytest.raises(errors.Unavailable):
        await anext(api.watch("/x", query={}, idle_seconds=5))
    await api.close()


# -- credentials ----------------------------------------------------------------------------------------------------


def guarded(server: Server, token: Token, good: str, renewed: str | None) -> tuple[HttpApi, list[int]]:
    """Return an api with ``token`` against a server that wants ``good``; reading it again gives ``renewed``."""
    loads: list[int] = []

    async def load() -> None:
        loads.append(1)
        if renewed is None:
            raise OSError("the credential plugin failed")
        token.value = renewed

    async def check(request: web.Request) -> web.Response:
        allowed = request.headers.get("Authorization") == good
        return web.Response(status=200 if allowed else 401, body=b"{}\n")

    server.handler = check
    return HttpApi(server.url, new_session(False, "tutti-test"), Credentials(token, load)), loads


async def test_the_token_is_asked_for_at_each_request(server: Server) -> None:
    token = Token("Bearer one")
    api, _ = guarded(server, token, "", None)
    server.handler = server.answer(200, b"{}")
    await api.request("GET", "/x")
    token.value = "Bearer two\n"
    await api.request("GET", "/x")
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer one", "Bearer two"]
    await api.close()


async def test_a_refused_token_is_read_again_and_the_request_repeated_once(server: Server) -> None:
    api, loads = guarded(server, Token("Bearer old"), "Bearer new", "Bearer new")
    assert await api.request("PATCH", "/x", body=b"{}") == b"{}\n"
    assert len(server.requests) == 2
    assert len(loads) == 1
    await api.close()


async def test_many_refusals_at_once_read_the_token_once(server: Server) -> None:
    api, loads = guarded(server, Token("Bearer old"), "Bearer new", "Bearer new")
    await asyncio.gather(*[api.request("GET", "/x") for _ in range(20)])
    assert len(loads) == 1
    await api.close()


async def test_a_token_that_was_renewed_meanwhile_is_used_without_reading_it_again(server: Server) -> None:
    token = Token("Bearer old")
    api, loads = guarded(server, token, "Bearer new", "Bearer other")
    check = server.handler

    async def renew_then_check(request: web.Request) -> web.StreamResponse:
        token.value = "Bearer new"
        return await check(request)

    server.handler = renew_then_check
    await api.request("GET", "/x")
    assert not loads
    await api.close()


async def test_a_token_that_stays_refused_is_not_repeated(server: Server) -> None:
    api, _ = guarded(server, Token("Bearer old"), "Bearer new", "Bearer old")
    with pytest.raises(errors.Forbidden):
        await api.request("GET", "/x")
    assert len(server.requests) == 1
    await api.close()


async def test_a_failing_credential_plugin_is_a_refusal(server: Server) -> None:
    api, _ = guarded(server, Token("Bearer old"), "Bearer new", None)
    with pytest.raises(errors.Forbidden):
        await api.request("GET", "/x")
    await api.close()


async def test_a_watch_renews_its_token_too(server: Server) -> None:
    api, _ = guarded(server, Token("Bearer old"), "Bearer new", "Bearer new")
    assert [line async for line in api.watch("/x", query={}, idle_seconds=5)] == [b"{}"]
    await api.close()


# -- watches --------------------------------------------------------------------------------------------------------


def streaming(chunks: list[bytes], hold: asyncio.Event | None = None, abort: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.001)
        if hold is not None:
            await hold.wait()
        if abort and request.transport is not None:
            request.transport.close()
        return response

    return handler


async def test_lines_are_cut_wherever_the_chunks_are(api: HttpApi, server: Server) -> None:
    server.handler = streaming([b'{"a":', b'1}\n{"b":2}\n', b"\n", b'{"c":3', b"}", b"\n"])
    lines = [line async for line in api.watch("/x", query={"watch": "true"}, idle_seconds=5)]
    assert lines == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert server.requests[0].query["watch"] == "true"


async def test_a_line_may_be_longer_than_any_buffer(api: HttpApi, server: Server) -> None:
    piece = b"x" * (1 << 20)
    server.handler = streaming([piece] * 6 + [b"\nshort\n"])
    lines = [line async for line in api.watch("/x", query={}, idle_seconds=10)]
    assert [len(line) for line in lines] == [6 << 20, 5]


async def test_a_line_that_does_not_end_is_read_no_further_than_the_longest_page(api: HttpApi, server: Server) -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 8 * PAGE_BYTES_MAX:
            await response.write(b"x" * (1 << 20))
            sent += 1 << 20
        return response

    server.handler = handler
    with pytest.raises(errors.Unavailable, match="a line of a watch is longer than"):
        await anext(api.watch("/x", query={}, idle_seconds=10))
    assert sent < 2 * PAGE_BYTES_MAX


async def test_a_refusal_of_a_watch_is_read_no_further_either(api: HttpApi, server: Server) -> None:
    server.handler = server.answer(500, b" " * (PAGE_BYTES_MAX + 1))
    with pytest.raises(errors.TooLarge):
        await anext(api.watch("/x", query={}, idle_seconds=5))


async def test_silence_ends_a_watch_without_an_error(api: HttpApi, server: Server) -> None:
    hold = asyncio.Event()
    server.handler = streaming([b"one\n"], hold)
    assert [line async for line in api.watch("/x", query={}, idle_seconds=0.05)] == [b"one"]
    hold.set()


async def test_a_broken_connection_ends_a_watch_without_an_error_or_half_a_line(api: HttpApi, server: Server) -> None:
    server.handler = streaming([b"one\n", b"hal"], abort=True)
    assert [line async for line in api.watch("/x", query={}, idle_seconds=5)] == [b"one"]


async def test_a_watch_that_cannot_start_raises(api: HttpApi, server: Server) -> None:
    server.handler = server.answer(410, b'{"reason":"Expired","message":"too old resource version"}')
    with pytest.raises(errors.Gone):
        await anext(api.watch("/x", query={}, idle_seconds=5))


async def test_a_watch_that_is_left_closes_its_connection(api: HttpApi, server: Server) -> None:
    hold, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            return await streaming([b"one\n"] * 1, hold)(request)
        finally:
            ended.set()

    server.handler = handler
    watch = api.watch("/x", query={}, idle_seconds=5)
    assert await anext(watch) == b"one"
    await watch.aclose()
    hold.set()
    await asyncio.wait_for(ended.wait(), 10)
    server.handler = server.answer(200, b"{}")
    assert await api.request("GET", "/next") == b"{}"


async def test_each_answer_says_what_time_it_is(server: Server) -> None:
    told: list[float] = []
    api = HttpApi(server.url, new_session(False, "tutti-test"), on_date=told.append)
    odd = (
        "no date at all",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 99999999999999999999:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
    )
    for date in ("Wed, 21 Oct 2015 07:28:00 GMT", *odd):

        async def handler(request: web.Request, date: str = date) -> web.Response:
            return web.Response(text="{}", headers={"Date": date})

        server.handler = handler
        assert await api.request("GET", "/version") == b"{}"
    assert told == [1_445_412_480.0]
    await api.close()
