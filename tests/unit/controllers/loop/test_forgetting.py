"""A reconciler that runs for a year, as leader or standby: of what is gone nothing is kept but what is bounded."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.unit.controllers.stage import KUEUE, owning_queue, waiting_job
from webhook import metrics
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
BOUNDED = frozenset({"_tombstones", "_known", "_backlog", "_largest", "indexes", "bottlenecks"})
"""Fields with a most of their own, that the next change empties, or that keep a number for each name of a queue."""
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"


def places_of(word: str, root: object) -> list[str]:
    """Return the fields through which ``root`` still holds a string that contains ``word``."""
    seen: set[int] = set()
    found: list[str] = []
    waiting: list[tuple[str, object]] = [("", root)]
    while waiting:
        place, each = waiting.pop()
        if isinstance(each, str):
            if word in each:
                found.append(place)
            continue
        if id(each) in seen or isinstance(each, (int, float, bytes, type, asyncio.AbstractEventLoop)):
            continue
        seen.add(id(each))
        waiting.extend((f"{place}.{name}", value) for name, value in _inside(each))
    return sorted(set(found))


def _inside(each: object) -> Iterator[tuple[str, Any]]:
    if isinstance(each, dict):
        for key, value in each.items():
            yield "key", key
            yield "value", value
    elif isinstance(each, (list, tuple, set, frozenset)):
        for value in each:
            yield "item", value
    elif type(each).__module__.startswith("webhook.") and ".simulated" not in type(each).__module__:
        names = [*getattr(each, "__dict__", {}), *(n for t in type(each).__mro__ for n in getattr(t, "__slots__", ()))]
        for name in names:
            if name not in BOUNDED and hasattr(each, name):
                yield name, getattr(each, name)


async def test_nothing_is_kept_of_jobs_queues_and_namespaces_that_are_gone() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        admin = cluster.api()
        leader, standby = replicas = [
            reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(1))
            for name in ("leader", "standby")
        ]
        running = asyncio.create_task(leader.run())
        while not leader.reconciler.leading:
            await asyncio.sleep(0.1)
        following = asyncio.create_task(standby.run())
        flavor = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
        await cluster.create(flavor)
        await cluster.create(owning_queue("passing"))
        metadata = {"name": "passing", "namespace": "team-a"}
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "passing"}}
        await cluster.create(local)
        await asyncio.sleep(2)
        for number in range(3):
            job = waiting_job(f"fleeting-{number}", "passing")
            job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "5s"}
            await cluster.create(job)
        await cluster.create(waiting_job("fleeting-large", "passing", pods=50))
        await asyncio.sleep(10)
        await admin.request("DELETE", f"{JOBS}/fleeting-1", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        uids = [job.uid for job in leader.view.jobs.values()]
        assert len(uids) == 3
        await admin.request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/passing")
        await admin.request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/passing")
        await admin.request("DELETE", "/api/v1/namespaces/team-a")
        await asyncio.sleep(60)
        assert leader.reconciler.leading
        assert not standby.reconciler.leading
        for parts in replicas:
            assert not parts.view.jobs
            words = ("fleeting", *uids, "passing", "team-a")
            assert {word: places for word in words if (places := places_of(word, parts))} == {}
        samples = [sample for metric in metrics.ADMITTED.collect() for sample in metric.samples]
        assert not [sample for sample in samples if sample.labels.get("queue") == "passing"]
        running.cancel()
        following.cancel()
