"""Only a replica may pass a review on, and it proves that it is one by a code made with the key that all serve with.

The serving key is the one secret that replicas share and nobody else has. A code covers path and body, so what passed
once is worth nothing for another review. Replicas see a renewed key at different moments: codes are made and taken with
the key before it too.
"""

import hmac
from typing import Final

HOP_HEADER: Final = "Tutti-Hop"
_PURPOSE: Final = b"tutti hop 1"
_KEYS_KEPT: Final = 2


class HopKeys:
    """Makes codes and checks them. Without a key none is right."""

    def __init__(self, *secrets: bytes) -> None:
        """``secrets``: the newest last."""
        self._keys: list[bytes] = []
        for secret in secrets:
            self.renew(secret)

    def renew(self, secret: bytes) -> None:
        """Take a new secret; the one before it stays good until the next."""
        key = hmac.digest(secret, _PURPOSE, "sha256")
        if key not in self._keys:
            self._keys = [*self._keys, key][-_KEYS_KEPT:]

    def header(self, path: str, body: bytes) -> str:
        """Return the value of the hop's header for one review."""
        return ",".join(_code(key, path, body) for key in self._keys)

    def verify(self, header: str, path: str, body: bytes) -> bool:
        """Return whether ``header`` was made for this review by somebody who has one of the keys."""
        shown = [code.encode("ascii", "replace") for code in header.split(",")[:_KEYS_KEPT]]
        mine = [_code(key, path, body).encode() for key in self._keys]
        return any(hmac.compare_digest(code, known) for code in shown for known in mine)


def _code(key: bytes, path: str, body: bytes) -> str:
    return hmac.digest(key, path.encode() + b"\0" + body, "sha256").hex()
