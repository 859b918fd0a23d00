"""Who may call us: kube-apiserver's front proxy, by a client certificate of the authority that the cluster publishes.

The authority and the names allowed to it stand in ConfigMap ``kube-system/extension-apiserver-authentication``, as for
every aggregated API. kube-apiserver has authenticated and authorised the user by the time it calls; a caller without
its certificate gets 401, however it describes itself in headers. The TLS layer checks the signature, because the
listener trusts this authority for client certificates and no other; here is only the name.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
import structlog
from aiohttp import web

from webhook.errors import ApiError
from webhook.kube.api import Api
from webhook.kube.client_certificate import common_name

PATH: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
REREAD_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the cluster says of its front proxy."""

    authority: str
    """PEM certificates."""
    names: tuple[str, ...]
    """Common names that are allowed; empty allows every name the authority has signed."""


class FrontProxy:
    """Follows what the cluster says of its front proxy and tells its calls from others."""

    def __init__(self, api: Api, on_authority: Callable[[str], None]) -> None:
        """``on_authority`` is given the authority (PEM) at first and whenever it changes."""
        self._api = api
        self._on_authority = on_authority
        self._complaint = ""
        """What was wrong at the last read; it is logged when it changes."""
        self.trust: Trust | None = None

    async def run(self) -> None:
        """Read and re-read until cancelled."""
        while True:
            await asyncio.sleep(REREAD_SECONDS if await self.reread() else RETRY_SECONDS)

    async def reread(self) -> bool:
        """Read once; return whether the trusted CA is known. What was known stands when the read fails."""
        try:
            trust = parse_trust(orjson.loads(await self._api.request("GET", PATH)))
        except (ApiError, ValueError) as error:
            return self._complain("front_proxy.unknown", error)
        if self.trust is None or trust.authority != self.trust.authority:
            try:
                self._on_authority(trust.authority)
            except OSError as error:  # ssl.SSLError is one
                return self._complain("front_proxy.bad_authority", error)
        if self._complaint:
            log.info("front_proxy.known")
            self._complaint = ""
        self.trust = trust
        return True

    def _complain(self, event: str, error: Exception) -> Literal[False]:
        # A cluster without aggregated APIs is asked again and again, and says the same each time.
        if self._complaint != f"{event} {error}":
            self._complaint = f"{event} {error}"
            log.warning(event, error=str(error), again_in_seconds=RETRY_SECONDS)
        return False

    def refusal(self, request: web.Request) -> str | None:
        """Return why a request is not the front proxy's, or None when it is."""
        if self.trust is None:
            return "the cluster's front-proxy authority is not known yet"
        name = common_name(request.get_extra_info("peercert"))
        if name is None:
            return "only kube-apiserver may call here, with its front-proxy client certificate"
        if self.trust.names and name not in self.trust.names:
            return f"client certificate {name!r} is not among requestheader-allowed-names"
        return None


def parse_trust(config_map: Mapping[str, Any]) -> Trust:
    """Return what the ConfigMap says. Raises ValueError when aggregation is not configured, or is malformed."""
    data = config_map.get("data") or {}
    authority = data.get("requestheader-client-ca-file")
    if not authority:
        raise ValueError("requestheader-client-ca-file is empty: the API server has no front proxy configured")
    names = orjson.loads(data.get("requestheader-allowed-names") or "[]")
    if not isinstance(names, list):
        raise ValueError("requestheader-allowed-names is not a list")
    return Trust(authority, tuple(str(name) for name in names))
