"""A JobSet that is deleted from above its Jobs: what they run stays charged to it until it is gone."""

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.ledger.test_ledger_rules import PODS, POLICY, waiting_job
from webhook.assembly import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOB_SET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train"


def job_set(*, suspend: bool) -> dict[str, Any]:
    """Return a JobSet of two Jobs of two pods each; a suspended one as the webhook would have stored it."""
    spec = waiting_job(pods=2)["spec"]
    del spec["suspend"]
    if not suspend:
        del spec["template"]["metadata"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": waiting_job()["metadata"],
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": spec}}]},
    }


@pytest.mark.parametrize("before_tutti", [False, True], ids=["one that was started", "one that ran before Tutti came"])
async def test_its_quota_is_held_while_pods_of_its_orphaned_jobs_run(before_tutti: bool) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for item in POLICY:
            await cluster.create(item)
        await cluster.create(job_set(suspend=not before_tutti))
        await asyncio.sleep(5)
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        assert [entry.adopted for entry in parts.view.ledger.entries.values()] == [before_tutti]
        await cluster.create(waiting_job("other", pods=4))
        await cluster.api().request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(30)
        assert len(orjson.loads(await cluster.api().request("GET", PODS))["items"]) == 4, "never four more beside them"
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
        for number in range(2):
            job = f"/apis/batch/v1/namespaces/team-a/jobs/train-w-{number}"
            await cluster.api().request("DELETE", job, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]
        running.cancel()
