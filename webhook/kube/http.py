"""``Api`` over HTTP: kubernetes-asyncio finds the server and keeps the credentials fresh, aiohttp carries the bytes.

The library's own request path is not used: it encodes bodies itself, has no time-outs, and its session looks for a
netrc file in a thread at each call, which costs several times what the request does. Only ``connect`` and its parts
import the library, when called, and of it only what reads credentials (``_library``).
"""

import asyncio
import errno
import importlib
import os
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import structlog
from yarl import URL

from webhook import errors, suites
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput, in_words
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

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without their ends; empty ones are left out."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        if not others:
            return []
        lines = [b"".join(self._parts), *others[:-1]]
        self._parts = [others[-1]]
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


class HttpApi:
    """One API server, as one identity. Implements ``kube.api.Api``."""

    def __init__(
        self,
        server: str,
        session: aiohttp.ClientSession,
        credentials: "Credentials | GivenToken | None" = None,
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
            query = {**(query or {}), "timeout": f"{timeout_seconds:g}s"}
        url = self._url(path, query)
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        await self._authorise(headers)
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, sock_connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds)
        )
        bytes_max = PAGE_BYTES_MAX if "limit" in (query or {}) else None
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
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unanswered(error, is_write=method != "GET") from error

    def _note_date(self, date: str) -> None:
        try:
            self._on_date(parsedate_to_datetime(date).timestamp())
        except ValueError:
            # Some proxies send none.
            return

    async def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch; see ``kube.api``. Lines may have any length."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=idle_seconds)
        response = await self._open_watch(self._url(path, query), timeout)
        try:
            splitter = LineSplitter()
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line
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
                raise refusal(response.status, await response.read(), is_write=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
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
        return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)


async def _read_at_most(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > bytes_max:
            response.close()
            raise errors.TooLarge(response.status, "TooLarge", f"a page of a list is longer than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def _unanswered(error: Exception, *, is_write: bool) -> errors.Unavailable:
    never_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    reason = "Timeout" if isinstance(error, TimeoutError) else "ConnectionFailed"
    message = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        message = f"cannot connect to the API server at {error.host}:{error.port}: {in_words(error.os_error)}"
    return errors.Unavailable(0, reason, message, outcome_unknown=is_write and not never_sent)


# -- connecting -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(kubeconfig: Path | None, user_agent: str) -> AsyncGenerator[HttpApi]:
    """Connect as ``connect`` does, for as long as the context is entered."""
    api = await connect(kubeconfig, user_agent)
    try:
        yield api
    finally:
        await api.close()


async def connect(
    kubeconfig: Path | str | None = None,
    user_agent: str = "tutti",
    *,
    on_date: Callable[[float], None] = lambda unix_seconds: None,
) -> HttpApi:
    """Return the API server of ``kubeconfig``, else of $KUBECONFIG, else of the pod we run in, else of ~/.kube/config.

    No request is sent yet, except to an OIDC issuer where the kubeconfig names one. Raises WrongInput when there is no
    usable configuration.
    """
    # The library's constants are read when it is imported; what is asked for is read now.
    source = str(kubeconfig or "") or os.environ.get("KUBECONFIG") or None
    if source is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        configuration, load = _in_cluster()
    else:
        source = source or str(Path.home() / ".kube" / "config")
        configuration, load = _from_kubeconfig(source)
    try:
        tls = await load()
    except Exception as error:
        raise WrongInput((_unusable(source, error),)) from error
    credentials = Credentials(configuration, load)
    session = new_session(tls, user_agent)
    return HttpApi(
        configuration.host,
        session,
        credentials,
        proxy=configuration.proxy or _environment_proxy(configuration.host),
        server_hostname=configuration.tls_server_name,
        on_date=on_date,
    )


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


def reach(
    server: str, tls: ssl.SSLContext, token: str = "", *, server_hostname: str = "", user_agent: str = "tutti"
) -> HttpApi:
    """Return the API server at ``server``, by what is given alone: no file, proxy or variable is looked at."""
    session = new_session(tls, user_agent)
    return HttpApi(server, session, GivenToken(token), server_hostname=server_hostname or None)


def _library(name: str) -> Any:
    """Return a module of the library without running its packages' own files.

    Those import 850 modules, a class for each type of the API, and we use none: 33 MiB, half a second of processor.
    """
    for package in ("kubernetes_asyncio", "kubernetes_asyncio.client"):
        if package not in sys.modules:
            spec = find_spec(package)
            assert spec is not None, f"{package} is not installed"
            sys.modules[package] = module_from_spec(spec)
    client: Any = sys.modules["kubernetes_asyncio.client"]
    # What the readers of credentials take from the package; the second one only to name a type.
    client.Configuration = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
    client.ApiClient = getattr(client, "ApiClient", object)
    return importlib.import_module(f"kubernetes_asyncio.{name}")


def _in_cluster() -> tuple[Any, Callable[[], Awaitable[ssl.SSLContext]]]:
    incluster_config, configuration = _library("config.incluster_config"), _new_configuration()

    async def load() -> ssl.SSLContext:
        incluster_config.load_incluster_config(configuration)
        return _tls(configuration)

    return configuration, load


def _from_kubeconfig(paths: str) -> tuple[Any, Callable[[], Awaitable[ssl.SSLContext]]]:
    kube_config, configuration = _library("config.kube_config"), _new_configuration()

    async def load() -> ssl.SSLContext:
        _require_file(paths)
        try:
            await kube_config.load_kube_config(config_file=paths, client_configuration=configuration)
            return _tls(configuration)
        finally:
            # Keys and certificates that stand in the kubeconfig itself were copied to files for the line above. The
            # library deletes those when the interpreter ends, which a killed process never reaches.
            kube_config._cleanup_temp_files()

    return configuration, load


def _require_file(paths: str) -> None:
    # The library merges what exists; of nothing it only complains in its log.
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), paths)


def _new_configuration() -> Any:
    return _library("client.configuration").Configuration()


def _unusable(source: str | None, error: Exception) -> Problem:
    return Problem(
        path="kubeconfig",
        value=source or "(the pod's service account)",
        # What the library stumbles over in a document of another kind says nothing to anybody.
        why="is not a kubeconfig" if isinstance(error, TypeError | AttributeError | KeyError) else in_words(error),
        fix="name a readable kubeconfig whose current context is there, or run in a pod with a service account",
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = suites.client_context(file=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


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


def _environment_proxy(server: str) -> str | None:
    address = urlsplit(server)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)
