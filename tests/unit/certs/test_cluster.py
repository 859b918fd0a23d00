"""Certificates in a cluster: what is written where, in which order, and what an interruption leaves."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import jsonpatch
import pytest

from certs import cluster
from certs.authority import DAY_SECONDS, load_pair, service_names
from certs.rotation import Material, Terms, advance, load_authorities
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.kube.api import JSON, JSON_PATCH, MERGE_PATCH

NOW = 1_800_000_000.0
TERMS = Terms(names=service_names("tutti-system"))
AUTHORITY = "/api/v1/namespaces/tutti-system/secrets/tutti-ca"
LEAF = "/api/v1/namespaces/tutti-system/secrets/tutti-certs"


class Objects:
    """An API server that knows a few objects, patches, and resourceVersions; and can fail at the nth write."""

    def __init__(self, objects: Mapping[str, dict[str, Any]]) -> None:
        self.objects = {path: {"metadata": {"resourceVersion": "1"}, **found} for path, found in objects.items()}
        self.writes: list[str] = []
        self.fail_at_write = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = 10,
    ) -> bytes:
        """Answer GET and PATCH."""
        if path not in self.objects:
            raise NotFound(404, "NotFound", path)
        if method == "PATCH":
            self._patch(path, json.loads(body or b""), content_type)
        return json.dumps(self.objects[path]).encode()

    def _patch(self, path: str, change: Any, content_type: str) -> None:
        if len(self.writes) + 1 == self.fail_at_write:
            raise Unavailable(0, "Reset", "connection reset", outcome_unknown=True)
        stored = self.objects[path]
        version = stored["metadata"]["resourceVersion"]
        if content_type == JSON_PATCH:
            try:
                stored = jsonpatch.apply_patch(stored, change)
            except jsonpatch.JsonPatchTestFailed as error:
                raise Conflict(409, "Conflict", str(error)) from error
        else:
            assert content_type == MERGE_PATCH
            if change.get("metadata", {}).get("resourceVersion", version) != version:
                raise Conflict(409, "Conflict", path)
            stored = merged(stored, change)
        stored["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.objects[path] = stored
        self.writes.append(path)

    def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncIterator[bytes]:
        """Nobody watches here."""
        raise AssertionError("certificates are issued without watching anything")

    async def close(self) -> None:
        """Nothing to release."""

    def secret(self, path: str) -> dict[str, bytes]:
        """Return a Secret's content."""
        return {name: base64.b64decode(value) for name, value in self.objects[path].get("data", {}).items()}


def merged(target: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def installed() -> Objects:
    """A cluster just after ``kubectl apply``: empty Secrets, registrations that trust nobody."""
    registration = {"webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {}}]}
    return Objects(
        {
            AUTHORITY: {},
            LEAF: {},
            cluster.REGISTRATIONS[0]: registration,
            cluster.REGISTRATIONS[1]: registration,
            cluster.API_SERVICE: {"spec": {"group": "visibility.tutti.dev"}},
        }
    )


def trusted(api: Objects) -> set[str]:
    """Return the bundles the API server trusts us by."""
    bundles = [
        entry["clientConfig"]["caBundle"] for path in cluster.REGISTRATIONS for entry in api.objects[path]["webhooks"]
    ]
    return {*bundles, api.objects[cluster.API_SERVICE]["spec"]["caBundle"]}


async def test_the_first_run_fills_secrets_and_registrations() -> None:
    api = installed()
    material = await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert api.secret(LEAF) == material.files()
    assert (
        load_authorities(api.secret(AUTHORITY)["authorities.pem"])[0].certificate == material.authorities[0].certificate
    )
    assert trusted(api) == {base64.b64encode(material.bundle_pem).decode()}
    assert api.objects[cluster.API_SERVICE]["spec"]["group"] == "visibility.tutti.dev"


async def test_the_authorities_key_is_never_in_what_pods_mount() -> None:
    api = installed()
    material = await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert set(api.secret(LEAF)) == {"ca.crt", "tls.crt", "tls.key"}
    assert material.authorities[0].key_pem not in b"".join(api.secret(LEAF).values())


async def test_a_second_run_writes_nothing() -> None:
    api = installed()
    await cluster.rotate(api, "tutti-system", TERMS, NOW)
    api.writes.clear()
    await cluster.rotate(api, "tutti-system", TERMS, NOW + DAY_SECONDS)
    assert api.writes == []


async def test_an_authority_is_kept_then_trusted_and_only_then_does_it_sign() -> None:
    api = installed()
    await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert api.writes == [AUTHORITY, *cluster.REGISTRATIONS, cluster.API_SERVICE, LEAF]


@pytest.mark.parametrize("write", range(1, 6))
async def test_a_run_that_ends_at_any_write_is_completed_by_the_next(write: int) -> None:
    api = installed()
    await cluster.rotate(api, "tutti-system", TERMS, NOW)
    api.writes.clear()
    api.fail_at_write = write
    with pytest.raises(ApiError):
        await cluster.rotate(api, "tutti-system", TERMS, NOW, new_authority=True)
    serving = load_pair(api.secret(LEAF)["tls.crt"], api.secret(LEAF)["tls.key"])
    for bundle in trusted(api):
        known = base64.b64decode(bundle)
        assert any(serving.signed_by(pair) for pair in load_authorities(api.secret(AUTHORITY)["authorities.pem"]))
        assert b"BEGIN CERTIFICATE" in known
    api.fail_at_write = 0
    material = await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert trusted(api) == {base64.b64encode(material.bundle_pem).decode()}
    assert api.secret(LEAF) == material.files()


async def test_a_secret_written_by_somebody_else_meanwhile_is_not_overwritten() -> None:
    api = installed()
    secret = await cluster.read_secret(api, "tutti-system", "tutti-ca")
    await cluster.write_secret(api, secret, {"authorities.pem": b"theirs"})
    with pytest.raises(Conflict):
        await cluster.write_secret(api, secret, {"authorities.pem": b"ours"})
    assert api.secret(AUTHORITY) == {"authorities.pem": b"theirs"}


async def test_files_that_do_not_belong_into_a_secret_are_taken_out() -> None:
    api = installed()
    api.objects[LEAF]["data"] = {"old.pem": base64.b64encode(b"old").decode()}
    await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert set(api.secret(LEAF)) == {"ca.crt", "tls.crt", "tls.key"}


async def test_registrations_that_are_not_there_yet_are_left_out() -> None:
    api = installed()
    del api.objects[cluster.REGISTRATIONS[1]], api.objects[cluster.API_SERVICE]
    material = advance(Material(), TERMS, NOW)
    assert await cluster.patch_bundle(api, material.bundle_pem) == [cluster.REGISTRATIONS[0]]
    assert await cluster.patch_bundle(api, material.bundle_pem) == []


async def test_a_missing_secret_is_said_not_created() -> None:
    api = installed()
    del api.objects[AUTHORITY]
    with pytest.raises(NotFound):
        await cluster.rotate(api, "tutti-system", TERMS, NOW)
    assert api.writes == []


def test_the_manifest_of_the_secret_holds_what_pods_mount() -> None:
    material = advance(Material(), TERMS, NOW)
    manifest = cluster.secret_manifest("tutti-system", material)
    assert {name: base64.b64decode(value) for name, value in manifest["data"].items()} == material.files()
