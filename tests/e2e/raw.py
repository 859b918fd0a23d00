"""Requests to an API server as they are, as one user: kubectl orders what it sends, and reads before it patches."""

import ssl
import urllib.error
import urllib.request
from base64 import b64decode

import yaml

from tests.e2e.kubectl import Kubectl


def send(
    who: Kubectl, method: str, path: str, body: bytes | None = None, *, kind: str = "application/json", accept: str = ""
) -> tuple[int, bytes]:
    """Send bytes as they are, which kubectl would put in order first; return status and answer."""
    config = yaml.safe_load(who.kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trusted = ssl.create_default_context(cadata=b64decode(server["certificate-authority-data"]).decode())
    headers = {"Content-Type": kind, "Accept": accept or "application/json"}
    if "as" in user:
        headers["Impersonate-User"] = user["as"]
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    else:
        files = [who.kubeconfig.with_suffix(f".{part}") for part in ("crt", "key")]
        for file, part in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
            file.write_bytes(b64decode(user[part]))
        trusted.load_cert_chain(*files)
    request = urllib.request.Request(server["server"] + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, context=trusted, timeout=60) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
