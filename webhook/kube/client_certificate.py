"""The name in a caller's client certificate, which the TLS layer has verified."""

from collections.abc import Mapping
from typing import Any


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the common name of a verified peer certificate (as ``ssl`` describes one); None without a certificate."""
    if not certificate:
        return None
    for relative_name in certificate.get("subject", ()):
        for key, value in relative_name:
            if key == "commonName":
                return str(value)
    return ""
