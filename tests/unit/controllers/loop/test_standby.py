"""A standby serves the read API as the leader does: whoever is asked, the reason is the same."""

import asyncio
from random import Random

import orjson
import pytest

from tests.unit.controllers.ledger.test_ledger_rules import JOB, POLICY, waiting_job
from webhook.assembly import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "team-a"},
    "spec": {"hard": {"pods": "1"}},
}


async def test_leader_and_standby_name_the_same_resource_quota() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for obj in (*POLICY, QUOTA, waiting_job()):
            await cluster.create(obj)
        replicas: list[ReconcilerParts] = [
            reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(name))
            for name in ("one", "two")
        ]
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        await asyncio.sleep(10)
        uid = orjson.loads(await cluster.api().request("GET", JOB))["metadata"]["uid"]
        assert sorted(replica.reconciler.leading for replica in replicas) == [False, True]
        said = {str(replica.reconciler.reason(uid)) for replica in replicas}
        assert len(said) == 1
        assert said.pop().startswith("asks 2 pods; ResourceQuota team-a/few has 1")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
