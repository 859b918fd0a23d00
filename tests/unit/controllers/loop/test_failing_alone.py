"""What fails on one object, or beside the decisions, stops nobody else; what waits for nothing is not counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest
import structlog
import structlog.testing

from tests.unit.controllers.stage import JOB, LEDGER, queued_cluster, waiting_job
from tests.unit.samples import sample
from webhook.clock import LoopClock
from webhook.cluster.queue_counts import QueueCounts
from webhook.config import Config
from webhook.core.notation import names
from webhook.core.reasons.reasons import Code
from webhook.jobs.patches import job as patches
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.parts.reconciler import ReconcilerParts, reconciler

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def led() -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster with a queue of four cpu, and a leader that must not end."""
    async with queued_cluster() as cluster:
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(2)
        yield cluster, parts
        assert not running.done(), "the reconciler ended"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_job_whose_start_we_fail_to_write_down_does_not_end_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = patches.start

    def start(record: Any, *others: Any, **more: Any) -> Any:
        if record.name == "train":
            raise KeyError("a shape that nobody thought of")
        return genuine(record, *others, **more)

    monkeypatch.setattr(patches, "start", start)
    async with led() as (cluster, _):
        await cluster.create(waiting_job("train"))
        await cluster.create(waiting_job("other"))
        await asyncio.sleep(10)
        other = orjson.loads(await cluster.api().request("GET", JOB.replace("train", "other")))
        assert not other["spec"]["suspend"]


async def test_a_job_on_which_we_fail_at_each_look_is_logged_once_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    shape = "none"

    def start(*_: Any, **__: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if shape == "none":
            raise KeyError(f"a shape that nobody thought of, {attempts} times")
        raise ValueError("a shape that was thought of, and wrongly")

    monkeypatch.setattr(patches, "start", start)
    with structlog.testing.capture_logs() as logs:
        async with led() as (cluster, _):
            await cluster.create(waiting_job("train"))
            for number in range(5):
                await asyncio.sleep(5)
                await label(cluster, number)
            assert attempts > 1
            assert told(logs) == ["team-a/train"]
            shape = "another"
            await label(cluster, 5)
            await asyncio.sleep(5)
    assert told(logs) == ["team-a/train"] * 2


async def test_a_status_that_cannot_be_made_does_not_end_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(*_: Any) -> Any:
        raise KeyError("a status that nobody thought of")

    monkeypatch.setattr(QueueCounts, "take", take)
    async with led() as (cluster, _):
        await cluster.create(waiting_job("train"))
        await asyncio.sleep(10)
        assert not orjson.loads(await cluster.api().request("GET", JOB))["spec"]["suspend"]


async def test_a_ledger_that_a_new_leader_cannot_read_is_kept_for_people() -> None:
    metadata = {"name": names.LEDGER_NAME, "namespace": "tutti-system"}
    data = {"meta": '{"schema":1,"epoch":7,"seq":1,"checksum":"00"}', "uid": "from somebody else"}
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        found = orjson.loads(await cluster.api().request("GET", LEDGER.rpartition("/")[0]))["items"]
        kept = [item["data"] for item in found if "quarantine" in item["metadata"]["name"]]
        assert kept == [data]
        running.cancel()


async def test_a_gang_that_its_owner_takes_out_of_the_queue_is_not_counted_as_waiting() -> None:
    def waiting() -> float:
        return sample("tutti_waiting_gangs", reason=Code.EXCEEDS_MAX_QUOTA)

    async with led() as (cluster, _):
        await cluster.create(waiting_job("train", pods=50))
        await asyncio.sleep(5)
        assert waiting() == 1
        mark = {"metadata": {"annotations": {names.HOLD: orjson.dumps({"uid": await uid(cluster)}).decode()}}}
        await cluster.api().request("PATCH", JOB, body=orjson.dumps(mark), content_type=MERGE_PATCH)
        await asyncio.sleep(5)
        assert waiting() == 0


async def uid(cluster: SimulatedCluster) -> str:
    found: str = orjson.loads(await cluster.api().request("GET", JOB))["metadata"]["uid"]
    return found


async def label(cluster: SimulatedCluster, number: int) -> None:
    """Have somebody write the job, so that it is looked at."""
    body = orjson.dumps({"metadata": {"labels": {"number": str(number)}}})
    await cluster.api().request("PATCH", JOB, body=body, content_type=MERGE_PATCH)


def told(logs: list[Any]) -> list[str]:
    """Return the jobs of which the log says that we failed on them."""
    return [each["job"] for each in logs if each["event"] == "job.broken"]
