"""A cluster that is in no fleet asks for nothing that fleets need: a new watch is paid for by every installation."""

import asyncio
import copy
from random import Random

import pytest

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import ACCOUNT, NAMESPACE, Side, plain_job
from tests.unit.fleet.test_rights import Call, Noted
from webhook.assembly import reconciler as reconciler_parts
from webhook.assembly import webhook as webhook_parts
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
FOLLOWED = {
    *("namespaces", "nodes", "pods", "podgroups", "daemonsets", "limitranges", "resourcequotas", "runtimeclasses"),
    *("clusterqueues", "cohorts", "localqueues", "resourceflavors", "topologies", "workloadpriorityclasses"),
    *("elasticquotatrees", "queues", "hypernodes", "priorityclasses", "trainingruntimes", "clustertrainingruntimes"),
    "configmaps",
}
"""Beside job kinds: nodes by the reconciler alone, ConfigMaps for the ledger."""
WRITTEN = {"clusterqueues/status", "localqueues/status", "events"}
"""Beside jobs and the ledger."""


async def asked(config: Config) -> tuple[set[str], set[str]]:
    """Return what a webhook and a reconciler watch, and what else they ask for, from a gang's start to its end."""
    calls: set[Call] = set()
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", NAMESPACE)) as cluster:
        await cluster.add_node("node", cpu="8")
        for item in POLICY:
            await cluster.create(copy.deepcopy(item))
        seen, decided = (Noted(cluster.api(ACCOUNT), calls) for _ in range(2))
        webhook = webhook_parts.webhook(seen, config, identity="webhook", clock=LoopClock(), rng=Random(2))
        reconciler = reconciler_parts.reconciler(
            decided, config, identity="reconciler", clock=LoopClock(), rng=Random(3)
        )
        running = [asyncio.create_task(webhook.run()), asyncio.create_task(reconciler.run())]
        try:
            await asyncio.sleep(3)
            job = plain_job(runtime="5s")
            del job["spec"]["managedBy"]
            job["spec"]["suspend"] = True
            await cluster.create(job)
            side = Side("alone", cluster)

            async def over() -> bool:
                return "completionTime" in ((await side.get("Job", "train")) or {}).get("status", {})

            async with asyncio.timeout(60):
                while not await over():
                    await asyncio.sleep(0.2)
            await asyncio.sleep(60)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    # What is not served is listed alone, and would be watched.
    followed = {each.resource for each in calls if each.verb in ("list", "watch")}
    return followed, {each.resource for each in calls} - followed


@pytest.mark.parametrize(
    ("config", "more"),
    [
        pytest.param(Config(), set(), id="alone"),
        pytest.param(Config(hub=True), {"admissionchecks"}, id="a hub"),
        pytest.param(Config(silent_hub_seconds=60.0), {"leases"}, id="a member with the dead-man switch"),
    ],
)
async def test_who_is_in_no_fleet_follows_and_asks_for_nothing_more(config: Config, more: set[str]) -> None:
    followed, others = await asked(config)
    assert followed == {kind.plural for kind in KINDS.values()} | FOLLOWED | more
    assert others == WRITTEN
