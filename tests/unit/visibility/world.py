"""A view with gangs, an engine over it and the read API on top: what a reconciler holds, without a cluster."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.core.worlds import cohort, gang, group, policy, queue
from tests.unit.jobs.records import waiting_job
from webhook.cluster.queue_counts import QueueCounts
from webhook.cluster.view import View
from webhook.config import Start
from webhook.core.ledger.record import Reservation, reserve
from webhook.core.model.policy import LocalQueue, Policy
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.reasons.reasons import Reason
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.reading.record import JobRecord
from webhook.visibility.documents.milestones import Chronicle
from webhook.visibility.documents.queue_writer import QueueWriter
from webhook.visibility.documents.reporter import Reporter
from webhook.visibility.documents.watch_cache import WatchCache
from webhook.visibility.documents.workload_writer import WorkloadWriter

NOW = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""
CPU = group(default={"cpu": (4, 4)})


def two_queues() -> Policy:
    """Queues ``vision`` and ``speech`` of 4 cpu each in one cohort, reached by local queues ``jobs``."""
    return policy(
        cohort("research"),
        *(queue(name, None, CPU, cohort="research", dialect="kueue") for name in ("vision", "speech")),
        local_queues={
            (f"team-{name}", "jobs"): LocalQueue(f"team-{name}", "jobs", name) for name in ("vision", "speech")
        },
    )


class World:
    """One replica's memory and its read API."""

    def __init__(self, rules: Policy | None = None, replica: int = 0) -> None:
        self.now = NOW
        self.settle_seconds = 2.0
        """Longer than anything that was read before is shown again."""
        self.view = View(policy=rules or two_queues())
        self.engine = EnsembleEngine()
        self.engine.set_policy(self.view.policy, {}, self.now)
        self.withheld: dict[str, Reason] = {}
        self.objects: list[Mapping[str, Any]] = []
        self.cache = WatchCache(lambda: self.now, replica)
        self.queue_counts = QueueCounts(self.view)
        chronicle = Chronicle(self.view, lambda: self.now)
        self.reporter = Reporter(
            WorkloadWriter(self.cache, self.view, self.engine, KINDS, chronicle, self.reason, Start()),
            QueueWriter(self.cache, self.view, self.queue_counts, lambda: self.objects),
        )

    def reason(self, uid: str) -> Reason | None:
        """Why a gang waits, as the reconciler answers."""
        return self.withheld.get(uid) or self.engine.reason(uid)

    def waits(self, name: str, cpu: int = 1, pods: int = 2, team: str = "vision", **facts: Any) -> JobRecord:
        """Let a gang of a team wait."""
        settings = {key: facts.pop(key) for key in ("priority", "created", "labels", "quorum") if key in facts}
        asked = gang(name, "jobs", cpu, pods, namespace=f"team-{team}", **{"created": self.now, **settings})
        job = waiting_job(asked, **facts)
        self.view.put_job(job)
        self.engine.submit(asked, self.now)
        return job

    def admits(self, job: JobRecord) -> Reservation:
        """Admit a gang to its team's queue."""
        assert job.gang is not None
        name = self.view.policy.queue_of(job.namespace, job.queue_label)
        self.engine.withdraw(job.uid)
        reservation = reserve(job.gang, name, job.gang.counts, {"main": {"cpu": "default"}}, 1, self.now)
        self._put(reservation)
        self.view.put_job(replace(job, suspended=False, resource_version=job.resource_version + 1))
        return reservation

    def stops(self, reservation: Reservation, why: str) -> None:
        """Mark an admitted gang as being stopped."""
        self._put(replace(reservation, stopping=why))

    def releases(self, reservation: Reservation) -> None:
        """Free a reservation."""
        self.engine.release(reservation.uid)
        self.view.set_ledger(self.view.ledger.amended(drop=[reservation.uid]))

    def _put(self, reservation: Reservation) -> None:
        self.engine.restore(reservation)
        self.view.set_ledger(self.view.ledger.amended(put=[reservation]))

    async def workload(self, job: JobRecord) -> dict[str, Any]:
        """Read the document of a job, as new as it can be."""
        documents = await self.documents("workloads", job.namespace)
        return next(d for d in documents if d["metadata"]["uid"] == job.uid)

    async def documents(self, resource: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Read all documents, as new as they can be."""
        await asyncio.sleep(self.settle_seconds)
        await self.reporter.fresh(resource, namespace)
        return [document.parse() for _, document in self.cache.documents(resource, namespace)]
