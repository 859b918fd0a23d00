"""``Api`` over HTTP: aiohttp carries the bytes to the server that ``connecting`` has found.

The library that finds it has a request path of its own, which is not used: it encodes bodies itself, has no time-outs,
and its session looks for a netrc file in a thread at each call, which costs several times what the request does.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import structlog
from yarl import URL

from webhook import errors
from webhook.errors import in_words
from webhook.kube.api import JSON, PAGE_BYTES_MAX, REQUEST_TIMEOUT_SECONDS
from webhook.kube.statuses import refusal

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 5.0
KEEPALIVE_SECONDS: Final = 60.0
"""Idle connections are given up before the API server closes them, which it does after 90 seconds."""
READ_BUFFER_BYTES: Final = 1 << 20
_RELOAD_SECONDS_MIN: Final = 5.0


class LineSplitter:
    """Cuts a stream of chunks into lines of any length, each byte copied once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.begun_bytes = 0
        """Of the line that has not ended."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without their ends; empty ones are left out."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self.begun_bytes += len(first)
        if not others:
            return []
        lines = [b"".join(self._parts), *others[:-1]]
        self._parts, self.begun_bytes = [others[-1]], len(others[-1])
        return [line for line in lines if line]


class Credentials:
    """The bearer token of one identity, read again when it runs out or is refused."""

    def __init__(self, configuration: Any, load: Callable[[], Awaitable[object]]) -> None:
        """``configuration`` is the library's; ``load`` fills it again from where it came from."""
        self._configuration = configuration
        self._load = load
        self._loading = asyncio.Lock()
        self._loaded_at = float("-inf")

    async def header(self) -> str | None:
        """Return the value of the Authorization header, or None for an identity proved by TLS alone."""
        token: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        return token.strip() if token else None

    async def renewed(self, refused: str | None) -> bool:
        """After a 401 to the header ``refused``, read the credentials again; return whether there are others now."""
        async with self._loading:
            now = asyncio.get_running_loop().time()
            if await self.header() == refused and now - self._loaded_at > _RELOAD_SECONDS_MIN:
                self._loaded_at = now
                try:
                    await self._load()
                except Exception as error:
                    # The library raises whatever a credential plugin or an issuer makes it raise.
                    log.warning("kube.credentials_failed", error=str(error))
        return await self.header() != refused


class GivenToken:
    """A bearer token that is what it is: whoever gave it gives another connection when it changes."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def header(self) -> str | None:
        """Return the value of the Authorization header."""
        return f"Bearer {self._token}" if self._token else None

    async def renewed(self, refused: str | None) -> bool:
        """There is no other."""
        return False


class HttpApi:
    """One API server, as one identity. Implements ``kube.api.Api``."""

    def __init__(
        self,
        server: str,
        session: aiohttp.ClientSession,
        credentials: Credentials | GivenToken | None = None,
        *,
        proxy: str | None = None,
        server_hostname: str | None = None,
        on_date: Callable[[float], None] = lambda unix_seconds: None,
    ) -> None:
        """Take over ``session``: ``close`` closes it. ``server`` is its base URL.

        ``on_date`` is told what time it is by each answer, in whole seconds.
        """
        self._on_date = on_date
        self._server = server.rstrip("/")
        self._session = session
        self._credentials = credentials
        self._options: dict[str, Any] = {"allow_redirects": False}
        if proxy:
            self._options["proxy"] = proxy
        if server_hostname:
            self._options["server_hostname"] = server_hostname

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer. Raises ``errors.ApiError``; see ``kube.api``."""
        is_write = method != "GET"
        if is_write:
            # The server stops working on it too when we stop waiting: compare-and-swap has to catch late writes.
            query = {"timeout": f"{timeout_seconds:g}s", **(query or {})}
        url = self._url(path, query)
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        await self._authorise(headers)
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, sock_connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds)
        )
        # Of a write one object is answered.
        bytes_max = PAGE_BYTES_MAX if is_write or "limit" in (query or {}) else None
        status, answer = await self._send(method, url, headers, body, timeout, bytes_max=bytes_max)
        if status == 401 and await self._authorised_anew(headers):
            status, answer = await self._send(method, url, headers, body, timeout, bytes_max=bytes_max)
        if 200 <= status < 300:
            return answer
        raise refusal(status, answer, is_write=is_write)

    async def _send(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        *,
        bytes_max: int | None,
    ) -> tuple[int, bytes]:
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, **self._options
            ) as response:
                self._note_date(response.headers.get("Date", ""))
                if bytes_max is None:
                    return response.status, await response.read()
                return response.status, await _read_at_most(response, bytes_max)
        except errors.TooLarge as error:
            if method == "GET":
                raise
            raise errors.Unavailable(0, "TooLong", error.message, outcome_unknown=True) from error
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeError) as error:
            raise _unanswered(error, is_write=method != "GET") from error

    def _note_date(self, date: str) -> None:
        try:
            self._on_date(parsedate_to_datetime(date).timestamp())
        except (ValueError, OverflowError):
            # Some proxies send none, and anybody may send a year of twenty digits.
            return

    async def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch; see ``kube.api``."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=idle_seconds)
        response = await self._open_watch(self._url(path, query), timeout)
        try:
            splitter = LineSplitter()
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line
                if splitter.begun_bytes > PAGE_BYTES_MAX:
                    raise errors.Unavailable(0, "TooLong", f"a line of a watch is longer than {PAGE_BYTES_MAX} bytes")
        except (aiohttp.ClientError, TimeoutError, OSError):
            # Broken or silent: both mean that the watch is to be resumed, which is what its end means too.
            return
        finally:
            response.close()

    async def _open_watch(self, url: URL, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers: dict[str, str] = {}
        await self._authorise(headers)
        try:
            response = await self._session.get(url, headers=headers, timeout=timeout, **self._options)
            if response.status == 401 and await self._authorised_anew(headers):
                response.close()
                response = await self._session.get(url, headers=headers, timeout=timeout, **self._options)
            if response.status == 200:
                return response
            async with response:
                raise refusal(response.status, await _read_at_most(response, PAGE_BYTES_MAX), is_write=False)
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeError) as error:
            raise _unanswered(error, is_write=False) from error

    async def close(self) -> None:
        """Release connections."""
        await self._session.close()

    async def _authorise(self, headers: dict[str, str]) -> None:
        if self._credentials is not None:
            token = await self._credentials.header()
            if token is not None:
                headers["Authorization"] = token

    async def _authorised_anew(self, headers: dict[str, str]) -> bool:
        if self._credentials is None or not await self._credentials.renewed(headers.get("Authorization")):
            return False
        await self._authorise(headers)
        return True

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        text = self._server + quote(path, safe="/:@,%")
        try:
            return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)
        except ValueError as error:
            raise _unanswered(error, is_write=False) from error


async def _read_at_most(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > bytes_max:
            response.close()
            raise errors.TooLarge(response.status, "TooLarge", f"an answer is longer than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def _unanswered(error: Exception, *, is_write: bool) -> errors.Unavailable:
    never_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    reason = "Timeout" if isinstance(error, TimeoutError) else "ConnectionFailed"
    message = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        message = f"cannot connect to the API server at {error.host}:{error.port}: {in_words(error.os_error)}"
    elif isinstance(error, UnicodeError):
        message = f"cannot connect to the API server: no host can have its name: {error}"
    return errors.Unavailable(0, reason, message, outcome_unknown=is_write and not never_sent)


def new_session(tls: ssl.SSLContext | bool, user_agent: str) -> aiohttp.ClientSession:
    """Return a session for requests to one API server, with TLS as given; whoever takes it over closes it."""
    # Unlimited: what runs at the same time is bounded where it is started, and a renewal must never queue.
    connector = aiohttp.TCPConnector(
        limit=0, ssl=tls, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=_keepalive_socket
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
        # Not compressed: inside a data centre that costs both sides more than it saves.
        headers={"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
    )
    # aiohttp repeats a PUT or DELETE whose connection broke. The repetition of a conditional write that was applied
    # conflicts with itself, and the caller would be told that it was not applied.
    session._retry_connection = False
    return session


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket that notices a vanished peer in about half a minute, instead of after two hours."""
    connection = socket.socket(address[0], address[1], address[2])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
