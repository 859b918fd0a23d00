"""A cluster older than the newest release: what its controllers and its API server do otherwise is made up for."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE, owning_queue, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


def policy() -> list[dict[str, Any]]:
    """Return two queues that own two cpu each of one cohort, with a flavor that selects nodes."""
    flavor = {"metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "batch"}}}
    documents: list[dict[str, Any]] = [{"apiVersion": KUEUE, "kind": "ResourceFlavor", **flavor}]
    for name in ("owners", "borrowers"):
        local = {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": name}}
        documents += [owning_queue(name), {"apiVersion": KUEUE, "kind": "LocalQueue", **local}]
    return documents


@pytest.mark.virtual_time
@pytest.mark.parametrize("release", [34, 36])
async def test_a_job_that_was_stopped_starts_again_whatever_the_release(release: int) -> None:
    """Before 1.36 a Job keeps the start time of its first run, and with that its pod template may not change."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), release=release) as cluster:
        await cluster.add_node("node", labels={"pool": "batch"})
        for document in policy():
            await cluster.create(document)
        api = cluster.api()

        async def status(name: str) -> dict[str, Any]:
            job = orjson.loads(await api.request("GET", f"{JOBS}/{name}"))
            return {"suspend": job["spec"]["suspend"], "ready": job["status"].get("ready", 0)}

        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(2)
        await cluster.create(waiting_job("borrower", "borrowers", pods=3))
        await asyncio.sleep(10)
        assert await status("borrower") == {"suspend": False, "ready": 3}
        await cluster.create(waiting_job("owner", "owners", pods=2))
        await asyncio.sleep(60)
        assert await status("borrower") == {"suspend": True, "ready": 0}
        assert await status("owner") == {"suspend": False, "ready": 2}
        await api.request("DELETE", f"{JOBS}/owner", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert await status("borrower") == {"suspend": False, "ready": 3}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
