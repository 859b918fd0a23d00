"""Which replica answers for a namespace's pods: rendezvous hashing over the live replicas.

Two tallies must not each grant the same headroom, so the pod reviews of a namespace are decided by one replica and the
others pass them on, one hop. When the set of live replicas changes, the new owner of a namespace does not know what the
old one granted within the last watch delay; it therefore lets one such delay pass (``settle_seconds``) before it
decides for that namespace. What can still slip is what two replicas grant while they disagree about who is live: no
longer than one round of the liveness check, and no more than was free at its start, once per disagreeing replica.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SETTLE_SECONDS: Final = 0.5
"""A generous watch delay."""


@lru_cache(maxsize=8_192)
def _weight(peer: str, namespace: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{peer}\0{namespace}".encode(), digest_size=8).digest(), "big")


def owner_of(namespace: str, peers: Iterable[str]) -> str:
    """Return the peer that owns ``namespace``; the departure of another peer never changes the answer."""
    return max(peers, key=lambda peer: (_weight(peer, namespace), peer))


class Ownership:
    """The live replicas as this one sees them, and whose each namespace was a moment ago. Times are monotonic."""

    def __init__(self, me: str, settle_seconds: float = SETTLE_SECONDS, started_seconds: float = float("-inf")) -> None:
        self.me = me
        self._settle_seconds = settle_seconds
        self._live: frozenset[str] = frozenset({me})
        self._before: list[tuple[float, frozenset[str]]] = [(started_seconds, frozenset())]
        """Earlier sets of live replicas, each with the time at which it ended; empty when nobody knows."""

    @property
    def live(self) -> frozenset[str]:
        """Names of the live replicas, this one included."""
        return self._live

    def set_live(self, peers: Iterable[str], now_seconds: float) -> None:
        """Take the names of the live peers; this replica always counts itself."""
        live = frozenset(peers) | {self.me}
        if live != self._live:
            recent = [old for old in self._before if old[0] + self._settle_seconds > now_seconds]
            self._before = [*recent, (now_seconds, self._live)]
            self._live = live

    def owner(self, namespace: str) -> str:
        """Return the replica that answers for ``namespace`` now."""
        return owner_of(namespace, self._live) if len(self._live) > 1 else self.me

    def unsettled_seconds(self, namespace: str, now_seconds: float) -> float:
        """Return how long to wait before deciding for a namespace that another replica may have owned; 0 for none."""
        waits = [
            ended + self._settle_seconds - now_seconds
            for ended, live in self._before
            if ended + self._settle_seconds > now_seconds and (not live or owner_of(namespace, live) != self.me)
        ]
        return max(waits, default=0.0)
