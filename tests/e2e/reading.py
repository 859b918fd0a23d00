"""What ``kubectl get -o json`` shows, read over a kept connection.

A test looks every fifth of a second until something is so. As a process of its own each look costs a tenth of a core's
second, most of it for kubectl's start, and a handshake. Which resource a name means is found as kubectl finds it.
Whatever is not that plain is left to kubectl itself.
"""

import json
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from tests.e2e.controlplane.api import Api, ApiError

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Unreadable(Exception):
    """kubectl has to be asked: the name, the user or the answer is not plain."""


class NotThere(Exception):
    """There is no such object; the message is the API server's."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, in the version that its group prefers."""

    names: tuple[str, str]
    """Plural and singular."""
    group: str
    folder: str
    """Path below which its objects are, without the namespace."""
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """Return the address of an object, or of all."""
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.folder}{within}/{self.names[0]}" + (f"/{name}" if name else "")


class Reader:
    """Reads as the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._resources: list[Resource] = []

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Return an object; raises NotThere or Unreadable."""
        return _shown(self._read(self._resource(kind).path(namespace, name)))

    def items(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return all objects that a label selector picks; raises Unreadable."""
        query = f"?labelSelector={quote(selector)}" if selector else ""
        listed = self._read(self._resource(kind).path(namespace) + query)
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        return [_shown(head | item) for item in listed["items"]]

    def _read(self, path: str) -> Any:
        try:
            return self._api.get(path)
        except ApiError as error:
            if error.reason == "NotFound":
                raise NotThere(error.told) from error
            raise Unreadable from error
        except OSError as error:
            raise Unreadable from error

    def _resource(self, kind: str) -> Resource:
        """Return the first resource of that name in the API server's order; it may have come since they were read."""
        for _ in range(2):
            plain, _, group = kind.partition(".")
            for resource in self._resources:
                if plain in resource.names and group in ("", resource.group):
                    return resource
            self._resources = list(self._discovered())
        raise Unreadable

    def _discovered(self) -> Iterator[Resource]:
        for root in ("/api", "/apis"):
            try:
                groups = json.loads(self._api.request("GET", root, accept=AGGREGATED)).get("items", ())
            except (OSError, ApiError) as error:
                raise Unreadable from error
            for group in groups:
                yield from _preferred(root, group)

    @cached_property
    def _api(self) -> Api:
        found = yaml.safe_load(self._kubeconfig.read_text())
        server, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        return Api(server["server"], *_credentials(server, user))


def _preferred(root: str, group: dict[str, Any]) -> Iterator[Resource]:
    """Give what a group serves, each resource in the first version that has it."""
    name, seen = group["metadata"].get("name", ""), set()
    for version in group["versions"]:
        folder = "/".join(part for part in (root, name, version["version"]) if part)
        for resource in version.get("resources", ()):
            if resource["resource"] not in seen:
                seen.add(resource["resource"])
                names = resource["resource"], resource.get("singularResource", "")
                yield Resource(names, name, folder, resource["scope"] == "Namespaced")


def _credentials(server: dict[str, Any], user: dict[str, Any]) -> tuple[ssl.SSLContext, dict[str, str]]:
    """Return how to show who asks; raises Unreadable where that takes more than a certificate or a token."""
    authority = server.get("certificate-authority-data")
    if authority is None or user.keys() - {"token", "client-certificate-data", "client-key-data"}:
        raise Unreadable
    tls = ssl.create_default_context(cadata=b64decode(authority).decode())
    if "token" in user:
        return tls, {"Authorization": f"Bearer {user['token']}"}
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return tls, {}


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what kubectl leaves out."""
    item["metadata"].pop("managedFields", None)
    return item
