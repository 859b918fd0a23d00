"""A ledger is made while a kind cannot be listed: others go on, unless something of that kind runs and holds quota."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from tests.unit.cluster.test_unread_kinds import WATCHES_END_SECONDS
from tests.unit.controllers.gangs.test_orphans import job_set, leader
from tests.unit.controllers.stage import LEDGER, queued_cluster, waiting_job
from webhook.assembly.reconciler import ReconcilerParts
from webhook.cluster.view import POD_GROUPS
from webhook.core.reasons.reasons import Code
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
JOB_SETS = "jobsets.jobset.x-k8s.io"
EVENTS = "/api/v1/namespaces/tutti-system/events"


def held(parts: ReconcilerParts) -> list[str]:
    return sorted(entry.name for entry in parts.view.ledger.entries.values())


async def told(cluster: SimulatedCluster) -> list[str]:
    return await events(cluster, "LedgerRebuildWaits")


async def events(cluster: SimulatedCluster, reason: str) -> list[str]:
    items = orjson.loads(await cluster.api().request("GET", EVENTS))["items"]
    return [item["message"] for item in items if item["reason"] == reason]


async def end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("unread", [JOB_SETS, "podgroups.scheduling.x-k8s.io"])
async def test_at_the_installation_only_that_kind_waits(unread: str) -> None:
    """What ran before is adopted when it can be read, as it would have been."""
    async with queued_cluster() as cluster:
        if unread == JOB_SETS:
            await cluster.create(job_set(suspend=False))
        cluster.router.unlistable.add(unread)
        parts = leader(cluster, "one")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(30)
        assert list(parts.view.unread) == [POD_GROUPS if unread != JOB_SETS else "JobSet.jobset.x-k8s.io"]
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(10)
        assert held(parts) == ["other"]
        assert await told(cluster) == []
        cluster.router.unlistable.clear()
        await asyncio.sleep(90)
        assert held(parts) == (["other", "train"] if unread == JOB_SETS else ["other"])
        await end(running)


async def test_a_lost_ledger_waits_for_a_kind_of_which_pods_run_and_says_so() -> None:
    """What they hold stands on their job alone: it would be given to others."""
    async with queued_cluster() as cluster:
        first = leader(cluster, "first")
        running = asyncio.create_task(first.run())
        await asyncio.sleep(5)
        await cluster.create(job_set(suspend=True))
        await asyncio.sleep(10)
        assert held(first) == ["train"]
        await end(running)
        await cluster.api().request("DELETE", LEDGER)
        cluster.router.unlistable.add(JOB_SETS)
        second = leader(cluster, "second")
        running = asyncio.create_task(second.run())
        await asyncio.sleep(30)
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(60)
        assert held(second) == []
        (said,) = await told(cluster)
        assert "JobSet.jobset.x-k8s.io" in said
        assert "4 pods" in said
        assert "conversion webhook" in said
        cluster.router.unlistable.clear()
        await asyncio.sleep(90)
        assert held(second) == ["train"], "and the other waits for its quota"
        await end(running)


async def test_a_lost_ledger_is_rebuilt_without_a_kind_of_which_nothing_runs() -> None:
    async with queued_cluster() as cluster:
        first = leader(cluster, "first")
        running = asyncio.create_task(first.run())
        await asyncio.sleep(5)
        await cluster.create(waiting_job("train", pods=2))
        await asyncio.sleep(10)
        await end(running)
        await cluster.api().request("DELETE", LEDGER)
        cluster.router.unlistable.add(JOB_SETS)
        second = leader(cluster, "second")
        running = asyncio.create_task(second.run())
        await asyncio.sleep(30)
        await cluster.create(waiting_job("other", pods=2))
        await asyncio.sleep(10)
        assert held(second) == ["other", "train"]
        assert await told(cluster) == []
        await end(running)


@asynccontextmanager
async def led() -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster with a queue and its leader, which has read every kind."""
    async with queued_cluster() as cluster:
        parts = leader(cluster, "one")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(5)
        yield cluster, parts
        await end(running)


async def test_a_kind_that_was_read_once_waits_alone_and_an_event_names_it() -> None:
    async with led() as (cluster, parts):
        cluster.router.unlistable.add(JOB_SETS)
        # Not seen yet when the watch is refused, it is one of those that cannot be judged as they are.
        await asyncio.sleep(WATCHES_END_SECONDS)
        await cluster.create(waiting_job("other", pods=2))
        await asyncio.sleep(10)
        assert held(parts) == ["other"]
        (said,) = await events(cluster, "KindUnread")
        assert "JobSet.jobset.x-k8s.io" in said
        assert "conversion webhook" in said


async def test_jobs_that_wait_of_a_kind_that_was_read_once_are_given_nothing() -> None:
    """Nobody could start them."""
    async with led() as (cluster, parts):
        await cluster.create(waiting_job("first", pods=4))
        await asyncio.sleep(5)
        uid = (await cluster.create(job_set(suspend=True))).uid
        await asyncio.sleep(5)
        cluster.router.unlistable.add(JOB_SETS)
        await asyncio.sleep(WATCHES_END_SECONDS)
        await cluster.api().request("DELETE", f"{JOBS}/first", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(60)
        assert held(parts) == []
        reason = parts.reconciler.reason(uid)
        assert reason is not None
        assert reason.code is Code.KIND_UNREAD
        cluster.router.unlistable.clear()
        await asyncio.sleep(45)
        assert held(parts) == ["train"]


@pytest.mark.parametrize("runs", [False, True], ids=["none has started", "one runs"])
async def test_a_lost_ledger_is_rebuilt_though_a_kind_that_was_read_once_is_refused(runs: bool) -> None:
    """What its gangs hold this process has read in the ledger before."""
    async with led() as (cluster, parts):
        if runs:
            await cluster.create(job_set(suspend=True))
            await asyncio.sleep(10)
        cluster.router.unlistable.add(JOB_SETS)
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(20)
        await cluster.create(waiting_job("other", pods=4))
        await asyncio.sleep(30)
        assert held(parts) == (["train"] if runs else ["other"])
        assert parts.view.ledger_trusted
        assert await told(cluster) == []
        cluster.router.unlistable.clear()
        await asyncio.sleep(90)
        assert held(parts) == (["train"] if runs else ["other"])


@pytest.mark.parametrize("needed", ["pods.", "jobs.batch"])
async def test_a_lost_ledger_waits_for_what_everything_is_proved_by_and_says_so(needed: str) -> None:
    async with led() as (cluster, parts):
        await cluster.create(waiting_job("train", pods=4))
        await asyncio.sleep(10)
        cluster.router.unlistable.add(needed)
        await cluster.api().request("DELETE", LEDGER)
        await asyncio.sleep(60)
        assert not parts.view.ledger_trusted
        (said,) = await told(cluster)
        assert "conversion webhook" in said
        cluster.router.unlistable.clear()
        await asyncio.sleep(60)
        assert parts.view.ledger_trusted
        assert held(parts) == ["train"]
