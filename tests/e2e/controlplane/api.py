"""A few raw requests to the API server, for setting up and for reading: kubectl takes a tenth of a second for each."""

import json
import ssl
import threading
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
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
        super().__init__(f"{status}: {message[:2000]}")
        self.status = status
        try:
            told = json.loads(message)
        except ValueError:
            told = {}
        self.reason, self.told = str(told.get("reason", "")), str(told.get("message", ""))
        """What the answer's Status says, if it is one."""


class Answer(NamedTuple):
    """What the API server answered."""

    status: int
    text: str
    warnings: list[str]
    """As headers say them."""


class Api:
    """Requests as one user, safe from several threads.

    Each thread keeps a connection for what it reads, since a handshake costs more than a read, and a read may be
    repeated when the kept connection turns out to have ended. Writes have a connection each.
    """

    def __init__(self, server: str, tls: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> None:
        """``tls`` or ``headers`` say who asks."""
        self._address = urlsplit(server).netloc
        self._tls = tls
        self._headers = dict(headers or {})
        self._kept = threading.local()

    @classmethod
    def with_keys(cls, server: str, authority: Path, certificate: Path, key: Path) -> Self:
        """Return the requests of who has a client certificate."""
        tls = ssl.create_default_context(cafile=str(authority))
        tls.load_cert_chain(certificate, key)
        return cls(server, tls)

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> str:
        """Return the body of the answer; raises ApiError on a status of 400 or more, OSError without an answer."""
        return self.ask(method, path, body, **headers).text

    def ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Return the answer; raises as :meth:`request`."""
        headers = self._headers | {"Content-Type": content_type, "Accept": accept}
        if method == "GET":
            answer = self._read(path, headers)
        else:
            connection = self._connection()
            try:
                answer = _answer(connection, method, path, body, headers)
            finally:
                connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, answer.text)
        return answer

    def _read(self, path: str, headers: Mapping[str, str]) -> Answer:
        """Ask over this thread's connection, and once more over a new one if that had ended meanwhile."""
        connection: HTTPSConnection | None = getattr(self._kept, "connection", None)
        if connection is not None and connection.sock is not None:
            try:
                return _answer(connection, "GET", path, None, headers)
            except (ConnectionError, ssl.SSLError):
                pass
        self._kept.connection = connection = self._connection()
        return _answer(connection, "GET", path, None, headers)

    def _connection(self) -> HTTPSConnection:
        return HTTPSConnection(self._address, timeout=30, context=self._tls)

    def get(self, path: str) -> Any:
        """Return an object."""
        return json.loads(self.request("GET", path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object and return it as stored."""
        return json.loads(self.request("POST", path, json.dumps(body)))

    def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Change an object by JSON patch."""
        self.request("PATCH", path, json.dumps(operations), content_type="application/json-patch+json")

    def create(self, kind: str, document: str | dict[str, Any], namespace: str = "") -> None:
        """Create an object of a kind in :data:`PATHS` from YAML text or a mapping; one that exists is left alone."""
        text = document if isinstance(document, str) else json.dumps(document)
        try:
            self.request("POST", PATHS[kind].format(namespace), text, content_type="application/yaml")
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


def _answer(
    connection: HTTPSConnection, method: str, path: str, body: str | None, headers: Mapping[str, str]
) -> Answer:
    """Return the answer; on any failure the connection is closed."""
    try:
        connection.request(method, path, body.encode() if body else None, dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(), answer.headers.get_all("Warning") or [])
    except OSError:  # among them RemoteDisconnected, which is an HTTPException too
        connection.close()
        raise
    except HTTPException as error:
        connection.close()
        raise OSError(str(error)) from error
