"""A member's certificate that cannot be read keeps no other member's credentials from being told of."""

import asyncio
import base64
import datetime
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.fleet.credentials.test_expiry import token
from tests.unit.fleet.test_roster import kubeconfig, world
from webhook.fleet.credentials.connection import reached
from webhook.fleet.credentials.kubeconfig import read

pytestmark = pytest.mark.virtual_time


def pair(version: int) -> dict[str, str]:
    """Return a client certificate that says it is of this version, and its key; OpenSSL takes it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    began = datetime.datetime(2026, 1, 1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 5, began, began + datetime.timedelta(days=900))
    written = bytearray(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER))
    written[bytes(written).index(bytes.fromhex("a003020102")) + 4] = version - 1
    text = base64.encodebytes(bytes(written)).decode()
    certificate = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n".encode()
    how = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret = key.private_bytes(*how)
    return {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(secret).decode(),
    }


@pytest.mark.parametrize("version", [3, 2])
async def test_another_member_is_told_of(tmp_path: Path, version: int) -> None:
    (tmp_path / "a").write_text(first := kubeconfig("a", **pair(version)))
    await reached(replace(read(first, "member a"), authority="")).close()
    (tmp_path / "b").write_text(kubeconfig("b-" + token(iat=0, exp=10)))
    async with world(tmp_path, "a", "b") as it:
        await asyncio.sleep(60)
        listed = await it.whole.hub.admin.request("GET", "/api/v1/namespaces/tutti-system/events")
        told = [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "CredentialsExpire"]
        assert any("member b " in each for each in told), told
