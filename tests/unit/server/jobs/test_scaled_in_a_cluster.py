"""Scale requests in a simulated cluster: what its watches tell of the parent is all that a review has to go by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import orjson
import pytest

from tests.unit.controllers.gangs.test_orphans import PYTORCH_JOB, leader, prepare, pytorch_job
from webhook import errors
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.server.handler import ReviewHandler

pytestmark = pytest.mark.virtual_time
SCALE = Rule(frozenset({"UPDATE"}), frozenset({"kubeflow.org"}), frozenset({"*"}), frozenset({"*/scale"}))


@asynccontextmanager
async def reviewed() -> AsyncIterator[SimulatedCluster]:
    """Run a cluster in which each scale request is reviewed."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        handler = ReviewHandler(parts.view)

        async def review(path: str, body: bytes) -> bytes:
            return (await handler.review(path, body, 2.0))[1]

        cluster.server.admission.register(Registration("scale", False, "/validate/jobs", review, (SCALE,), "scale"))
        yield cluster
        running.cancel()


async def grow(cluster: SimulatedCluster) -> None:
    scale = orjson.loads(await cluster.api().request("GET", PYTORCH_JOB + "/scale"))
    scale["spec"]["replicas"] = 5
    await cluster.api().request("PUT", PYTORCH_JOB + "/scale", body=orjson.dumps(scale))


async def test_a_job_that_waits_for_nobody_is_scaled_up() -> None:
    """Nobody could ever scale one where Tutti is installed, nor could a HorizontalPodAutoscaler."""
    async with reviewed() as cluster:
        made = pytorch_job(suspend=False)
        del made["metadata"]["labels"]
        await cluster.create(made)
        await asyncio.sleep(1)
        await grow(cluster)
        stored = orjson.loads(await cluster.api().request("GET", PYTORCH_JOB))
        assert stored["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


async def test_a_job_that_was_admitted_is_not() -> None:
    async with reviewed() as cluster:
        await cluster.create(pytorch_job(suspend=True))
        await asyncio.sleep(10)
        with pytest.raises(errors.Forbidden, match="runs as a gang with a reservation"):
            await grow(cluster)
