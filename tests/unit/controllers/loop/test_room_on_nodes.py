"""The reconciler and the nodes: no pod before all fit, and a start as soon as they do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import PODS, POLICY, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.nodes import Scheduler

pytestmark = pytest.mark.virtual_time
FOREIGN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "foreign", "namespace": "team-a"},
    "spec": {
        "nodeName": "small-0",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}],
    },
}


@asynccontextmanager
async def started(
    *nodes: str, config: Config | None = None, flavor: dict[str, Any] | None = None, unlistable: str = ""
) -> AsyncIterator[tuple[SimulatedCluster, list[ReconcilerParts]]]:
    """A cluster with nodes of 1 cpu each, called so, and two replicas; a job of two pods of 1 cpu waits."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        cluster.router.unlistable.add(unlistable)
        for name in nodes:
            await cluster.add_node(name, cpu="1")
        for obj in POLICY:
            metadata = {**obj["metadata"], **(flavor or {})} if obj["kind"] == "ResourceFlavor" else obj["metadata"]
            await cluster.create({**obj, "metadata": metadata})
        replicas = [
            reconciler(cluster.api(), config or Config(), identity=name, clock=LoopClock(), rng=Random(name))
            for name in ("one", "two")
        ]
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        await asyncio.sleep(10)
        yield cluster, replicas
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def bound(cluster: SimulatedCluster) -> list[str]:
    """Return the nodes of the gang's pods."""
    pods = orjson.loads(await cluster.api().request("GET", PODS))["items"]
    return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["metadata"]["name"] != "foreign")


def reasons(replicas: list[ReconcilerParts]) -> set[str]:
    (uid,) = replicas[0].view.jobs
    return {str(replica.reconciler.reason(uid)) for replica in replicas}


async def test_a_gang_whose_pods_do_not_all_fit_has_none_until_a_node_comes() -> None:
    async with started("small-0") as (cluster, replicas):
        await cluster.create(waiting_job())
        await asyncio.sleep(10)
        assert await bound(cluster) == []
        assert reasons(replicas) == {
            "pod set main asks for 2 pods of 1 cpu; the nodes that could take them (1) hold 1 when nothing else runs "
            "there, 1 too few; it cannot start: ask for fewer or smaller pods, or have nodes added"
        }
        await cluster.add_node("small-1", cpu="1")
        await asyncio.sleep(5)
        assert await bound(cluster) == ["small-0", "small-1"]


async def test_a_pod_of_anybody_takes_room_until_it_is_gone() -> None:
    async with started("small-0", "small-1") as (cluster, replicas):
        await cluster.create(FOREIGN)
        await cluster.create(waiting_job())
        await asyncio.sleep(10)
        assert await bound(cluster) == []
        (said,) = reasons(replicas)
        assert "of 2 nodes 1 takes none: 1 lacks cpu (500m free in pieces too small)" in said
        await cluster.api().request("DELETE", f"{PODS}/foreign")
        await asyncio.sleep(60)
        assert await bound(cluster) == ["small-0", "small-1"]


@pytest.mark.parametrize(
    "more",
    [
        {"config": Config(nodeFit="observe")},
        {"config": Config(nodeFit="off")},
        {"flavor": {"annotations": {"tutti.dev/node-fit": "observe"}}},
        {"flavor": {"annotations": {"cluster-autoscaler.kubernetes.io/node-group": "cards"}}},
        {"unlistable": "nodes."},
    ],
    ids=["observed", "off", "a flavor that is observed", "a flavor of an autoscaler", "nodes that nobody may read"],
)
async def test_where_the_nodes_are_not_to_decide_quota_alone_does(more: dict[str, Any]) -> None:
    async with started("small-0", **more) as (cluster, _):
        await cluster.create(waiting_job())
        await asyncio.sleep(20)
        assert await bound(cluster) == ["", "small-0"]


async def test_a_flavor_without_any_node_is_not_waited_for() -> None:
    async with started() as (cluster, _):
        await cluster.create(waiting_job())
        await asyncio.sleep(10)
        assert await bound(cluster) == ["", ""]


async def admitted_and_robbed(cluster: SimulatedCluster, replica: ReconcilerParts) -> None:
    """Have the job admitted on two nodes, and one of them taken away before its pods are bound."""
    await cluster.create(waiting_job())
    while not replica.view.ledger.entries:
        await asyncio.sleep(0.001)
    await cluster.api().request("DELETE", "/api/v1/nodes/small-1")


async def test_a_gang_that_has_lost_a_node_before_it_was_whole_is_stopped_soon_and_keeps_its_place() -> None:
    async with started("small-0", "small-1") as (cluster, replicas):
        await admitted_and_robbed(cluster, replicas[0])
        await asyncio.sleep(10)
        assert await bound(cluster) == ["", "small-0"]
        (job,) = replicas[0].view.jobs.values()
        place = job.place_seconds
        await asyncio.sleep(40)
        assert await bound(cluster) == []
        (job,) = replicas[0].view.jobs.values()
        assert job.requeue is not None
        assert (job.requeue.reason, job.requeue.attempts, job.place_seconds) == ("NoNodeLeft", 0, place)
        assert "1 of its pods no longer fits any node" in job.requeue.message
        (said,) = reasons(replicas)
        assert "asks for 2 pods of 1 cpu; the nodes that could take them (1) hold 1" in said
        await cluster.add_node("small-2", cpu="1")
        await asyncio.sleep(10)
        assert await bound(cluster) == ["small-0", "small-2"]


async def test_a_gang_that_has_lost_a_node_goes_to_another_where_there_is_one() -> None:
    async with started("small-0", "small-1", "small-2") as (cluster, replicas):
        await admitted_and_robbed(cluster, replicas[0])
        await asyncio.sleep(20)
        assert await bound(cluster) == ["small-0", "small-2"]
        (job,) = replicas[0].view.jobs.values()
        assert job.requeue is None


async def test_the_ledger_says_where_room_is_kept_for_a_gang_that_has_lost_a_node() -> None:
    """Else whoever leads next keeps that room nowhere, or where others were admitted since."""
    async with started("small-0", "small-1", "small-2") as (cluster, replicas):
        for scheduler in [each for each in cluster.controllers if isinstance(each, Scheduler)]:
            await scheduler.stop()
        await admitted_and_robbed(cluster, replicas[0])
        await asyncio.sleep(20)
        for replica in replicas:
            (found,) = replica.view.ledger.entries.values()
            assert [dict(each.places) for each in found.pod_sets] == [{"small-0": 1, "small-2": 1}]
