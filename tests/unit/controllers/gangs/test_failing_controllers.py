"""A gang whose controller does not stop it, or that nobody controls any more: its pods go all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.gangs.test_orphans import JOB_SET, job_set, leader, plain_job, pods_of, prepare
from tests.unit.controllers.stage import JOB
from webhook.assembly.reconciler import ReconcilerParts
from webhook.controllers.loop.reconciler import OVERDUE_SECONDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.jobs import JobController
from webhook.laboratory.simulated.controllers.jobsets import JobSetController

pytestmark = pytest.mark.virtual_time

RUNS = {JOB: plain_job, JOB_SET: job_set}


@asynccontextmanager
async def running(path: str) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Have a gang of four pods run, whose controllers are down from now on."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        await cluster.create(RUNS[path](suspend=True))
        parts = leader(cluster, "me")
        task = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        assert len(await pods_of(cluster)) == 4
        for controller in cluster.controllers:
            if isinstance(controller, (JobController, JobSetController)):
                await controller.stop()
        yield cluster, parts
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def live(cluster: SimulatedCluster) -> list[Any]:
    return [pod for pod in await pods_of(cluster) if "deletionTimestamp" not in pod["metadata"]]


@pytest.mark.parametrize("path", RUNS, ids=["a Job", "a JobSet"])
async def test_pods_that_a_controller_does_not_stop_for_a_minute_are_deleted_and_their_room_is_free(path: str) -> None:
    async with running(path) as (cluster, parts):
        held = orjson.dumps({"spec": {"suspend": True}})
        await cluster.api().request("PATCH", path, body=held, content_type=MERGE_PATCH)
        await asyncio.sleep(OVERDUE_SECONDS - 5)
        assert len(await live(cluster)) == 4, "a late controller has its time"
        assert parts.view.ledger.entries
        await asyncio.sleep(30)
        assert not await live(cluster)
        assert not parts.view.ledger.entries
