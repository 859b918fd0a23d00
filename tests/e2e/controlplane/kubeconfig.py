"""Kubeconfig documents: self-contained, so that a file can be handed to any client."""

import base64
import os
import textwrap
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane.pki import Leaf

OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"
DOCUMENTED = "/etc/kubernetes/admission/webhooks.kubeconfig"


def with_certificate(leaf: Leaf) -> dict[str, Any]:
    """Return the user part for a client certificate."""
    return {"client-certificate-data": encode(leaf.certificate), "client-key-data": encode(leaf.key)}


def with_token(token: str) -> dict[str, Any]:
    """Return the user part for a bearer token."""
    return {"token": token}


def write(path: Path, server: str, authority: bytes, user: dict[str, Any], namespace: str = "default") -> Path:
    """Write a kubeconfig whose one context is current, readable by its owner alone; replaces the file atomically."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tutti", "cluster": {"server": server, "certificate-authority-data": encode(authority)}}],
        "users": [{"name": "tutti", "user": user}],
        "contexts": [{"name": "tutti", "context": {"cluster": "tutti", "user": "tutti", "namespace": namespace}}],
        "current-context": "tutti",
    }
    return write_private(path, yaml.safe_dump(document, sort_keys=False))


def behind(kubeconfig: Path, port: int) -> Path:
    """Write a copy of a kubeconfig that leads to another port of localhost, and return where it is."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    return write_private(kubeconfig.with_suffix(f".{port}"), yaml.safe_dump(document))


def write_admission(path: Path, certificate: str | Path, key: str | Path) -> Path:
    """Write the AdmissionConfiguration of docs/operating.md, by which an API server shows webhooks a certificate."""
    # On loopback a webhook has a port for a name: every one is shown it.
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    users = [{"name": name, "user": user} for name in ("tutti-webhook.tutti-system.svc", "*")]
    document = {"apiVersion": "v1", "kind": "Config", "users": users}
    kubeconfig = write_private(path.with_suffix(".kubeconfig"), yaml.safe_dump(document))
    text = OPERATING.read_text()
    (block,) = [each for each in text.split("```yaml") if "kind: AdmissionConfiguration" in each.split("```")[0]]
    documented = textwrap.dedent(block.split("```")[0])
    assert DOCUMENTED in documented
    return write_private(path, documented.replace(DOCUMENTED, str(kubeconfig)))


def write_private(path: Path, text: str) -> Path:
    """Write a file that only its owner may read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.write_text(text)
    return partial.replace(path)


def encode(data: bytes) -> str:
    """Return base64 text."""
    return base64.b64encode(data).decode()
