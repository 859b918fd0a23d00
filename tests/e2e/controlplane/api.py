"""A few raw requests to the API server, for setting up: kubectl would take a tenth of a second for each."""

import json
import ssl
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
"""Where objects of a kind are created; ``{}`` is the namespace."""


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests as one user, over one connection each: simple, and safe from several threads."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        self._address = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(certificate, key)

    def request(self, method: str, path: str, body: str | None = None, content_type: str = "application/json") -> str:
        """Return the body of the answer; raises ApiError on a status of 400 or more, OSError without an answer."""
        connection = HTTPSConnection(self._address, timeout=30, context=self._tls)
        try:
            connection.request(
                method,
                path,
                body.encode() if body else None,
                {"Content-Type": content_type, "Accept": "application/json"},
            )
            answer = connection.getresponse()
            text = answer.read().decode()
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, text[:2000])
        return text

    def get(self, path: str) -> Any:
        """Return an object."""
        return json.loads(self.request("GET", path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object and return it as stored."""
        return json.loads(self.request("POST", path, json.dumps(body)))

    def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Change an object by JSON patch."""
        self.request("PATCH", path, json.dumps(operations), "application/json-patch+json")

    def create(self, kind: str, document: str | dict[str, Any], namespace: str = "") -> None:
        """Create an object of a kind in :data:`PATHS` from YAML text or a mapping; one that exists is left alone."""
        text = document if isinstance(document, str) else json.dumps(document)
        try:
            self.request("POST", PATHS[kind].format(namespace), text, "application/yaml")
        except ApiError as error:
            if error.status != 409:
                raise

    def answers(self, path: str) -> bool:
        """Whether a GET of the path succeeds now."""
        try:
            self.request("GET", path)
        except (OSError, ApiError):
            return False
        return True
