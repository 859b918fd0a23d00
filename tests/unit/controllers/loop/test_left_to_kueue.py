"""A cluster that Kueue serves too: the reconciler takes no job whose only queue label is Kueue's."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.unit.controllers.stage import JOB, POLICY, waiting_job
from tests.unit.laboratory.simulated.clients import Client
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOBS = JOB.rpartition("/")[0]
OURS, KUEUES = names.QUEUE_LABELS


def queued_by(*labels: str, suspend: bool) -> dict[str, Any]:
    """Return a Job with these queue labels that no webhook of ours has marked."""
    job = waiting_job()
    job["metadata"]["labels"] = dict.fromkeys(labels, "research")
    job["spec"]["suspend"] = suspend
    del job["spec"]["template"]["metadata"]
    return job


@pytest.fixture
async def beside_kueue() -> AsyncIterator[tuple[Client, ReconcilerParts]]:
    """A leader in a cluster with room, which is told that Kueue serves it too."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for obj in POLICY:
            await cluster.create(obj)
        config = Config(left_to_kueue=True)
        parts = reconciler(cluster.api(), config, identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(3)
        yield Client(cluster.api()), parts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_job_that_kueue_has_suspended_is_not_started(beside_kueue: tuple[Client, ReconcilerParts]) -> None:
    """It was: two controllers un-suspended it, each by its own count."""
    client, parts = beside_kueue
    await client.post(JOBS, queued_by(KUEUES, suspend=True))
    await asyncio.sleep(10)
    assert (await client.get(JOB))["spec"]["suspend"]
    assert not parts.view.jobs
    assert not parts.view.ledger.entries


async def test_a_job_that_kueue_has_started_is_not_adopted(beside_kueue: tuple[Client, ReconcilerParts]) -> None:
    client, parts = beside_kueue
    await client.post(JOBS, queued_by(KUEUES, suspend=False))
    await asyncio.sleep(10)
    assert names.ADMISSION not in ((await client.get(JOB))["metadata"].get("annotations") or {})
    assert not parts.view.ledger.entries


@pytest.mark.parametrize("labels", [(OURS,), (OURS, KUEUES)], ids=["ours", "both"])
async def test_a_job_with_our_queue_label_is_ours(
    beside_kueue: tuple[Client, ReconcilerParts], labels: tuple[str, ...]
) -> None:
    client, parts = beside_kueue
    await client.post(JOBS, queued_by(*labels, suspend=True))
    await asyncio.sleep(10)
    assert not (await client.get(JOB))["spec"]["suspend"]
    assert len(parts.view.ledger.entries) == 1
