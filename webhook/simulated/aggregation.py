"""Aggregated APIs: requests for a group and version that an APIService names are passed on to its server.

The caller's name goes along as the front proxy of a real control plane writes it (``X-Remote-User``,
``X-Remote-Group``); the connection should present the front proxy's client certificate, by which the server knows that
it may believe them. Answers are passed back as they come, so watches stream.
"""

import ssl
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp import web

from webhook.simulated.identity import User
from webhook.simulated.refusals import Json
from webhook.simulated.store import Store

SERVICES: Final = ("apiregistration.k8s.io", "apiservices")
Locate = Callable[[Json], str]
"""From the ``spec.service`` of an APIService to the base URL of its server."""

_PASSED_ON: Final = ("Accept", "Content-Type")
_PASSED_BACK: Final = ("Content-Type", "Warning", "Audit-Id")


class Aggregator:
    """Knows the stored APIServices and how to reach their servers."""

    def __init__(self, store: Store, locate: Locate, tls: ssl.SSLContext | None = None) -> None:
        self._store = store
        self._locate = locate
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    def service(self, path: str) -> Json | None:
        """Return the ``spec.service`` of the APIService that serves ``path``, None when none does."""
        parts = path.split("/")
        if len(parts) < 4 or parts[1] != "apis":
            return None
        stored = self._store.get(SERVICES, "", f"{parts[3]}.{parts[2]}")
        service: Json | None = None if stored is None else stored.object["spec"].get("service")
        return service

    async def forward(self, request: web.Request, body: bytes, user: User) -> web.StreamResponse:
        """Pass one request on and its answer back."""
        service = self.service(request.path)
        assert service is not None, "asked before"
        if self._session is None:
            self._session = aiohttp.ClientSession()
        headers = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        headers.append(("X-Remote-User", user.name))
        headers += [("X-Remote-Group", group) for group in user.groups]
        url = self._locate(service).rstrip("/") + request.raw_path
        name = f"{service['name']}.{service['namespace']}.svc"
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, ssl=self._tls or True, server_hostname=name
                if url.startswith("https:") else None, timeout=aiohttp.ClientTimeout(total=None, connect=5),
            ) as answer:  # fmt: skip
                return await _passed_back(request, answer)
        except aiohttp.ClientError as error:
            return web.Response(status=503, text=f"error trying to reach service: {error}")

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()


async def _passed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    for name in _PASSED_BACK:
        if name in answer.headers:
            response.headers[name] = answer.headers[name]
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response
