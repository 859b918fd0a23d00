"""Which replica answers for a namespace's pods: rendezvous hashing over the live replicas.

Two tallies must not each grant the same headroom, so the pod reviews of a namespace are decided by one replica and the
others pass them on, one hop. When the set of live replicas changes, the new owner of a namespace does not know what the
old one granted within the last watch delay; it therefore lets one such delay pass (``settle_seconds``) before it
decides for that namespace. A replica that joins owns nothing until the others pass reviews to it, and its delay runs
from then: until then they decide what it would decide too. What can still slip is what two replicas grant while they
disagree about who is live: no longer than one round of the liveness check, and no more than was free at its start, once
per disagreeing replica.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SETTLE_SECONDS: Final = 0.5
"""A generous watch delay."""
JOINING_SECONDS: Final = 2.5
"""So long after a replica has seen itself among the peers, the others have seen it too and found it alive."""


@lru_cache(maxsize=8_192)
def weight(peer: str, namespace: str) -> int:
    """Return how much a peer is drawn to a namespace: the one with most owns it."""
    return int.from_bytes(hashlib.blake2b(f"{peer}\0{namespace}".encode(), digest_size=8).digest(), "big")


def owner_of(namespace: str, peers: Iterable[str]) -> str:
    """Return the peer that owns ``namespace``; the departure of another peer never changes the answer."""
    return max(peers, key=lambda peer: (weight(peer, namespace), peer))


class Ownership:
    """The live replicas as this one sees them, and whose each namespace was a moment ago. Times are monotonic."""

    def __init__(
        self,
        me: str,
        settle_seconds: float = SETTLE_SECONDS,
        started_seconds: float = float("-inf"),
        *,
        joining: bool = False,
    ) -> None:
        """``joining``: the others do not know of this replica yet."""
        self.me = me
        self._settle_seconds = settle_seconds
        self._others: frozenset[str] = frozenset()
        self._joining = joining
        self._listed_seconds: float | None = None
        self._owners: frozenset[str] = frozenset({me})
        self._before: list[tuple[float, frozenset[str]]] = [(started_seconds, frozenset())]
        """Earlier sets of owners, each with the time at which it ended; empty when nobody knows."""

    @property
    def live(self) -> frozenset[str]:
        """Names of the live replicas, this one included."""
        return self._others | {self.me}

    def set_live(self, peers: Iterable[str], now_seconds: float) -> None:
        """Take the names of the live peers; this replica always counts itself."""
        self._others = frozenset(peers) - {self.me}
        self._assign(now_seconds)

    def listed(self, now_seconds: float) -> None:
        """Note that this replica is among the peers that all read; a while later the others pass reviews to it."""
        if self._joining:
            self._listed_seconds = now_seconds if self._listed_seconds is None else self._listed_seconds
            if now_seconds - self._listed_seconds >= JOINING_SECONDS:
                self.join(now_seconds)

    def join(self, now_seconds: float) -> None:
        """Note that others pass reviews to this replica."""
        if self._joining:
            self._joining = False
            self._assign(now_seconds)

    def _assign(self, now_seconds: float) -> None:
        owners = self._others if self._joining and self._others else self.live
        if owners != self._owners:
            recent = [old for old in self._before if old[0] + self._settle_seconds > now_seconds]
            self._before = [*recent, (now_seconds, self._owners)]
            self._owners = owners

    def owner(self, namespace: str) -> str:
        """Return the replica that answers for ``namespace`` now."""
        return owner_of(namespace, self._owners) if len(self._owners) > 1 else next(iter(self._owners))

    def unsettled_seconds(self, namespace: str, now_seconds: float) -> float:
        """Return how long to wait before deciding for a namespace that another replica may have owned; 0 for none."""
        waits = [
            ended + self._settle_seconds - now_seconds
            for ended, owners in self._before
            if ended + self._settle_seconds > now_seconds and (not owners or owner_of(namespace, owners) != self.me)
        ]
        return max(waits, default=0.0)
