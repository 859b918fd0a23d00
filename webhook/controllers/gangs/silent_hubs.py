"""The dead-man switch of a member of a fleet: what a hub has permitted is stopped when the hub is silent for too long.

A hub renews a Lease in each of its members. The leader here reads these Leases, and says on each which renewal it has
seen last, when by its own clock, how long a silence it allows, and how long that has lasted. So it goes on counting
when another process leads, also one whose clock differs. A hub without a Lease is not judged. What is stopped never
starts again (``tutti.dev/given-up``), because its hub may have started it elsewhere by then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
import structlog

from webhook.cluster.view import View
from webhook.controllers.gangs.stops import Stops
from webhook.controllers.writes.batch import Batch
from webhook.controllers.writes.effects import Effect, Effects
from webhook.core.fleet.silence import Heard
from webhook.core.notation import names
from webhook.core.reasons.eviction import HUB_SILENT
from webhook.errors import ApiError
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.patches import job as patches
from webhook.jobs.reading.record import JobRecord, Requeue
from webhook.kube.api import JSON_PATCH, Api
from webhook.untyped import paths
from webhook.untyped.values import text

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 3.0
COUNTED_SECONDS: Final = 10
"""The silence that is said on a Lease is a multiple of this: two renewals are missed by then."""
OWN_SECONDS: Final = 6.0
"""A leader waits so long itself, more than from one renewal to the next, before it goes by what an earlier one's clock
said: that may have been behind."""
VOID: Final = "give up"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases"


@dataclass
class Hubs:
    """What one leader knows of the hubs whose jobs run here."""

    api: Api
    view: View
    patience_seconds: float | None
    """None: nothing is asked, and nothing stopped."""

    def __post_init__(self) -> None:
        self._heard: dict[str, Heard] = {}
        """By the uid of the hub's kube-system."""
        self._waited_since: dict[str, float] = {}
        """Since when this leader has known the last renewal."""
        self.silent: frozenset[str] = frozenset()
        """Hubs from which nothing was heard for too long, as of the last look."""
        self._due: frozenset[str] = frozenset()
        """Uids of what they had permitted before that look: what they permit as soon as they are back is not stopped
        for the silence before."""
        self._next_look = 0.0
        if self.patience_seconds is not None:
            log.warning(
                "hub.dead_man",
                stops_after_seconds=self.patience_seconds,
                rests_on="gangs of a silent hub are stopped while this Tutti and its API server run; see docs/fleet.md",
            )

    async def look(self, now: float) -> None:
        """Read the Leases, if it is time. What fails is read at the next look."""
        if self.patience_seconds is None or now < self._next_look:
            return
        self._next_look, permitted = now + LOOK_SECONDS, frozenset(job.uid for job in self._permitted())
        try:
            listed = orjson.loads(await self.api.request("GET", LEASES))
            for lease in listed["items"]:
                await self._take(lease, now)
        except ApiError as error:
            log.warning("hubs.not_read", error=str(error))
            return
        silent = {hub for hub in self._heard if self._silent_seconds(hub, now) >= self.patience_seconds}
        for hub in silent - self.silent:
            log.error("hub.silent", hub=hub, seconds=round(now - self._heard[hub].at_seconds))
            self._next_look = now
        self.silent, self._due = frozenset(silent), permitted

    async def _take(self, lease: object, now: float) -> None:
        name = text(paths.find(lease, ("metadata", "name")))
        hub, renewal = name.removeprefix(names.HUB_LEASE), text(paths.find(lease, ("spec", "renewTime")))
        if hub == name or not renewal or self.patience_seconds is None:
            return
        noted = Heard.read(paths.find_mapping(lease, ("metadata", "annotations")).get(names.HEARD))
        known, patience = self._heard.get(hub), int(self.patience_seconds)
        if known is None and noted is not None:
            # A clock of another leader that was ahead must not make a silence shorter than it was counted.
            known = noted._replace(at_seconds=min(now - noted.silent_seconds, noted.at_seconds))
        if known is None or known.renewal != renewal:
            known = Heard(renewal, now, patience)
        if hub not in self._heard or self._heard[hub].renewal != renewal:
            self._waited_since[hub] = now
        self._heard[hub] = known
        counted = int(min(self._silent_seconds(hub, now), patience)) // COUNTED_SECONDS * COUNTED_SECONDS
        heard = known._replace(stops_after_seconds=patience, silent_seconds=counted)
        if heard != noted:
            patch = [
                {"op": "replace", "path": "/metadata/resourceVersion", "value": lease["metadata"]["resourceVersion"]},  # type: ignore[index]
                {"op": "add", "path": "/metadata/annotations", "value": {names.HEARD: str(heard)}},
            ]
            await self.api.request("PATCH", f"{LEASES}/{name}", body=orjson.dumps(patch), content_type=JSON_PATCH)

    def _silent_seconds(self, hub: str, now: float) -> float:
        """Return how long a hub is silent; by the clock of an earlier leader only after a wait for a renewal."""
        heard, own = self._heard[hub], now - self._waited_since[hub]
        return now - heard.at_seconds if own >= OWN_SECONDS else heard.silent_seconds + own

    def stop(self, stops: Stops, effects: Effects, kinds: Mapping[str, JobKind], batch: Batch, now: float) -> None:
        """Stop what silent hubs have permitted: what runs, and what only may."""
        for job in self._permitted():
            if job.uid not in self._due:
                continue
            reservation = batch.put.get(job.uid) or self.view.ledger.entries.get(job.uid)
            message = f"nothing was heard from its hub for {now - self._heard[job.hub].at_seconds:.0f} s"
            requeue = Requeue(HUB_SILENT, job.place_seconds, message=message)
            if reservation is not None:
                if reservation.stopping is None and job.uid not in batch.drop:
                    stops.one(reservation, HUB_SILENT, batch, requeue)
            elif job.suspended and not effects.busy(job.uid) and not batch.has(job.uid):
                batch.effects[job.uid] = Effect(VOID, job, patches.stop(job, requeue, kinds=kinds))

    def _permitted(self) -> Iterator[JobRecord]:
        for job in self.view.jobs.values() if self.silent else ():
            if job.hub in self.silent and job.finished is None and not (job.suspended and job.awaits_permit):
                yield job
