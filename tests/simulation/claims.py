"""Claims: room that is being made for a gang, for which others are being stopped."""

from typing import Final

from webhook.core.ledger.record import Ledger
from webhook.core.pod_group.ensemble import uid_of

LATE_WRITES: Final = 20
"""So often the ledger may be written before a gang takes what was made for it: a cycle may be over before it is its
turn, and the next one goes on there.
"""


class Claims:
    """Those of one ledger, write by write."""

    def __init__(self) -> None:
        self._idle: dict[str, tuple[int, int]] = {}
        """Who still claims room although nobody is being stopped any more, and since which version of the ledger."""

    def wrong_in(self, ledger: Ledger) -> str:
        """Return which claim should not be in a ledger as it was just written; empty where all may."""
        stopping = {
            entry.uid if entry.membership is None else uid_of((entry.namespace, entry.membership.ensemble))
            for entry in ledger.entries.values()
            if entry.stopping is not None
        }
        idle = [uid for uid, claim in ledger.claims.items() if stopping.isdisjoint(claim.awaits)]
        # A new leader begins to decide, and its turns are counted from then.
        known = {uid: since for uid, since in self._idle.items() if since[0] == ledger.epoch}
        self._idle = {uid: known.get(uid, ledger.version) for uid in idle}
        for uid, claim in ledger.claims.items():
            if uid in ledger.entries:
                return f"{claim.planned} claims room and holds some"
            _, since = self._idle.get(uid, ledger.version)
            if ledger.seq - since > LATE_WRITES:
                return f"{claim.planned} claims room that nobody makes: it awaits {claim.awaits} of {stopping}"
        return ""
