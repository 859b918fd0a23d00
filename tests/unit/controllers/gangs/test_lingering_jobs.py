"""Jobs whose objects outlive them: a finalizer of somebody else keeps them for hours after their pods are gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.ledger.test_ledger_rules import JOB, LEDGER, POLICY, waiting_job
from webhook.assembly import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.errors import Unavailable
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
async def led() -> AsyncIterator[tuple[SimulatedCluster, Line, ReconcilerParts]]:
    """Yield a cluster with a queue of four cpu and a leader."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for item in POLICY:
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
