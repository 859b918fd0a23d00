"""A namespace whose label a person takes away: jobs that were gated by it are served until they are gone."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, waiting_job
from tests.unit.laboratory.simulated.clients import Client
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
NAMESPACE = "/api/v1/namespaces/team-a"
QUOTAS = f"{NAMESPACE}/resourcequotas"


def gated_job(gang: str = names.GANG_PENDING_IN_NAMESPACE) -> dict[str, Any]:
    job = waiting_job(pods=2)
    del job["metadata"]["labels"]
    job["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] = gang
    return job


@pytest.fixture
async def gated() -> AsyncIterator[tuple[Client, ReconcilerParts]]:
    """A namespace that a person gated, and a leader."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        client = Client(cluster.api())
        await client.merge(NAMESPACE, {"metadata": {"labels": {names.GATED_NAMESPACE: "true"}}})
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(3)
        yield client, parts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def ungate(client: Client) -> None:
    await client.merge(NAMESPACE, {"metadata": {"labels": {names.GATED_NAMESPACE: None}}})
    await asyncio.sleep(5)


async def test_one_that_waits_starts_when_there_is_room(gated: tuple[Client, ReconcilerParts]) -> None:
    client, _ = gated
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "hard"}, "spec": {"hard": {"pods": "1"}}}
    await client.post(QUOTAS, quota)
    await client.post(JOB.rpartition("/")[0], gated_job())
    await asyncio.sleep(5)
    await ungate(client)
    assert (await client.get(JOB))["spec"]["suspend"], "half of it would fit"
    await client.delete(f"{QUOTAS}/hard")
    await asyncio.sleep(10)
    assert not (await client.get(JOB))["spec"]["suspend"]


async def test_one_that_runs_keeps_its_reservation_and_comes_back_from_a_hold(
    gated: tuple[Client, ReconcilerParts],
) -> None:
    client, parts = gated
    await client.post(JOB.rpartition("/")[0], gated_job())
    await asyncio.sleep(10)
    await ungate(client)
    assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
    await client.merge(JOB, {"spec": {"suspend": True}})
    await asyncio.sleep(30)
    job = await client.get(JOB)
    assert not parts.view.ledger.entries
    assert names.HOLD in job["metadata"]["annotations"]
    # Un-suspending it is turned by the webhook into lifting the hold.
    await client.merge(JOB, {"metadata": {"annotations": {names.HOLD: None}}})
    await asyncio.sleep(10)
    assert not (await client.get(JOB))["spec"]["suspend"]
    assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]


async def test_a_job_that_was_never_gated_is_left_alone(gated: tuple[Client, ReconcilerParts]) -> None:
    client, parts = gated
    await ungate(client)
    job = gated_job()
    del job["spec"]["template"]["metadata"]
    await client.post(JOB.rpartition("/")[0], job)
    await asyncio.sleep(10)
    assert not parts.view.jobs
    assert orjson.dumps((await client.get(JOB))["metadata"]).count(b"tutti") == 0


async def test_what_waited_by_anything_else_is_not_started_by_its_mark(gated: tuple[Client, ReconcilerParts]) -> None:
    """It may be what a deleted JobSet left, which was to run within the JobSet's quota."""
    client, parts = gated
    await ungate(client)
    await client.post(JOB.rpartition("/")[0], gated_job(names.GANG_PENDING))
    await asyncio.sleep(10)
    assert not parts.view.jobs
    assert (await client.get(JOB))["spec"]["suspend"]
