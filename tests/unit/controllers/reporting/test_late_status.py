"""A status that a dead leader had sent, and that is stored after its successor has looked, does not stay."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import POLICY, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.kube.api import MERGE_PATCH, Api
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"


async def counted(api: Api) -> dict[str, Any]:
    """Return the status of the queue, less what says since when."""
    status = orjson.loads(await api.request("GET", QUEUE))["status"]
    return {name: value for name, value in status.items() if name != "conditions"}


async def test_what_somebody_writes_over_a_status_is_put_right() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for obj in POLICY:
            await cluster.create(obj)
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running, api = asyncio.create_task(parts.run()), cluster.api()
        await asyncio.sleep(10)
        before = await counted(api)
        await cluster.create(waiting_job())
        await asyncio.sleep(20)
        after = await counted(api)
        assert before != after
        late = orjson.dumps({"status": before})
        await api.request("PATCH", f"{QUEUE}/status", body=late, content_type=MERGE_PATCH)
        await asyncio.sleep(20)
        assert await counted(api) == after
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
