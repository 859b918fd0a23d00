"""A queue vanishes while gangs run in it and no process is there to see: who starts then knows what it was below."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, POLICY, owning_queue, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
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


def cluster_queue(name: str, cohort: str) -> dict[str, Any]:
    """Return a queue that owns 2 cpu and takes nothing back."""
    queue = owning_queue(name)
    del queue["spec"]["preemption"]
    queue["spec"]["cohortName"] = cohort
    return queue


@pytest.mark.parametrize("ledger_too", [False, True], ids=["", "and so does the ledger"])
async def test_what_runs_stays_charged_to_the_cohort_and_is_shown(ledger_too: bool) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(POLICY[0])
        for name in ("research", "other"):
            await cluster.create(cluster_queue(name, "all"))
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


async def test_a_queue_that_moved_and_vanished_is_charged_where_it_stood_last_whatever_policy_comes_after() -> None:
    async with SimulatedCluster(Random(2), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(POLICY[0])
        for name, cohort in (("research", "former"), ("other", "all")):
            await cluster.create(cluster_queue(name, cohort))
            local = {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": name}}
            await cluster.create({**POLICY[2], **local})
        await cluster.create(waiting_job())
        async with running(cluster, "seeing") as replicas:
            assert len(replicas[0].view.ledger.entries) == 1
            moved = orjson.dumps({"spec": {"cohortName": "all"}})
            await cluster.api().request("PATCH", RESEARCH, body=moved, content_type="application/merge-patch+json")
            await asyncio.sleep(30)
            await cluster.api().request("DELETE", RESEARCH)
            await asyncio.sleep(30)
            await cluster.create(cluster_queue("unconcerned", "elsewhere"))
            await asyncio.sleep(30)
            found = [replica.view.policy.queues["research"].cohort for replica in replicas]
            assert found == ["all", "all"]


@pytest.mark.parametrize("seen", [True, False], ids=["who sees it", "who comes later"])
async def test_what_runs_below_a_cohort_that_vanishes_stays_charged_to_what_that_was_below(seen: bool) -> None:
    """Its queue stays, and would be alone: the room that it borrowed was given to others again."""
    async with SimulatedCluster(Random(3), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(POLICY[0])
        between = {"kind": "Cohort", "metadata": {"name": "between"}, "spec": {"parentName": "all"}}
        await cluster.create({"apiVersion": POLICY[0]["apiVersion"], **between})
        lender = cluster_queue("lender", "all")
        borrower, other = cluster_queue("research", "between"), cluster_queue("other", "all")
        for queue in (borrower, other):
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 0
        for queue in (lender, borrower, other):
            await cluster.create(queue)
            name = queue["metadata"]["name"]
            local = {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": name}}
            await cluster.create({**POLICY[2], **local})
        await cluster.create(waiting_job())

        async def vanish() -> None:
            await cluster.api().request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/cohorts/between")
            await cluster.create(waiting_job("second", "other"))
            await asyncio.sleep(30)

        async with running(cluster, "before") as replicas:
            (entry,) = replicas[0].view.ledger.entries.values()
            assert entry.cohorts == ("between", "all")
            if seen:
                await vanish()
        if not seen:
            await vanish()
        async with running(cluster, "after") as replicas:
            stored = orjson.loads(await cluster.api().request("GET", f"{JOBS}/second"))
            assert stored["spec"]["suspend"] is True, "all 2 cpu of the cohort are in use"
            await cluster.api().request("DELETE", f"{JOBS}/train", body=b'{"propagationPolicy": "Background"}')
            await asyncio.sleep(30)
            stored = orjson.loads(await cluster.api().request("GET", f"{JOBS}/second"))
            assert stored["spec"]["suspend"] is False
            assert not any(cohort.is_deleted for replica in replicas for cohort in replica.view.policy.cohorts.values())
