"""Gangs of a kind that could be read and cannot be now are not chosen to be stopped for others: they would not stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.unit.cluster.test_unread_kinds import WATCHES_END_SECONDS
from tests.unit.controllers.gangs.test_orphans import job_set, leader
from tests.unit.controllers.stage import POLICY, owning_queue, waiting_job
from webhook.assembly.reconciler import ReconcilerParts
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOB_SETS = "jobsets.jobset.x-k8s.io"


def job_set_of(pods: int) -> dict[str, Any]:
    """Return a JobSet that waits in the queue ``theirs``."""
    found = job_set(suspend=True)
    found["metadata"] = {**found["metadata"], "name": "set", "labels": {names.QUEUE_LABELS[0]: "theirs"}}
    found["spec"]["replicatedJobs"][0]["replicas"] = pods // 2
    return found


def states(parts: ReconcilerParts) -> dict[str, str]:
    return {each.name: each.stopping or "runs" for each in parts.view.ledger.entries.values()}


@asynccontextmanager
async def borrowed(*jobs: dict[str, Any]) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster where ``jobs`` have borrowed all that queue ``mine`` has; JobSets cannot be read since."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        await cluster.create(POLICY[0])
        for name in ("mine", "theirs"):
            await cluster.create(owning_queue(name))
            await cluster.create(
                {**POLICY[2], "metadata": {"name": name, "namespace": "team-a"}} | {"spec": {"clusterQueue": name}}
            )
        parts = leader(cluster, "one")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        for job in jobs:
            await cluster.create(job)
            await asyncio.sleep(5)
        assert set(states(parts).values()) == {"runs"}
        cluster.router.unlistable.add(JOB_SETS)
        await asyncio.sleep(WATCHES_END_SECONDS)
        yield cluster, parts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_another_is_stopped_instead() -> None:
    """The JobSet started last, so that it would be the first to go."""
    async with borrowed(waiting_job("job", "theirs"), job_set_of(2)) as (cluster, parts):
        await cluster.create(waiting_job("owner", "mine"))
        await asyncio.sleep(60)
        assert states(parts) == {"set": "runs", "owner": "runs"}


async def test_where_there_is_no_other_nobody_is_stopped_until_the_kind_can_be_read() -> None:
    async with borrowed(job_set_of(4)) as (cluster, parts):
        uid = (await cluster.create(waiting_job("owner", "mine"))).uid
        await asyncio.sleep(60)
        assert states(parts) == {"set": "runs"}
        assert not parts.view.ledger.claims
        assert parts.reconciler.reason(uid) is not None
        cluster.router.unlistable.clear()
        await asyncio.sleep(60)
        assert states(parts) == {"owner": "runs"}
