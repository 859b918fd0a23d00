"""A ledger near what a ConfigMap holds: gangs wait for room in it, are told, and nothing else stops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, POLICY, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.ledger.ledger_room import SHARE
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import bounds, pages
from webhook.core.ledger import text as ledger_text
from webhook.core.reasons.reasons import Code
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.laboratory.simulated.objects import validation
from webhook.laboratory.simulated.requests.router import Answer, Request

pytestmark = pytest.mark.virtual_time
BYTES_MAX = 8_000
JOBS = 60
"""Entries of about 200 bytes: together half as much again as fits."""
ONE_NAMESPACE = ledger_text.FULL_AT * BYTES_MAX * SHARE / (SHARE + 1)
"""What is admitted of one, while there is no other."""


@pytest.fixture(autouse=True)
def _small_config_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API server refuse a ConfigMap that is a hundredth of what it may be."""
    monkeypatch.setattr(pages, "PAGES_MAX", 1)
    monkeypatch.setattr(pages, "PAGE_BYTES", BYTES_MAX)
    monkeypatch.setattr(pages, "INDEX_BYTES", BYTES_MAX)
    monkeypatch.setattr(ledger_text, "BYTES_MAX", BYTES_MAX)
    monkeypatch.setattr(validation, "MAX_CONFIGMAP_BYTES", BYTES_MAX)


@asynccontextmanager
async def furnished(
    *jobs: dict[str, Any], cpu: int = 1000, pace: Pace | None = None
) -> AsyncIterator[SimulatedCluster]:
    """Yield a cluster with room for everybody, in which there are these jobs."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), pace=pace) as cluster:
        policy: tuple[dict[str, Any], ...] = deepcopy(POLICY)
        for item in policy:
            if item["kind"] == "ClusterQueue":
                item["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = cpu
                item["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
            await cluster.create(item)
        for number in range(4):
            await cluster.add_node(f"node-{number}")
        for job in jobs:
            await cluster.create(job)
        yield cluster


@asynccontextmanager
async def leader(cluster: SimulatedCluster, identity: str = "me") -> AsyncIterator[ReconcilerParts]:
    """Yield a reconciler that runs for so long."""
    parts = reconciler(cluster.api(), Config(nodeFit="off"), identity=identity, clock=LoopClock(), rng=Random(1))
    running = asyncio.create_task(parts.run())
    yield parts
    assert not running.done(), "the reconciler ended"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def led(
    *jobs: dict[str, Any], cpu: int = 1000, pace: Pace | None = None
) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster with room for everybody, in which these jobs were before there was a leader."""
    async with furnished(*jobs, cpu=cpu, pace=pace) as cluster, leader(cluster) as parts:
        yield cluster, parts


def job(number: int, *, suspended: bool = True) -> dict[str, Any]:
    """Return a Job of one pod that runs for a minute."""
    made = waiting_job(f"job-{number:02}", pods=1)
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "60s"}
    if not suspended:
        del made["spec"]["suspend"], template["metadata"]["labels"]
    return made


async def stored_bytes(cluster: SimulatedCluster) -> int:
    return ledger_text.size_bytes(project(await cluster.api().request("GET", LEDGER)).data)


async def finished(cluster: SimulatedCluster) -> int:
    items = orjson.loads(await cluster.api().request("GET", "/apis/batch/v1/namespaces/team-a/jobs"))["items"]
    return sum(any(c["type"] == "Complete" for c in item["status"].get("conditions") or ()) for item in items)


async def test_more_gangs_than_the_ledger_holds_start_one_after_another_as_others_end() -> None:
    async with led(*(job(number) for number in range(JOBS))) as (cluster, parts):
        await asyncio.sleep(10)
        assert 0.9 * ONE_NAMESPACE < await stored_bytes(cluster) <= ONE_NAMESPACE
        waiting = [uid for uid in parts.view.jobs if uid not in parts.view.ledger.entries]
        reasons = [parts.reconciler.reason(uid) for uid in waiting]
        assert waiting
        assert {None if reason is None else reason.code for reason in reasons} == {Code.LEDGER_FULL}
        await asyncio.sleep(300)
        assert await finished(cluster) == JOBS
        assert not parts.view.ledger.entries


async def test_a_large_gang_that_finds_no_room_does_not_stop_smaller_ones_nor_those_stopped_for_others() -> None:
    """Its own entry is a quarter of what fits; it starts when there is room for it."""
    async with led(*(job(number) for number in range(18)), cpu=18) as (cluster, parts):
        await asyncio.sleep(10)
        assert len(parts.view.ledger.entries) == 18
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        await cluster.create({**high, "value": 1000})
        large, small = job(30), job(31)
        for each in (large, small):
            each["spec"]["template"]["spec"]["priorityClassName"] = "high"
        limits = {f"example.com/{number:02}-{'x' * 40}": "1" for number in range(30)}
        large["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = limits
        del large["metadata"]["labels"]
        large["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "job-30"
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
        await cluster.create({**group, "metadata": {"name": "job-30", "namespace": "team-a"}, "spec": {"minMember": 1}})
        uid = (await cluster.create(large)).uid
        await asyncio.sleep(3)
        reason = parts.reconciler.reason(uid)
        assert reason is not None
        assert reason.code is Code.LEDGER_FULL
        await cluster.create(small)
        await asyncio.sleep(12)
        assert "job-31" in {entry.name for entry in parts.view.ledger.entries.values()}
        assert uid not in parts.view.ledger.entries
        await asyncio.sleep(300)
        assert uid in parts.view.ledger.entries or await finished(cluster) == 20


async def test_a_gang_that_no_ledger_could_hold_waits_alone_also_while_the_ledger_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "too_large", lambda gang: None)
    huge = job(30)
    limits = {f"example.com/{number}": "9P" for number in range(600)}
    huge["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = limits
    del huge["metadata"]["labels"]
    huge["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "job-30"
    async with led() as (cluster, parts):
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
        await cluster.create({**group, "metadata": {"name": "job-30", "namespace": "team-a"}, "spec": {"minMember": 1}})
        uid = (await cluster.create(huge)).uid
        await asyncio.sleep(5)
        reason = parts.reconciler.reason(uid)
        assert reason is not None
        assert reason.code is Code.ENTRY_TOO_LARGE
        await cluster.create(job(31))
        await asyncio.sleep(5)
        assert [entry.name for entry in parts.view.ledger.entries.values()] == ["job-31"]


async def test_more_jobs_that_ran_before_tutti_than_the_ledger_holds_are_adopted_as_others_end() -> None:
    async with led(*(job(number, suspended=False) for number in range(JOBS))) as (cluster, parts):
        await asyncio.sleep(10)
        assert 0.8 * BYTES_MAX < await stored_bytes(cluster) <= BYTES_MAX
        await asyncio.sleep(300)
        assert await finished(cluster) == JOBS
        assert not parts.view.ledger.entries


async def test_claims_that_would_overfill_the_ledger_are_left_out_of_it_and_taken_up_all_the_same() -> None:
    """Each of them is as long as an entry, and as many gangs run as fit."""
    first, later = [job(number) for number in range(20)], [job(number) for number in range(20, 40)]
    async with led(*first, cpu=20) as (cluster, parts):
        await asyncio.sleep(10)
        assert len(parts.view.ledger.entries) == 20
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        await cluster.create({**high, "value": 1000})
        for each in later:
            each["spec"]["template"]["spec"]["priorityClassName"] = "high"
            await cluster.create(each)
        await asyncio.sleep(45)
        held = {entry.name for entry in parts.view.ledger.entries.values()}
        assert held == {each["metadata"]["name"] for each in later}
        await asyncio.sleep(300)
        assert await finished(cluster) == 40


async def test_claims_that_were_left_out_are_not_tried_again_at_each_look() -> None:
    """Here those who make room take an hour to go."""
    first = [job(number) for number in range(20)]
    for each in first:
        each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
    async with led(*first, cpu=20, pace=Pace(pod_stop_seconds=3600)) as (cluster, parts):
        await asyncio.sleep(10)
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        await cluster.create({**high, "value": 1000})
        for number in range(20, 40):
            made = job(number)
            made["spec"]["template"]["spec"]["priorityClassName"] = "high"
            await cluster.create(made)
        await asyncio.sleep(10)
        stored = parts.view.ledger.claims
        assert 0 < len(stored) < 20, "as many as fit"
        written, handle = list[bytes](), cluster.router.handle

        async def counted(request: Request) -> Answer:
            if request.method == "PATCH" and request.path == LEDGER and b'"claims"' in request.body:
                written.append(request.body)
            return await handle(request)

        cluster.router.handle = counted  # type: ignore[method-assign]
        await asyncio.sleep(15)
        assert not written
        assert parts.view.ledger.claims == stored
