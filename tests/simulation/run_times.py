"""How long gangs with a run-time limit have really run when they are stopped for it, whatever leaders' clocks said."""

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.invariants import Invariants
from tests.simulation.shapes import STORAGES
from webhook.clock import LoopClock
from webhook.core.notation import names
from webhook.core.reasons.eviction import LIMIT_REACHED
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.store import Event

MAY_DIFFER_SECONDS: Final = 5.0
"""Two leaders' clocks, each of which agrees with the API server's within two seconds."""


class RunTimes:
    """Checks each stop for a limit of one world."""

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, fail: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._invariants = invariants
        self._fail = fail
        self._began: dict[str, float] = {}
        """Uid of a gang that holds something to when it came to."""
        self._ran: dict[str, float] = {}
        """Uid to the seconds of its earlier runs."""
        self.stopped: set[str] = set()
        """Uids of those that were stopped for their limit."""

    def watch(self) -> None:
        """Look after every write from now on."""
        self._cluster.server.store.subscribe(self._stored)

    def _stored(self, event: Event) -> None:
        if event.current.object["kind"] != "ConfigMap":
            return
        now, entries = LoopClock().now(), self._invariants.ledger.entries
        for uid in [uid for uid in self._began if uid not in entries]:
            self._ran[uid] = self._ran.get(uid, 0.0) + now - self._began.pop(uid)
        for uid, entry in entries.items():
            ran = self._ran.get(uid, 0.0) + now - self._began.setdefault(uid, now)
            if entry.stopping != LIMIT_REACHED or uid in self.stopped:
                continue
            self.stopped.add(uid)
            limit = self._limit_of(uid)
            if limit is not None and ran < limit - MAY_DIFFER_SECONDS:
                self._fail(f"{entry} was stopped for its limit of {limit} s after {ran:.0f} s")

    def _limit_of(self, uid: str) -> int | None:
        for storage in STORAGES.values():
            for stored in self._cluster.server.store.items(storage):
                if stored.uid == uid:
                    labels: dict[str, Any] = stored.object["metadata"].get("labels") or {}
                    return int(labels.get(names.MAX_EXECUTION_LABEL) or 0)
        return None
