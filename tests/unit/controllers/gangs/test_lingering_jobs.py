"""Jobs whose objects outlive them: a finalizer of somebody else keeps them for hours after their pods are gone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, PODS, POLICY, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.errors import Unavailable
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
KEPT = {"finalizers": ["example.org/accounting"]}


class Line:
    """A connection on which starts are lost for as long as a test says so."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.starts_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if "dryRun" in (more.get("query") or ()):
            return await self._api.request(method, path, **more)  # type: ignore[no-any-return]
        if method == "PATCH" and self.starts_lost and b'"path":"/spec/suspend","value":false' in more["body"]:
            raise Unavailable(503, "ServiceUnavailable", "lost")
        answer: bytes = await self._api.request(method, path, **more)
        return answer


@asynccontextmanager
async def led(
    policy: Sequence[dict[str, Any]] = POLICY,
) -> AsyncIterator[tuple[SimulatedCluster, Line, ReconcilerParts]]:
    """Yield a cluster with a queue of four cpu, or another policy, and a leader."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for item in policy:
            await cluster.create(item)
        line = Line(cluster.api())
        parts = reconciler(line, Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(2)
        yield cluster, line, parts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def kept_job(name: str = "train") -> dict[str, Any]:
    job = waiting_job(name, pods=3)
    job["metadata"] |= KEPT
    return job


async def is_there(cluster: SimulatedCluster) -> bool:
    return "deletionTimestamp" in orjson.loads(await cluster.api().request("GET", JOB))["metadata"]


@pytest.mark.parametrize("started_seconds", [1.0, 30.0], ids=["just started", "running"])
async def test_its_quota_is_free_with_its_last_pod(started_seconds: float) -> None:
    async with led() as (cluster, _, parts):
        await cluster.create(kept_job())
        await asyncio.sleep(started_seconds)
        await cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Foreground"}')
        await cluster.create(waiting_job("other", pods=3))
        await asyncio.sleep(15)
        assert await is_there(cluster)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]


async def test_one_that_is_deleted_before_it_started_gives_its_quota_back_too() -> None:
    async with led() as (cluster, line, parts):
        line.starts_lost = True
        await cluster.create(kept_job())
        await asyncio.sleep(3)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
        await cluster.api().request("DELETE", JOB)
        line.starts_lost = False
        await cluster.create(waiting_job("other", pods=3))
        await asyncio.sleep(15)
        assert await is_there(cluster)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]


async def test_pods_that_it_leaves_hold_their_quota() -> None:
    """Deleted in the background, its pods run until the object is gone."""
    async with led() as (cluster, _, parts):
        await cluster.create(kept_job())
        await asyncio.sleep(10)
        await cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(30)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["train"]
        assert orjson.loads(await cluster.api().request("GET", LEDGER))["data"]


# -- whose controllers look at them no more, for who is owed their room


def lent() -> list[dict[str, Any]]:
    """Return the policy of a second queue, which takes back the two cpu that it lends to the first."""
    first, second = deepcopy(POLICY[1]), deepcopy(POLICY[1])
    second["metadata"]["name"] = "lender"
    for queue in (first, second):
        queue["spec"] |= {"cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"}}
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 2
    local = {"metadata": {"name": "lender", "namespace": "team-a"}, "spec": {"clusterQueue": "lender"}}
    return [POLICY[0], first, second, POLICY[2], POLICY[2] | local]


async def names_of_pods(cluster: SimulatedCluster) -> list[str]:
    found = orjson.loads(await cluster.api().request("GET", PODS))["items"]
    return sorted(pod["metadata"]["labels"].get("job-name", pod["metadata"]["name"]) for pod in found)


@pytest.mark.parametrize("suspended", [False, True])
async def test_whoever_is_owed_the_room_of_a_job_that_a_finalizer_keeps_gets_it(suspended: bool) -> None:
    """Deleted in the background, it is stopped by nobody: the controller looks at nothing that is being deleted."""
    async with led(lent()) as (cluster, _, parts):
        await cluster.create(kept_job())
        await asyncio.sleep(10)
        await cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Background"}')
        if suspended:
            hold = b'{"spec": {"suspend": true}}'
            await cluster.api().request("PATCH", JOB, body=hold, content_type=MERGE_PATCH)
        await cluster.create(waiting_job("owed", queue="lender"))
        await asyncio.sleep(30)
        assert await is_there(cluster)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["owed"]
        assert await names_of_pods(cluster) == ["owed", "owed"]
