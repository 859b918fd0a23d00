"""An admission webhook of somebody else's, which refuses what a hub's account writes, by whatever HTTP status."""

import base64
import json
import re
import ssl
import tempfile
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.e2e.controlplane.pki import Authority
from tests.e2e.kubectl import Kubectl
from webhook.fleet.credentials.account import ACCOUNT

WORDS: Final = "not on Thursdays"
_NAME: Final = "thursdays"
_WHAT: Final = re.compile(r"(copy|record|status)-(\d{3})")
"""The name of a job says what of it is refused, and by which status: its creation, its annotations, or its status."""
_PARTS: Final = {("CREATE", ""): "copy", ("UPDATE", ""): "record", ("UPDATE", "status"): "status"}


class Refusing:
    """The webhook, registered in some clusters. Use it as a context manager; nothing is refused before and after."""

    def __init__(self, *administrators: Kubectl) -> None:
        self._administrators = administrators
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        authority, folder = Authority("somebody"), Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*authority.serving("somebody").write(folder))
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        self._stack.callback(server.server_close)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self._stack.callback(server.shutdown)
        for each in self._administrators:
            self._stack.callback(each.delete, "validatingwebhookconfiguration", _NAME)
            each.apply(_registration(server.server_address[1], authority.pem))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _registration(port: int, authority: bytes) -> dict[str, Any]:
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": f"{_NAME}.example.org",
        "clientConfig": {"url": f"https://127.0.0.1:{port}", "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule | {"resources": ["jobs", "jobs/status"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    registered = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return registered | {"metadata": {"name": _NAME}, "webhooks": [webhook]}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({key: review[key] for key in ("apiVersion", "kind")} | {"response": _judged(review)})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing of each review."""


def _judged(review: dict[str, Any]) -> dict[str, Any]:
    asked = review["request"]
    found = _WHAT.fullmatch(asked["name"])
    part = _PARTS.get((asked["operation"], asked.get("subResource", "")))
    if found is None or found[1] != part or not asked["userInfo"]["username"].endswith(f":{ACCOUNT}"):
        return {"uid": asked["uid"], "allowed": True}
    return {"uid": asked["uid"], "allowed": False, "status": {"code": int(found[2]), "message": WORDS}}
