"""The serving certificate, followed as it is renewed on disk, without a restart and without a moment without one.

Each new pair is loaded into a fresh context, which new connections get through the SNI callback; connections that are
open keep theirs. Loading into the live context would serve the old pair after a change of key type, and a mismatched
pair would leave it broken. A pair that does not match, is not valid now, or was not issued by ``ca.crt`` never goes
live; what was served before stays. The kubelet swaps a mounted secret by moving the symlink ``..data``: it is resolved
once per look, so both files are of the same version.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from webhook import cipher_suites
from webhook.clock import Clock, SystemClock
from webhook.core.notation.moments import time_text
from webhook.errors import TuttiError
from webhook.server.review.metrics import CERTIFICATE_DUE, CERTIFICATE_EXPIRY

POLL_SECONDS: Final = 5.0
EXPIRY_WARNING_SECONDS: Final = 3600.0
"""A certificate that ends sooner was not renewed by whoever should have."""
DUE_SECONDS: Final = 14 * 86_400
"""A certificate that ends sooner should have been renewed by now."""
DUE_PART: Final = 1 / 6
"""So should one with less of its life left: it is renewed in the last third, and cert-manager may issue for a day."""
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"

log = structlog.get_logger(__name__)


class BadCertificate(TuttiError):
    """The files are no usable pair. The message says which file and why."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One version of the files, read together."""

    directory: Path
    certificate: bytes
    key: bytes
    authority: bytes | None


class ServingCertificate:
    """Follows ``tls.crt``, ``tls.key`` and ``ca.crt`` of a directory; ``context`` is given to the listener once."""

    def __init__(self, directory: Path, *, clock: Clock | None = None) -> None:
        """Load the first pair. Raises BadCertificate."""
        self._directory = directory
        self._clock = clock or SystemClock()
        self._listeners: list[Callable[[], None]] = []
        self._asked_authority: str | None = None
        self._pair = self._read()
        self._live, self._leaf = self._load(self._pair)
        self.context, _ = self._load(self._pair)
        self.context.sni_callback = self._choose
        CERTIFICATE_EXPIRY.set_function(self.certificate_expiry)
        CERTIFICATE_DUE.set_function(lambda: renewal_due(self._leaf))

    def certificate_expiry(self) -> float:
        """Return the Unix time at which the live certificate ends, for readiness and metrics."""
        return self._leaf.not_valid_after_utc.timestamp()

    @property
    def key(self) -> bytes:
        """The live private key, as in its file: what replicas of one Deployment share."""
        return self._pair.key

    def on_change(self, call: Callable[[], None]) -> None:
        """Call ``call`` after each change that went live."""
        self._listeners.append(call)

    def ask_clients(self, authority: str) -> None:
        """Ask callers for a certificate of ``authority`` (PEM), without insisting on one; holds for new connections.

        A caller whose certificate is not of this authority fails the handshake; one without is told apart by having no
        peer certificate. Raises ssl.SSLError for text that is no certificate.
        """
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authority)
        self._asked_authority = authority
        self._live, self._leaf = self._load(self._pair)
        # Choosing another context by name changes what a connection trusts, not whether it asks: that stays this one's.
        self.context.verify_mode = ssl.CERT_OPTIONAL

    def client_context(self) -> ssl.SSLContext:
        """Return a context that verifies our peers, which serve certificates of the same authority."""
        authority = self._pair.authority
        return cipher_suites.client_context(None if authority is None else authority.decode())

    async def run(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            self.refresh()

    def refresh(self) -> bool:
        """Take the files if they changed and are usable; return whether a new pair went live."""
        try:
            pair = self._read()
            if pair == self._pair:
                return False
            live, leaf = self._load(pair)
        except BadCertificate as error:
            log.warning("certificate.refused", error=str(error))
            return False
        self._pair, self._live, self._leaf = pair, live, leaf
        log.info("certificate.renewed", expires_seconds=self.certificate_expiry())
        for call in self._listeners:
            call()
        return True

    def _choose(self, connection: Any, _server_name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._live

    def _read(self) -> _Pair:
        data = self._directory / "..data"
        directory = data.resolve() if data.exists() else self._directory
        try:
            authority = directory / AUTHORITY
            return _Pair(
                directory=directory,
                certificate=(directory / CERTIFICATE).read_bytes(),
                key=(directory / KEY).read_bytes(),
                authority=authority.read_bytes() if authority.exists() else None,
            )
        except OSError as error:
            fix = "cert_dir is where tls.crt and tls.key are; certs/README.md says how they are made"
            raise BadCertificate(f"{error.filename}: {error.strerror}; {fix}") from error

    def _load(self, pair: _Pair) -> tuple[ssl.SSLContext, x509.Certificate]:
        leaf = _verify(pair, self._clock.now())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(cipher_suites.SUITES)
        context.set_alpn_protocols(["http/1.1"])
        context.num_tickets = 0
        try:
            context.load_cert_chain(pair.directory / CERTIFICATE, pair.directory / KEY)
            if self._asked_authority is not None:
                context.load_verify_locations(cadata=self._asked_authority)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (ssl.SSLError, OSError) as error:
            raise BadCertificate(f"{pair.directory}: {error}") from error
        return context, leaf


def certificate_problems(certificate: ServingCertificate, clock: Clock) -> list[str]:
    """Return that a certificate ends soon, if it does."""
    left = certificate.certificate_expiry() - clock.now()
    return [f"the serving certificate ends in {left:.0f} s"] if left < EXPIRY_WARNING_SECONDS else []


def renewal_due(certificate: x509.Certificate) -> float:
    """Return the Unix time by which a certificate should have been renewed: from then on people are told."""
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return end - min(DUE_SECONDS, DUE_PART * (end - begin))


def authority_in(path: Path) -> str:
    """Return the certificates (PEM) of a file that says who signs those of callers. Raises BadCertificate."""
    try:
        authority = path.read_text()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authority)
    except (OSError, ValueError) as error:
        fix = "reviewers.authority is a PEM file; docs/operating.md says how it is made and mounted"
        raise BadCertificate(f"{path}: {getattr(error, 'strerror', None) or error}; {fix}") from error
    return authority


def _verify(pair: _Pair, now_seconds: float) -> x509.Certificate:
    """Return the pair's leaf. Raises BadCertificate unless it is usable now."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        key = load_pem_private_key(pair.key, password=None)
        authorities = x509.load_pem_x509_certificates(pair.authority) if pair.authority else []
    except (ValueError, TypeError) as error:
        raise BadCertificate(f"{pair.directory}: not PEM as expected: {error}") from error
    leaf = chain[0]
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise BadCertificate(f"{pair.directory}: {KEY} is not the key of {CERTIFICATE}")
    starts, expires = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    if not starts <= now_seconds < expires:
        valid = f"{time_text(int(starts))} to {time_text(int(expires))}"
        raise BadCertificate(f"{pair.directory}: {CERTIFICATE} is valid from {valid} only")
    if authorities and not any(issued(chain[-1], authority) or chain[-1] == authority for authority in authorities):
        raise BadCertificate(f"{pair.directory}: {CERTIFICATE} was not issued by {AUTHORITY}")
    return leaf


def issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether ``authority`` itself signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
