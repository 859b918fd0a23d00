"""Which cipher suites of TLS 1.2 Tutti offers and accepts: those that authenticate all that they encrypt.

Python's own choice has others as well (CBC). TLS 1.3 has none of those.
"""

import ssl
from typing import Final

SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


def client_context(authority: str | None = None, *, file: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies a server by the authorities in a PEM text or file, by the system's without either.

    Raises ssl.SSLError or OSError where these cannot be read.
    """
    context = ssl.create_default_context(cafile=file, cadata=authority)
    context.set_ciphers(SUITES)
    return context
