"""A kind that the API server lets nobody list is a fault of its own: who needs it waits, all others go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.unit.server.reviews import ask, job, review
from webhook import metrics
from webhook.assembly.webhook import WebhookParts, webhook
from webhook.clock import LoopClock
from webhook.cluster.view import NAMESPACE_QUEUES, POD_GROUPS, POLICY
from webhook.cluster.waiting import waiting_gang
from webhook.config import Config
from webhook.core.reasons.reasons import Code, Reason
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.router import Answer, Request

pytestmark = pytest.mark.virtual_time

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "lq"}},
    "spec": {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    },
}


@asynccontextmanager
async def started(*unlistable: str) -> AsyncIterator[tuple[SimulatedCluster, WebhookParts]]:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        cluster.router.unlistable.update(unlistable)
        await cluster.create(JOB)
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        yield cluster, parts
        running.cancel()


def waits(parts: WebhookParts) -> Code | None:
    record = next(iter(parts.view.jobs.values()))
    found = waiting_gang(record, parts.view)
    return found.code if isinstance(found, Reason) else None


def unread_feeds() -> list[str]:
    """Return what the metric names."""
    return [each.labels["kind"] for metric in metrics.UNREAD_KINDS.collect() for each in metric.samples if each.value]


@pytest.mark.parametrize(
    ("resource", "topic"),
    [
        ("jobsets.jobset.x-k8s.io", "JobSet.jobset.x-k8s.io"),
        ("podgroups.scheduling.x-k8s.io", POD_GROUPS),
        ("clusterqueues.kueue.x-k8s.io", POLICY),
        ("localqueues.kueue.x-k8s.io", POLICY),
    ],
)
async def test_a_process_is_ready_without_a_kind_that_nobody_can_list(resource: str, topic: str) -> None:
    async with started(resource) as (cluster, parts):
        assert parts.view.synced
        assert list(parts.view.unread) == [topic]
        assert unread_feeds()
        assert "conversion webhook" in parts.view.unread[topic]
        assert waits(parts) == (Code.KIND_UNREAD if topic == POLICY else None)
        cluster.router.unlistable.clear()
        await asyncio.sleep(90)
        assert parts.view.unread == {}
        assert not unread_feeds()
        assert waits(parts) is None


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"", b"null", b"[]", b'{"items": {}}'], ids=repr)
async def test_a_process_is_ready_without_a_kind_whose_lists_are_answered_by_what_is_no_list(body: bytes) -> None:
    """As by a proxy before an extension API server."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        handle, broken = cluster.router.handle, True

        async def answered(request: Request) -> Answer:
            lists = request.method == "GET" and request.path.endswith("/jobsets")
            return Answer(200, body) if broken and lists else await handle(request)

        cluster.router.handle = answered  # type: ignore[method-assign]
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(60)
        assert parts.view.synced
        assert list(parts.view.unread) == ["JobSet.jobset.x-k8s.io"]
        assert "Malformed: list" in parts.view.unread["JobSet.jobset.x-k8s.io"]
        broken = False
        await asyncio.sleep(90)
        assert parts.view.unread == {}
        running.cancel()


@pytest.mark.parametrize("resource", ["jobs.batch", "pods.", "namespaces.", "resourcequotas."])
async def test_what_all_need_is_waited_for(resource: str) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        cluster.router.unlistable.add(resource)
        parts = webhook(cluster.api(), Config(), identity="w", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(60)
        assert not parts.view.synced
        assert parts.view.unread == {}
        cluster.router.unlistable.clear()
        await asyncio.sleep(90)
        assert parts.view.synced
        running.cancel()


async def test_jobs_of_an_unread_kind_are_refused_and_others_are_not() -> None:
    async with started("jobsets.jobset.x-k8s.io") as (_, parts):
        refused = {**JOB, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"suspend": True}}
        answer = await ask(parts.handler, "/validate/jobs", review(refused))
        assert answer.code == 503
        assert "conversion webhook" in answer.message
        assert (await ask(parts.handler, "/validate/jobs", review(job()))).code != 503


WATCHES_END_SECONDS = 320.0
"""Every watch has been opened again by then."""


async def test_jobs_of_a_kind_that_was_read_once_are_refused_as_soon_as_it_is_not() -> None:
    async with started() as (cluster, parts):
        new = {**JOB, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"suspend": True}}
        assert (await ask(parts.handler, "/validate/jobs", review(new))).code != 503
        cluster.router.unlistable.add("jobsets.jobset.x-k8s.io")
        await asyncio.sleep(WATCHES_END_SECONDS)
        assert list(parts.view.unread) == ["JobSet.jobset.x-k8s.io"]
        assert unread_feeds() == ["JobSet.jobset.x-k8s.io/v1alpha2"]
        assert parts.view.synced
        answer = await ask(parts.handler, "/validate/jobs", review(new))
        assert answer.code == 503
        assert "conversion webhook" in answer.message
        assert waits(parts) is None, "a Job is none of them"
        cluster.router.unlistable.clear()
        await asyncio.sleep(45)
        assert parts.view.unread == {}
        assert not unread_feeds()
        assert (await ask(parts.handler, "/validate/jobs", review(new))).code != 503


@pytest.mark.parametrize(
    ("resource", "topic"),
    [
        ("clusterqueues.kueue.x-k8s.io", POLICY),
        ("elasticquotatrees.scheduling.sigs.k8s.io", NAMESPACE_QUEUES),
        ("pods.", "pods"),
        ("resourcequotas.", "resourcequotas"),
        ("jobs.batch", "Job.batch/v1"),
    ],
)
async def test_what_was_read_once_of_policy_and_of_what_all_need_is_gone_by_and_named(
    resource: str, topic: str
) -> None:
    async with started() as (cluster, parts):
        cluster.router.unlistable.add(resource)
        await asyncio.sleep(WATCHES_END_SECONDS)
        assert list(parts.view.outdated) == [topic]
        assert parts.view.unread == {}
        assert unread_feeds()
        assert waits(parts) is None
        cluster.router.unlistable.clear()
        await asyncio.sleep(45)
        assert parts.view.outdated == {}
        assert not unread_feeds()


async def test_a_job_of_which_nobody_knows_whether_a_queue_holds_it_is_refused() -> None:
    """Leaves of an ElasticQuotaTree hold all jobs of a namespace: unread, they would pass by their queue for good."""
    async with started("elasticquotatrees.scheduling.sigs.k8s.io") as (_, parts):
        assert list(parts.view.unread) == [NAMESPACE_QUEUES]
        unlabelled = job()
        unlabelled["metadata"].pop("labels", None)
        assert (await ask(parts.handler, "/validate/jobs", review(unlabelled))).code == 503
        labelled = job()
        labelled["metadata"]["labels"] = {"tutti.dev/queue-name": "lq"}
        assert (await ask(parts.handler, "/validate/jobs", review(labelled))).code != 503
