"""A queue vanishes while gangs run in it and no process is there to see: who starts then knows what it was below."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import orjson
import pytest

from tests.unit.controllers.ledger.test_ledger_rules import LEDGER, POLICY, owning_queue, waiting_job
from webhook.assembly import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
RESEARCH = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


@asynccontextmanager
async def running(cluster: SimulatedCluster, name: str) -> AsyncIterator[list[ReconcilerParts]]:
    """Two replicas that know nothing but what is stored; they are gone afterwards."""
    replicas = [
        reconciler(cluster.api(), Config(), identity=f"{name}-{number}", clock=LoopClock(), rng=Random(number))
        for number in range(2)
    ]
    tasks = [asyncio.create_task(replica.run()) for replica in replicas]
    await asyncio.sleep(30)
    yield replicas
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("ledger_too", [False, True], ids=["", "and so does the ledger"])
async def test_what_runs_stays_charged_to_the_cohort_and_is_shown(ledger_too: bool) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(POLICY[0])
        for name in ("research", "other"):
            queue = owning_queue(name)
            del queue["spec"]["preemption"]
            await cluster.create(queue)
            local = {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": name}}
            await cluster.create({**POLICY[2], **local})
        await cluster.create(waiting_job())
        async with running(cluster, "before") as replicas:
            assert len(replicas[0].view.ledger.entries) == 1
        await cluster.api().request("DELETE", RESEARCH)
        if ledger_too:
            await cluster.api().request("DELETE", LEDGER)
        await cluster.create(waiting_job("second", "other"))
        async with running(cluster, "after") as replicas:
            stored = orjson.loads(await cluster.api().request("GET", f"{JOBS}/second"))
            assert stored["spec"]["suspend"] is True, "all 2 cpu that are left of the cohort are in use"
            for replica in replicas:
                await replica.read_api.reporter.fresh("queues")
                shown = [document.parse() for _, document in replica.read_api.cache.documents("queues", None)]
                found = {
                    each["metadata"]["annotations"]["kube-queue/quota-fullname"]: each
                    for each in shown
                    if "annotations" in each["metadata"]
                }
                assert found["(deleted) research"]["status"]["usage"] == {"cpu": "2"}
                assert found["all"]["status"]["usage"]["cpu"] == "2"
