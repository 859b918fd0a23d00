"""Whether a member's Tutti leads, by the lease in its ledger: an API server answers as well where no Tutti runs. Pure.

A lease is judged by how long this process has read it unchanged, never by the times written in it, as by who waits to
take it over.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.notation import names
from webhook.core.notation.shortened import shortened
from webhook.kube import election
from webhook.untyped import paths
from webhook.untyped.values import text

LATE_SECONDS: Final = 15.0
"""So much longer than a lease lasts nobody has taken it over: a change of leaders takes less."""
TIME_CHARACTERS: Final = 40
_FIX: Final = "see that tutti-reconciler runs there"


class Leader:
    """What one hub process has read of it, in one member."""

    def __init__(self) -> None:
        self._lease = ""
        self._since = 0.0
        """Loop time at which that lease was read first."""

    def why_none(self, index: Mapping[str, Any] | None, now: float) -> str:
        """Take in the index of the ledger as it is now; return in words that nobody leads there, if so.

        They follow the member's name, and say what to do. Of an index without a lease nothing is known.
        """
        if index is None:
            return f"has no Tutti that leads: there is no ledger; {_FIX}"
        lease = text(paths.find(index, ("metadata", "annotations", names.LEASE_ANNOTATION)))
        if lease != self._lease:
            self._lease, self._since = lease, now
        record = election.parse(lease)
        if record is None or now - self._since < record.lease_seconds + LATE_SECONDS:
            return ""
        return f"has had no Tutti that leads since {shortened(record.renewed, TIME_CHARACTERS)}; {_FIX}"
