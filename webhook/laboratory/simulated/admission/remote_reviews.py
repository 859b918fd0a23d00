"""Admission webhooks that are other processes: reviews travel over TLS to a registration's Service, under its caBundle.

Registrations are followed as objects, as kube-apiserver does: create, change or delete a webhook configuration and the
next write is reviewed accordingly. Nothing here gives Services addresses: who starts the processes says where each is.
"""

import base64
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from webhook.laboratory.simulated.admission.webhooks import Condition, Reviewer, registrations
from webhook.laboratory.simulated.objects.store import Event
from webhook.laboratory.simulated.server import SimulatedServer

KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_GROUP: Final = "admissionregistration.k8s.io"


class RemoteReviews:
    """Follows the webhook configurations of one server and calls what they name."""

    def __init__(
        self,
        server: SimulatedServer,
        services: Mapping[tuple[str, str], str],
        conditions: Mapping[str, Condition] | None = None,
    ) -> None:
        """Must be made inside a running loop. ``services``: where each is, as ``https://host:port``, by namespace and
        name. ``conditions``: see ``admission.registrations``.
        """
        self._server = server
        self._services = services
        self._conditions = conditions or {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )
        self._unsubscribe = [server.store.subscribe(self._changed, (_GROUP, kind)) for kind in KINDS]

    async def close(self) -> None:
        """Stop following and end every connection."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        await self._session.close()

    def _changed(self, event: Event) -> None:
        configuration = event.current.object
        mutating = configuration["kind"].startswith("Mutating")
        self._server.admission.unregister(configuration["metadata"]["name"], mutating)
        if event.type == "DELETED":
            return
        for hook in configuration.get("webhooks") or ():
            alone = {**configuration, "webhooks": [hook]}
            self._server.admission.register(*registrations(alone, self._reviewer(hook), self._conditions))

    def _reviewer(self, hook: Mapping[str, Any]) -> Reviewer:
        client, seconds = hook["clientConfig"], int(hook.get("timeoutSeconds", 10))
        namespace, name = client["service"]["namespace"], client["service"]["name"]
        trusted = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())

        async def review(path: str, body: bytes) -> bytes:
            where = self._services.get((namespace, name))
            if where is None:
                raise RuntimeError(f"there is no Service {namespace}/{name}")
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with self._session.post(
                f"{where}{path}?timeout={seconds}s",
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=trusted,
                server_hostname=f"{name}.{namespace}.svc",
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
                if response.status != 200:
                    raise RuntimeError(f"{path}: an answer of status {response.status}")
                return answer

        return review
