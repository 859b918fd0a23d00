"""Until when a member's credentials are valid, as they themselves say, and when somebody has to be told. Pure."""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import orjson
from cryptography import x509

from webhook.fleet.credentials.kubeconfig import Account

EARLY_SECONDS: Final = 7 * 24 * 3600.0
"""So long before the end it is told, or when two thirds of the time are over, whichever is later."""
LATEST: Final = 253_402_300_800.0
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Unix times."""

    since: float
    until: float

    @property
    def renew_from(self) -> float:
        """When it is time for new ones."""
        return self.until - min(EARLY_SECONDS, (self.until - self.since) / 3)


def validity(account: Account) -> Validity | None:
    """Return until when its token and certificate are good, whichever ends first; None where neither says so."""
    found = [each for each in (_of_token(account.token), _of_certificate(account.certificate)) if each is not None]
    return min(found, key=lambda each: each.until, default=None)


def _of_token(token: str) -> Validity | None:
    """Return what a JSON Web Token says. Who signed it is for the member to judge."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    until, since = (_moment(claims.get(key)) if isinstance(claims, dict) else None for key in ("exp", "iat"))
    if until is None:
        return None
    return Validity(until - EARLY_SECONDS * 3 if since is None else since, until)


def _moment(claim: object) -> float | None:
    """Return a time that a token names; None for what no calendar has."""
    return float(claim) if isinstance(claim, int | float) and 0 <= claim < LATEST else None


def _of_certificate(pem: str) -> Validity | None:
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        return Validity(certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())
    except (ValueError, x509.InvalidVersion):
        # OpenSSL takes more than can be read here.
        return None
