"""What people and metrics are told of a gang that is stopped: a reason of a bounded set, and a sentence."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.unit.controllers.stage import JOB, POLICY, waiting_job
from tests.unit.laboratory.simulated.clients import Client, eventually
from tests.unit.samples import sample
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
EVENTS = "/apis/events.k8s.io/v1/namespaces/team-a/events"
CLUSTER_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
LOCAL_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/research"
DRAIN = {"spec": {"stopPolicy": "HoldAndDrain"}}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for obj in (*POLICY, waiting_job()):
            await cluster.create(obj)
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        yield Client(cluster.api())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "patch", "reason", "note"),
    [
        (CLUSTER_QUEUE, DRAIN, "ClusterQueueStopped", "ClusterQueueStopped: queue research is stopped (HoldAndDrain)"),
        (
            LOCAL_QUEUE,
            DRAIN,
            "LocalQueueStopped",
            "LocalQueueStopped: LocalQueue team-a/research is stopped (HoldAndDrain)",
        ),
        (JOB, {"spec": {"suspend": True}}, "OnHold", "OnHold: it was suspended"),
    ],
    ids=["queue", "local queue", "owner"],
)
async def test_a_stop_names_its_reason_once_and_says_it_in_words(
    client: Client, path: str, patch: dict[str, Any], reason: str, note: str
) -> None:
    async def runs() -> bool:
        return not (await client.get(JOB))["spec"]["suspend"]

    async def is_told() -> bool:
        return any(event["reason"] == "Evicted" for event in (await client.get(EVENTS))["items"])

    await eventually(runs)
    before = sample("tutti_evicted_gangs_total", queue="research", reason=reason)
    await client.merge(path, patch)
    await eventually(is_told)
    core = (await client.get("/api/v1/namespaces/team-a/events"))["items"]
    written = [event for event in core if event["source"].get("component") == "tutti.dev/reconciler"]
    assert all(event["lastTimestamp"][:19] == event["eventTime"][:19] for event in written)
    assert {event["count"] for event in written} == {1}
    told = [event["note"] for event in (await client.get(EVENTS))["items"] if event["reason"] == "Evicted"]
    assert told == [note]
    assert sample("tutti_evicted_gangs_total", queue="research", reason=reason) == before + 1
