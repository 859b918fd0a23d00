"""Jobs that a CronJob or another project's controller made are gangs of their own, like any other."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, queued_cluster, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly", "namespace": "team-a"},
    "spec": {"schedule": "0 3 * * *"},
}


async def made_by_a_cron_job(cluster: SimulatedCluster, job: dict[str, Any]) -> None:
    await cluster.create(CRON_JOB)
    path = "/apis/batch/v1/namespaces/team-a/cronjobs/nightly"
    uid = orjson.loads(await cluster.api().request("GET", path))["metadata"]["uid"]
    controller = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}
    job["metadata"]["ownerReferences"] = [controller]
    await cluster.create(job)


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with queued_cluster() as cluster:
        yield cluster


def leads(cluster: SimulatedCluster) -> tuple[ReconcilerParts, asyncio.Task[None]]:
    parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
    return parts, asyncio.create_task(parts.run())


async def stored(cluster: SimulatedCluster) -> Any:
    return orjson.loads(await cluster.api().request("GET", JOB))


async def test_it_starts_when_there_is_room_and_survives_the_loss_of_the_ledger(cluster: SimulatedCluster) -> None:
    parts, running = leads(cluster)
    await made_by_a_cron_job(cluster, waiting_job())
    await asyncio.sleep(10)
    assert not (await stored(cluster))["spec"]["suspend"]
    await cluster.api().request("DELETE", LEDGER)
    await asyncio.sleep(10)
    assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
    running.cancel()


async def test_one_that_waits_while_the_ledger_is_rebuilt_is_written_first(cluster: SimulatedCluster) -> None:
    await made_by_a_cron_job(cluster, waiting_job(pods=9))
    _, running = leads(cluster)
    await asyncio.sleep(10)
    assert "tutti.dev/voided" in (await stored(cluster))["metadata"]["annotations"]
    running.cancel()


async def test_one_that_ran_at_the_installation_is_adopted(cluster: SimulatedCluster) -> None:
    job = waiting_job()
    job["spec"]["suspend"] = False
    del job["spec"]["template"]["metadata"]
    await made_by_a_cron_job(cluster, job)
    await asyncio.sleep(5)
    parts, running = leads(cluster)
    await asyncio.sleep(10)
    assert [(entry.name, entry.adopted) for entry in parts.view.ledger.entries.values()] == [("train", True)]
    running.cancel()
