"""What a tenant does to the Jobs of a JobSet while each write is reviewed: no queue is overdrawn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.simulation.reviews import ACCOUNT, registrations
from tests.unit.controllers.gangs.test_orphans import GATED, JOB_SET, job_set, leader, pods_of, prepare
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


QUOTA = 4
ORPHANS = b'{"propagationPolicy": "Orphan"}'


async def most(cluster: SimulatedCluster, parts: ReconcilerParts, seconds: float) -> tuple[int, int]:
    """Return how many pods live together at most in that time, and for how many room is held."""
    pods, room = 0, 0
    for _ in range(round(seconds * 10)):
        await asyncio.sleep(0.1)
        phases = [(pod.get("status") or {}).get("phase") for pod in await pods_of(cluster)]
        pods = max(pods, sum(phase not in ("Succeeded", "Failed") for phase in phases))
        room = max(room, sum(held(parts).values()))
    return pods, room


def slow_to_end(made: dict[str, Any]) -> dict[str, Any]:
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 120
    return made


@pytest.mark.parametrize("queue", ["unknown", "research"])
@pytest.mark.parametrize("slow", [False, True], ids=["", "and its pods take two minutes to end"])
async def test_the_room_of_an_adopted_gang_is_held_once_while_an_orphan_of_it_has_pods(
    queue: str, *, slow: bool
) -> None:
    """Its Jobs name a queue: another one, so that they are suspended as it is deleted, or that gang's own."""
    made = naming(queue, job_set(suspend=False))
    async with reviewed(slow_to_end(made) if slow else made) as (cluster, parts):
        before = {pod["metadata"]["uid"] for pod in await pods_of(cluster)}
        await cluster.create(waiting_job("other", pods=QUOTA), ALICE)
        await asyncio.sleep(5)
        await cluster.api(ADMIN).request("DELETE", JOB_SET, body=ORPHANS)
        assert await most(cluster, parts, 180) == (QUOTA, QUOTA)
        runs_on = before == {pod["metadata"]["uid"] for pod in await pods_of(cluster)}
        assert (held(parts), runs_on) == (({"train": 4}, True) if queue == "research" else ({"other": 4}, False))


@pytest.mark.parametrize("changed", JOBS, ids=["the first", "the second"])
async def test_an_orphan_that_is_suspended_and_then_asks_for_a_queue_frees_no_room_of_its_old_pods(
    changed: str,
) -> None:
    """Once these are gone it is a gang of its own. What the others run stays charged to the old one."""
    async with reviewed(slow_to_end(job_set(suspend=False))) as (cluster, parts):
        await cluster.create(waiting_job("other", pods=QUOTA), ALICE)
        await asyncio.sleep(5)
        await cluster.api(ADMIN).request("DELETE", JOB_SET, body=ORPHANS)
        await asyncio.sleep(10)
        for job in (changed, *(job for job in JOBS if job != changed)):
            await patch(cluster, job, {"spec": {"suspend": True}})
            await patch(cluster, job, {"metadata": {"labels": {names.QUEUE_LABELS[0]: "research"}}})
            pods, room = await most(cluster, parts, 180)
            assert pods <= QUOTA
            assert room == QUOTA
            if job == changed:
                assert held(parts) == {"train": 4}
        assert sum(held(parts).values()) == QUOTA
        assert "train" not in held(parts)


async def test_an_orphan_of_an_adopted_gang_is_charged_once_though_nobody_saw_how_it_lost_its_owner() -> None:
    """Whoever leads next knows it by the label of its controller, though it names a queue."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        await cluster.create(naming("research", job_set(suspend=False)))
        await asyncio.sleep(5)
        for name in ("one", "two"):
            parts = leader(cluster, name)
            running = asyncio.create_task(parts.run())
            assert await most(cluster, parts, 60) == (QUOTA, QUOTA)
            assert held(parts) == {"train": 4}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if name == "one":
                await cluster.api().request("DELETE", JOB_SET, body=ORPHANS)
                await asyncio.sleep(2)


async def test_an_orphan_that_bears_no_uid_is_charged_once_where_somebody_saw_its_owner() -> None:
    """Most controllers write no uid on what they make, and what names a queue is believed no name."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        await cluster.create(slow_to_end(naming("research", job_set(suspend=False))))
        await asyncio.sleep(5)
        for job in JOBS:
            await patch(cluster, job, {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-uid": None}}})
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        await cluster.api().request("DELETE", JOB_SET, body=ORPHANS)
        assert await most(cluster, parts, 60) == (QUOTA, QUOTA)
        assert held(parts) == {"train": 4}
        await cluster.create(waiting_job("other", pods=QUOTA), ALICE)
        for job in JOBS:
            await patch(cluster, job, {"spec": {"suspend": True}})
        pods, room = await most(cluster, parts, 180)
        assert pods <= QUOTA
        assert room == QUOTA
        assert "train" not in held(parts)
        running.cancel()


@GATED
@pytest.mark.parametrize("queue", [None, "research"])
async def test_an_orphan_keeps_the_labels_that_say_for_which_gang_it_was_made(
    queue: str | None, *, gated: bool
) -> None:
    """Its room would be given away by who leads next, and its pods charged to another orphaned gang."""
    made = job_set(suspend=False)
    async with reviewed(made if queue is None else naming(queue, made), gated=gated) as (cluster, _):
        await cluster.api(ADMIN).request("DELETE", JOB_SET, body=ORPHANS)
        await asyncio.sleep(5)
        for uid in ("another", None):
            change = {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-uid": uid}}}
            if queue is None and not gated:
                # It waits for nobody, and may run whatever it likes.
                await patch(cluster, JOBS[0], change)
                continue
            with pytest.raises(errors.Forbidden, match="for which object it was made do not change"):
                await patch(cluster, JOBS[0], change)
        await patch(cluster, JOBS[0], {"metadata": {"labels": {"team": "b"}}})
