"""What kubectl shows and does in the plainest cases, asked of the API server over a kept connection.

A test looks every fifth of a second until something is so, and needs a namespace, rights and queues before it begins.
As a process of its own each of these costs a tenth of a core's second, most of it for kubectl's start, and a handshake.
What is meant by a name is found as kubectl finds it. Whatever is not plain is left to kubectl itself.
"""

import json
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml

from tests.e2e.controlplane.api import Answer, Api, ApiError

APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class NotPlain(Exception):
    """kubectl has to be asked: the name, the user or the answer is not plain."""


class Refused(Exception):
    """There is no such object, or this user may not do that; the message is as kubectl prints it."""

    def __init__(self, reason: str, told: str) -> None:
        # A webhook that denies gives no reason.
        super().__init__(f"Error from server ({reason}): {told}" if reason else f"Error from server: {told}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, in the version that its group prefers."""

    names: tuple[str, str]
    """Plural and singular."""
    kind: str
    group: str
    folder: str
    """Path below which its objects are, without the namespace."""
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """Return the address of an object, or of all."""
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.folder}{within}/{self.names[0]}" + (f"/{name}" if name else "")


class Direct:
    """Asks as the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._resources: list[Resource] = []

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Return an object; raises Refused or NotPlain."""
        return _shown(self._read(self._resource(kind).path(namespace, name)))

    def items(self, kind: str, namespace: str, selector: str, fields: str) -> list[dict[str, Any]]:
        """Return all objects that a label selector and a field selector pick; raises NotPlain."""
        query = urlencode({"labelSelector": selector, "fieldSelector": fields})
        listed = self._read(f"{self._resource(kind).path(namespace)}?{query}")
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        return [_shown(head | item) for item in listed["items"]]

    def apply(self, item: dict[str, Any], namespace: str) -> None:
        """Create an object as ``kubectl apply`` does, unless it is there as applied; raises Refused or NotPlain."""
        resource = self._of_kind(item)
        metadata = {"annotations": {}, **item["metadata"]} | ({"namespace": namespace} if resource.namespaced else {})
        text = json.dumps({**item, "metadata": metadata}, separators=(",", ":"), sort_keys=True) + "\n"
        made = {**item, "metadata": {**metadata, "annotations": {**metadata["annotations"], APPLIED: text}}}
        try:
            self._asked("POST", f"{resource.path(namespace)}?fieldManager=kubectl-client-side-apply", json.dumps(made))
        except NotPlain:
            stored = self._read(resource.path(namespace, metadata["name"]))
            if stored["metadata"].get("annotations", {}).get(APPLIED) != text:
                raise

    def warnings(self, item: dict[str, Any], namespace: str) -> list[str]:
        """Return what the author of an object would be warned of; raises NotPlain also when it is refused."""
        path = f"{self._of_kind(item).path(namespace)}?dryRun=All"
        return self._asked("POST", path, json.dumps(item)).warnings

    def may(self, verb: str, resource: str, group: str, namespace: str) -> bool:
        """Return whether RBAC lets the user do that; raises Refused or NotPlain."""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        review = json.dumps(head | {"spec": {"resourceAttributes": asked}})
        answer = self._asked("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        return bool(json.loads(answer.text)["status"]["allowed"])

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object that may be gone; raises Refused or NotPlain."""
        try:
            self._asked("DELETE", self._resource(kind).path(namespace, name), '{"propagationPolicy": "Background"}')
        except Refused as error:
            if error.reason != "NotFound":
                raise

    def _read(self, path: str) -> Any:
        return json.loads(self._asked("GET", path).text)

    def _asked(self, method: str, path: str, body: str | None = None) -> Answer:
        try:
            return self._api.ask(method, path, body)
        except ApiError as error:
            if error.status in (403, 404) and error.told:
                raise Refused(error.reason, error.told) from error
            raise NotPlain from error
        except OSError as error:
            raise NotPlain from error

    def _resource(self, name: str) -> Resource:
        """Return the first resource of that name in the API server's order."""
        plain, _, group = name.partition(".")
        return self._first(lambda each: plain in each.names and group in ("", each.group))

    def _of_kind(self, item: dict[str, Any]) -> Resource:
        """Return the resource of an object."""
        root = "/apis" if "/" in item["apiVersion"] else "/api"
        return self._first(lambda each: (each.folder, each.kind) == (f"{root}/{item['apiVersion']}", item["kind"]))

    def _first(self, wanted: Callable[[Resource], bool]) -> Resource:
        """Return the first that is wanted; it may have come since the API server was asked what it serves."""
        for _ in range(2):
            for resource in self._resources:
                if wanted(resource):
                    return resource
            self._resources = list(self._discovered())
        raise NotPlain

    def _discovered(self) -> Iterator[Resource]:
        for root in ("/api", "/apis"):
            try:
                groups = json.loads(self._api.request("GET", root, accept=AGGREGATED)).get("items", ())
            except (OSError, ApiError) as error:
                raise NotPlain from error
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
                yield Resource(names, resource["responseKind"]["kind"], name, folder, resource["scope"] == "Namespaced")


def _credentials(server: dict[str, Any], user: dict[str, Any]) -> tuple[ssl.SSLContext, dict[str, str]]:
    """Return how to show who asks; raises NotPlain where that takes more than a certificate or a token."""
    authority = server.get("certificate-authority-data")
    if authority is None or user.keys() - {"token", "client-certificate-data", "client-key-data"}:
        raise NotPlain
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
