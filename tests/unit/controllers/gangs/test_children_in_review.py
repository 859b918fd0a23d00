"""What a tenant does to the Jobs of a JobSet while each write is reviewed: no queue is overdrawn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.simulation.reviews import ACCOUNT, registrations
from tests.unit.controllers.gangs.test_orphans import GATED, JOB_SET, job_set, pods_of, prepare
from tests.unit.controllers.stage import waiting_job
from webhook import errors
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.identity import ADMIN, User
from webhook.server.handler import ReviewHandler

pytestmark = pytest.mark.virtual_time
ALICE = User.named("alice@example.com")
JOBS = tuple(f"/apis/batch/v1/namespaces/team-a/jobs/train-w-{number}" for number in range(2))


@asynccontextmanager
async def reviewed(
    *before: dict[str, Any], gated: bool = False
) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster with a queue of four cpu; ``before`` runs when Tutti comes."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster, gated=gated)
        for item in before:
            await cluster.create(item)
        await asyncio.sleep(5)
        parts = reconciler(cluster.api(ACCOUNT), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        handler = ReviewHandler(parts.view)

        async def review(path: str, body: bytes) -> bytes:
            return (await handler.review(path, body, 2.0))[1]

        for each in registrations(review, lambda _request: False):
            cluster.server.admission.register(each)
        yield cluster, parts
        running.cancel()


async def patch(cluster: SimulatedCluster, path: str, change: dict[str, Any]) -> None:
    await cluster.api(ALICE).request("PATCH", path, body=orjson.dumps(change), content_type=MERGE_PATCH)


def held(parts: ReconcilerParts) -> dict[str, int]:
    """Return how many pods each gang in the ledger holds room for."""
    return {entry.name: sum(entry.counts.values()) for entry in parts.view.ledger.entries.values()}


def naming(queue: str, made: dict[str, Any]) -> dict[str, Any]:
    """Return a JobSet whose Jobs name a queue."""
    made["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {names.QUEUE_LABELS[0]: queue}}
    return made


@pytest.mark.parametrize("by_its_author", [False, True], ids=["on its Jobs", "on what its Jobs are made of"])
async def test_a_planted_mark_lets_nothing_past_a_full_queue(*, by_its_author: bool) -> None:
    """Nobody sends a JobSet in no queue that bears it in its template of Jobs, where it is none of ours."""
    made, mark = naming("research", job_set(suspend=False)), {"labels": {names.GANG_LABEL: "x"}}
    made["metadata"] = {"name": "train", "namespace": "team-a"}
    if by_its_author:
        made["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"] |= mark["labels"]
    async with reviewed(made) as (cluster, parts):
        await cluster.create(waiting_job("other", pods=4), ALICE)
        await asyncio.sleep(10)
        assert len(await pods_of(cluster)) == 8
        for job in () if by_its_author else JOBS:
            with pytest.raises(errors.Forbidden, match="written only by Tutti"):
                await patch(cluster, job, {"metadata": mark})
        await cluster.api(ALICE).request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(60)
        assert held(parts) == {"other": 4}
        assert len(await pods_of(cluster)) == 4


async def test_the_jobs_of_an_adopted_set_do_not_grow_in_a_gated_namespace() -> None:
    async with reviewed(job_set(suspend=False), gated=True) as (cluster, parts):
        for job in JOBS:
            with pytest.raises(errors.Forbidden, match="would have 12 pods"):
                await patch(cluster, job, {"spec": {"parallelism": 12, "completions": 12}})
            await patch(cluster, job, {"spec": {"parallelism": 1}})
        await asyncio.sleep(30)
        assert held(parts) == {"train": 4}
        assert len(await pods_of(cluster)) == 2


@GATED
@pytest.mark.parametrize("by", ["an unknown queue", "a PodGroup"])
async def test_an_adopted_gang_does_not_leave_its_queue_while_it_runs(by: str, *, gated: bool) -> None:
    """Its room would go to others, beside it."""
    made = job_set(suspend=False)
    if by == "a PodGroup":
        template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["metadata"] = {"labels": {names.POD_GROUP_LABELS[0]: "train"}}
    else:
        naming("unknown", made)
    async with reviewed(made, gated=gated) as (cluster, parts):
        assert held(parts) == {"train": 4}
        await cluster.create(waiting_job("other", pods=4), ALICE)
        await cluster.api(ADMIN).request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(60)
        assert held(parts) == {"other": 4}
        assert len(await pods_of(cluster)) == 4


@GATED
@pytest.mark.parametrize("queue", [None, "research"], ids=["no queue", "the same queue"])
async def test_what_names_no_other_queue_runs_on(queue: str | None, *, gated: bool) -> None:
    made = job_set(suspend=False) if queue is None else naming(queue, job_set(suspend=False))
    async with reviewed(made, gated=gated) as (cluster, parts):
        before = {pod["metadata"]["uid"] for pod in await pods_of(cluster)}
        await cluster.create(waiting_job("other", pods=4), ALICE)
        await cluster.api(ADMIN).request("DELETE", JOB_SET, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(60)
        assert {pod["metadata"]["uid"] for pod in await pods_of(cluster)} == before
        assert sum(held(parts).values()) == 4
