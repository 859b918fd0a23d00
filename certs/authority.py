"""A private certificate authority and the leaves it signs: ECDSA P-256, with what strict verifiers ask for.

RFC 5280 as OpenSSL's VERIFY_X509_STRICT reads it: subject and authority key identifiers, a critical basicConstraints
and keyUsage on authorities. A key is never used for both: authorities sign, leaves serve.
"""

import ipaddress
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.dialects.field import is_subdomain

DAY_SECONDS: Final = 86_400
AUTHORITY_SECONDS: Final = 3650 * DAY_SECONDS
LEAF_SECONDS: Final = 90 * DAY_SECONDS
SKEW_SECONDS: Final = 300
"""Certificates begin this long in the past, for peers whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def issued_seconds(self) -> float:
        """Unix time at which it was made."""
        return self.begins_seconds + SKEW_SECONDS

    @property
    def begins_seconds(self) -> float:
        """Unix time before which nobody accepts it."""
        return self.certificate.not_valid_before_utc.timestamp()

    @property
    def ends_seconds(self) -> float:
        """Unix time after which nobody accepts it."""
        return self.certificate.not_valid_after_utc.timestamp()

    @property
    def names(self) -> tuple[str, ...]:
        """Host names and addresses it is for, in order."""
        try:
            extension = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return ()
        return tuple(str(name.value) for name in extension.value)

    def signed_by(self, authority: "Pair") -> bool:
        """Return whether ``authority`` signed this certificate."""
        try:
            self.certificate.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True


def load_pair(certificate_pem: bytes, key_pem: bytes) -> Pair:
    """Return the pair of two PEM texts. Raises ValueError when they are unreadable or do not belong together."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    key = load_pem_private_key(key_pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the private key is not an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise ValueError("certificate and private key do not belong together")
    return Pair(certificate, key)


def new_authority(now_seconds: float, lifetime_seconds: float = AUTHORITY_SECONDS) -> Pair:
    """Return a new self-signed authority. Its name carries a part of its key's hash."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tutti-ca-{identifier[:12]}")])
    builder = _builder(name, name, key, now_seconds=now_seconds, ends_seconds=now_seconds + lifetime_seconds)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(_authority_identifier(key.public_key()), critical=False)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(authority: Pair, names: Sequence[str], now_seconds: float, lifetime_seconds: float = LEAF_SECONDS) -> Pair:
    """Return a new server certificate for ``names`` (host names or addresses), which never outlives its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name holds 64 characters and says nothing to verifiers, which read the alternative names.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    ends_seconds = min(now_seconds + lifetime_seconds, authority.ends_seconds)
    issuer = authority.certificate.subject
    builder = _builder(subject, issuer, key, now_seconds=now_seconds, ends_seconds=ends_seconds)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(_authority_identifier(authority.key.public_key()), critical=False)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = builder.add_extension(alternatives, critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def service_names(namespace: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what Tutti's leaf is for: both Services of ``namespace``, and ``extra`` host names or addresses."""
    services = [f"{service}.{namespace}.svc" for service in ("tutti-webhook", "tutti-visibility")]
    return (*services, *(f"{service}.cluster.local" for service in services), *extra)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now_seconds: float, ends_seconds: float
) -> x509.CertificateBuilder:
    # Certificates hold whole seconds; rounded up, none ever looks older than it is.
    begins = datetime.fromtimestamp(math.ceil(now_seconds), UTC) - timedelta(seconds=SKEW_SECONDS)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(datetime.fromtimestamp(ends_seconds, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_identifier(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not is_subdomain(name.lower().removeprefix("*.")):
            why = "is neither a host name nor an address"
            raise ValueError(f"--name: {name!r}: {why}; write gpu.example.com or 192.0.2.1") from None
        return x509.DNSName(name)
