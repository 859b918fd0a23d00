"""Certificates in a cluster: two Secrets, and the caBundle by which the API server knows us.

``tutti-ca`` holds the authorities and is mounted nowhere; ``tutti-certs`` is what the pods mount. Both exist before
this program runs (empty at first), so that its account needs no right to create Secrets. Every write carries the
resourceVersion that was read: of two runs at the same time one fails and changes nothing.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from certs.authority import load_pair
from certs.rotation import Material, Terms, advance, load_authorities, with_new_authority
from certs.store import AUTHORITIES_FILE
from webhook.errors import NotFound
from webhook.kube.api import JSON_PATCH, MERGE_PATCH, Api

AUTHORITY_SECRET: Final = "tutti-ca"  # noqa: S105 - a name
LEAF_SECRET: Final = "tutti-certs"  # noqa: S105 - a name

REGISTRATIONS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/tutti" for kind in ("mutating", "validating")
)
API_SERVICE: Final = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.tutti.dev"


@dataclass(frozen=True, slots=True)
class Secret:
    """The parts of a Secret that are read and written back."""

    path: str
    resource_version: str
    data: Mapping[str, bytes]


async def rotate(
    api: Api, namespace: str, terms: Terms, now_seconds: float, *, new_authority: bool = False
) -> Material:
    """Bring Secrets and registrations to what is due at ``now_seconds``; return what is now in use.

    The order is what makes it safe to stop anywhere: authorities are kept, then trusted, and only then is a leaf of
    theirs served. Raises ``webhook.errors.ApiError`` (NotFound when a Secret is missing), and ValueError for one that
    is unreadable.
    """
    authority_secret = await read_secret(api, namespace, AUTHORITY_SECRET)
    leaf_secret = await read_secret(api, namespace, LEAF_SECRET)
    stored = _material(authority_secret.data, leaf_secret.data)
    if new_authority:
        stored = with_new_authority(stored, terms, now_seconds)
    material = advance(stored, terms, now_seconds)
    await write_secret(api, authority_secret, {AUTHORITIES_FILE: material.authorities_pem})
    await patch_bundle(api, material.bundle_pem)
    await write_secret(api, leaf_secret, material.files())
    return material


async def patch_bundle(api: Api, bundle_pem: bytes) -> list[str]:
    """Let the API server trust ``bundle_pem`` for both registrations and the read API; return the paths that changed.

    A registration that does not exist (yet) is left out. Raises ``webhook.errors.ApiError``.
    """
    changed = []
    encoded = base64.b64encode(bundle_pem).decode()
    for path in REGISTRATIONS:
        if await _patch_registration(api, path, encoded):
            changed.append(path)
    if await _patch_api_service(api, encoded):
        changed.append(API_SERVICE)
    return changed


async def read_secret(api: Api, namespace: str, name: str) -> Secret:
    """Return a Secret. Raises ``webhook.errors.ApiError``."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    document = orjson.loads(await api.request("GET", path))
    data = {key: base64.b64decode(value) for key, value in (document.get("data") or {}).items()}
    return Secret(path, document["metadata"]["resourceVersion"], data)


async def write_secret(api: Api, secret: Secret, data: Mapping[str, bytes]) -> None:
    """Replace a Secret's data if it differs. Raises ``webhook.errors.Conflict`` when somebody wrote it meanwhile."""
    if dict(secret.data) == dict(data):
        return
    body = {
        "metadata": {"resourceVersion": secret.resource_version},
        "data": dict.fromkeys(secret.data.keys() - data.keys()) | _encoded(data),
    }
    await api.request("PATCH", secret.path, body=orjson.dumps(body), content_type=MERGE_PATCH)


def secret_manifest(namespace: str, material: Material) -> dict[str, Any]:
    """Return the Secret that the Deployments mount, for kubectl."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": LEAF_SECRET, "namespace": namespace},
        "type": "Opaque",
        "data": _encoded(material.files()),
    }


async def _patch_registration(api: Api, path: str, encoded: str) -> bool:
    try:
        document = orjson.loads(await api.request("GET", path))
    except NotFound:
        return False
    operations: list[dict[str, Any]] = []
    for index, entry in enumerate(document.get("webhooks") or []):
        if entry["clientConfig"].get("caBundle") != encoded:
            operations.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded})
    if not operations:
        return False
    version = document["metadata"]["resourceVersion"]
    operations.insert(0, {"op": "test", "path": "/metadata/resourceVersion", "value": version})
    await api.request("PATCH", path, body=orjson.dumps(operations), content_type=JSON_PATCH)
    return True


async def _patch_api_service(api: Api, encoded: str) -> bool:
    try:
        document = orjson.loads(await api.request("GET", API_SERVICE))
    except NotFound:
        return False
    if document["spec"].get("caBundle") == encoded:
        return False
    await api.request(
        "PATCH", API_SERVICE, body=orjson.dumps({"spec": {"caBundle": encoded}}), content_type=MERGE_PATCH
    )
    return True


def _material(authorities: Mapping[str, bytes], leaf: Mapping[str, bytes]) -> Material:
    if AUTHORITIES_FILE not in authorities:
        return Material()
    pairs = load_authorities(authorities[AUTHORITIES_FILE])
    if "tls.crt" not in leaf or "tls.key" not in leaf:
        return Material(pairs)
    return Material(pairs, load_pair(leaf["tls.crt"], leaf["tls.key"]))


def _encoded(data: Mapping[str, bytes]) -> dict[str, Any]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
