"""Jobs that ran before Tutti came, and pods that only claim to be of a gang: controllers tell, not labels."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, PODS, POLICY, queued_cluster, stage, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace

pytestmark = pytest.mark.virtual_time


def running_job(name: str = "train", pods: int = 4) -> dict[str, Any]:
    job = waiting_job(name, pods=pods)
    job["spec"]["suspend"] = False
    del job["spec"]["template"]["metadata"]
    return job


@asynccontextmanager
async def adopted(pod_stop_seconds: float = 1.0) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster on which four pods ran in a queue of four cpu before its leader came, and that leader."""
    pace = Pace(pod_stop_seconds=pod_stop_seconds)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), pace=pace) as cluster:
        await cluster.add_node("node")
        for item in POLICY:
            await cluster.create(item)
        await cluster.create(running_job())
        await asyncio.sleep(5)
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        yield cluster, parts
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def pods_of(cluster: SimulatedCluster) -> list[Any]:
    found: list[Any] = orjson.loads(await cluster.api().request("GET", PODS))["items"]
    return [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]


async def test_that_it_was_adopted_is_written_on_a_job_on_which_nothing_else_happens() -> None:
    async with adopted() as (cluster, _):
        job = orjson.loads(await cluster.api().request("GET", JOB))
        assert b'"adopted":true' in job["metadata"]["annotations"][names.ADMISSION].encode()


async def test_an_owner_who_suspends_it_holds_it() -> None:
    async with adopted() as (cluster, parts):
        hold = b'{"spec": {"suspend": true}}'
        await cluster.api().request("PATCH", JOB, body=hold, content_type=MERGE_PATCH)
        await asyncio.sleep(30)
        job = orjson.loads(await cluster.api().request("GET", JOB))
        assert job["spec"]["suspend"]
        assert not await pods_of(cluster)
        assert not parts.view.ledger.entries


@pytest.mark.parametrize("options", ["Orphan", "Background"])
async def test_its_quota_is_held_until_its_last_pod_is_gone_though_it_is_deleted(options: str) -> None:
    async with adopted(pod_stop_seconds=40) as (cluster, parts):
        await cluster.create(waiting_job("other", pods=4))
        body = orjson.dumps({"propagationPolicy": options})
        await cluster.api().request("DELETE", JOB, body=body)
        for _ in range(15):
            await asyncio.sleep(2)
            assert len(await pods_of(cluster)) <= 4, "never four more beside them"
        await cluster.api().request("DELETE", PODS)
        await asyncio.sleep(60)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]


async def test_it_is_not_free_because_no_pod_of_it_was_heard_of() -> None:
    """No selector finds its pods: a list by our label would prove them gone that run."""
    async with stage() as play:
        await play.take_over()
        play.line.withheld = "/pods"
        await play.cluster.create(running_job(pods=2))
        await asyncio.sleep(5)
        assert [entry.adopted for entry in (await play.ledger()).entries.values()] == [True]
        await play.admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        assert await play.running_pods() == 2
        assert len((await play.ledger()).entries) == 1
        play.line.withheld = ""
        await play.admin.request("DELETE", PODS)
        await asyncio.sleep(60)
        assert not (await play.ledger()).entries


async def test_its_pods_are_known_after_the_loss_of_the_ledger() -> None:
    async with adopted(pod_stop_seconds=40) as (cluster, parts):
        await cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(3)
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(5)
        assert [(entry.name, entry.adopted) for entry in parts.view.ledger.entries.values()] == [("train", True)]


async def test_pods_of_another_job_that_claim_to_be_a_gangs_hold_none_of_its_quota() -> None:
    """Whoever waits for the gang's room would wait for ever."""
    async with queued_cluster() as cluster:
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await cluster.create(waiting_job(pods=4))
        await asyncio.sleep(5)
        (gang,) = parts.view.ledger.entries
        stranger = running_job("stranger", pods=1)
        del stranger["metadata"]["labels"]
        labels = {names.GANG_LABEL: gang, names.POD_SET_LABEL: "main"}
        stranger["spec"]["template"]["metadata"] = {"labels": labels}
        await cluster.create(stranger)
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(5)
        await cluster.api().request("DELETE", JOB, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(30)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["other"]
        running.cancel()
