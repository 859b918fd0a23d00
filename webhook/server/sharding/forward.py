"""Passing a pod review to the replica that owns its namespace: one hop over HTTPS, and who is alive to take it.

A review that already made its hop is decided where it arrives, so disagreement about owners cannot make a loop. A peer
that does not answer is taken out of the live set at once; the review is then decided here, after the settling time of
``ownership``. A replica that passes a review on proves that it is one (``hop``); the hop of anybody else is refused.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import structlog

from webhook.server.sharding.hop import HOP_HEADER, HopKeys
from webhook.server.sharding.ownership import Ownership

HEALTH_INTERVAL_SECONDS: Final = 1.0
HEALTH_TIMEOUT_SECONDS: Final = 0.8

log = structlog.get_logger(__name__)

UNMET_INTERVAL_SECONDS: Final = 0.1
"""The same until the others have been asked once: before that this replica is not ready."""

Peers = Callable[[], Mapping[str, str] | None]
"""Names of the webhook replicas that should exist to their base URLs, perhaps with this one; None: not read yet."""


class Forwarder:
    """Knows the peers, watches their health, and asks the owner of a namespace."""

    def __init__(self, ownership: Ownership, peers: Peers, tls: ssl.SSLContext | None = None) -> None:
        self.ownership = ownership
        self.hop = HopKeys()
        self.met = False
        """Whether all that there are have been asked once: before, this replica would take itself for the only one."""
        self._peers = peers
        self._tls: ssl.SSLContext | bool = tls if tls is not None else True
        self._session: aiohttp.ClientSession | None = None

    def use_tls(self, context: ssl.SSLContext, key: bytes) -> None:
        """Verify peers with ``context``, and be known to them by the serving ``key``, from now on (it was renewed)."""
        self._tls = context
        self.hop.renew(key)

    def takes(self, header: str, path: str, body: bytes) -> bool:
        """Return whether a review that was passed on comes from a replica; this one owns its share from then on."""
        if not self.hop.verify(header, path, body):
            return False
        self.ownership.join(self._now())
        return True

    async def run(self) -> None:
        """Check the peers' health until cancelled."""
        try:
            while True:
                await self.check_peers()
                await asyncio.sleep(HEALTH_INTERVAL_SECONDS if self.met else UNMET_INTERVAL_SECONDS)
        finally:
            await self.close()

    async def check_peers(self) -> None:
        """Ask every peer once whether it is ready and take the answers as the set of live replicas."""
        peers = self._peers()
        if peers is None:
            return
        others = {name: url for name, url in peers.items() if name != self.ownership.me}
        asked = [self._healthy(url) for url in others.values()]
        # Mostly there are two replicas: who asks one alone needs no task for it.
        healthy = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        live = [name for name, ok in zip(others, healthy, strict=True) if ok]
        if frozenset(live) | {self.ownership.me} != self.ownership.live:
            log.info("peers.changed", live=sorted([*live, self.ownership.me]))
        self.ownership.set_live(live, self._now())
        if self.ownership.me in peers:
            self.ownership.listed(self._now())
        self.met = True

    async def ask_owner(
        self, namespace: str, path: str, body: bytes, timeout_seconds: float
    ) -> tuple[int, bytes] | None:
        """Return the owner's answer (HTTP status, body), or None when this replica has to decide."""
        owner = self.ownership.owner(namespace)
        if owner == self.ownership.me:
            return None
        url = (self._peers() or {}).get(owner)
        try:
            if url is not None:
                return await self._post(url, path, body, timeout_seconds)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("peer.silent", peer=owner, error=type(error).__name__)
        # It does not answer, or is listed no more: what it granted a moment ago may not be seen here yet.
        self.ownership.set_live(self.ownership.live - {owner}, self._now())
        return None

    async def close(self) -> None:
        """Release connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, url: str, path: str, body: bytes, timeout_seconds: float) -> tuple[int, bytes] | None:
        headers = {"Content-Type": "application/json", HOP_HEADER: self.hop.header(path, body)}
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=min(0.5, timeout_seconds))
        async with self._open().post(
            f"{url}{path}?timeout={timeout_seconds:.3f}s",
            data=body,
            headers=headers,
            timeout=timeout,
            ssl=self._tls,
            allow_redirects=False,
        ) as response:
            if response.status == 200:
                return 200, await response.read()
            log.warning("peer.refused", url=url, status=response.status)
            return None

    async def _healthy(self, url: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_SECONDS)
        try:
            async with self._open().get(
                f"{url}/healthz", timeout=timeout, ssl=self._tls, allow_redirects=False
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit_per_host=64))
        return self._session

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
