"""Which other webhook replicas there are: the endpoints of our own Service, by pod name.

Where there are no EndpointSlices, the configuration lists them instead. The liveness check of ``forward`` finds a
replica that is listed and does not answer; a replica that is not listed yet is not asked yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.wire.watch import version_number


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """One EndpointSlice: pod name to base URL."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    replicas: Mapping[str, str]


def decode(raw: bytes) -> SliceRecord:
    """Return the replicas that an EndpointSlice lists; those that are known not to serve are left out."""
    document = orjson.loads(raw)
    metadata = document["metadata"]
    port = next((port["port"] for port in document.get("ports") or () if port.get("port")), None)
    replicas = {
        endpoint["targetRef"]["name"]: _url(document.get("addressType", ""), endpoint["addresses"][0], port)
        for endpoint in document.get("endpoints") or ()
        if port is not None and endpoint.get("targetRef") and endpoint.get("addresses") and _serves(endpoint)
    }
    return SliceRecord(
        metadata["uid"], metadata["namespace"], metadata["name"], version_number(metadata["resourceVersion"]), replicas
    )


def _serves(endpoint: Mapping[str, Any]) -> bool:
    return (endpoint.get("conditions") or {}).get("serving") is not False


def _url(address_type: str, address: str, port: int) -> str:
    return f"https://[{address}]:{port}" if address_type == "IPv6" else f"https://{address}:{port}"


class ServicePeers:
    """Follows the EndpointSlices of one Service."""

    def __init__(self, api: Api, namespace: str, service: str, rng: Random) -> None:
        self._informer = Informer(
            api,
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            decode,
            rng=rng,
            name="peers",
            label_selector=f"kubernetes.io/service-name={service}",
        )

    def __call__(self) -> Mapping[str, str] | None:
        """Return the replicas as last seen; None before they were, unless they cannot be read: then this one goes on
        alone.
        """
        if not self._informer.synced.is_set() and not self._informer.refusal:
            return None
        return {name: url for record in self._informer.records.values() for name, url in record.replicas.items()}

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._informer.run()
