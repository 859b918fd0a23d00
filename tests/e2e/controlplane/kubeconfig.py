"""Kubeconfig documents: self-contained, so that a file can be handed to any client."""

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane.pki import Leaf


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


def write_admission(path: Path, user: dict[str, Any]) -> Path:
    """Write an API server's AdmissionConfiguration by which it calls every webhook as ``user``."""
    users = write_private(
        path.with_suffix(".kubeconfig"),
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}),
    )
    settings = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(users),
    }
    plugins = [{"name": f"{kind}AdmissionWebhook", "configuration": settings} for kind in ("Mutating", "Validating")]
    document = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    return write_private(path, yaml.safe_dump(document))


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
