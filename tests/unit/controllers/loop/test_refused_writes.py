"""Somebody else's webhook or policy refuses for good what the reconciler writes on one object: others go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import PODS, pod_group, queued_cluster, waiting_job, waiting_pod
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config, Start
from webhook.core.reasons.reasons import Code
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
FORBIDDEN = Forbidden(403, "Forbidden", 'admission webhook "images.example.org" denied the request: untrusted image')
INVALID = Invalid(422, "Invalid", "spec.template: Invalid value: an older server stored what this one refuses")


class Refusing:
    """A connection on which patches of the job ``train`` are refused."""

    def __init__(self, api: Any, failure: ApiError) -> None:
        self._api = api
        self.failure: ApiError | None = failure
        self.only_starts = False
        self.refused = 0
        self.pods: ApiError | None = FORBIDDEN
        """What writes to the pod ``train-0`` are answered."""
        self.pods_refused = 0
        self.labels_refused = False
        self.labelled: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if "dryRun" in (more.get("query") or ()):
            return await self._api.request(method, path, **more)  # type: ignore[no-any-return]
        if method == "PATCH" and path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            self.labelled.append(path)
            if self.labels_refused:
                raise FORBIDDEN
        if method == "PATCH" and path == f"{PODS}/train-0" and self.pods is not None:
            self.pods_refused += 1
            raise self.pods
        if method == "PATCH" and path == f"{JOBS}/train" and self.failure is not None and self._concerned(more["body"]):
            self.refused += 1
            raise self.failure
        answer: bytes = await self._api.request(method, path, **more)
        return answer

    def _concerned(self, patch: bytes) -> bool:
        return not self.only_starts or b'"path":"/spec/suspend","value":false' in patch


class Stage:
    """A queue of four cpu, a leader, and two jobs that need three each."""

    def __init__(self, cluster: SimulatedCluster, failure: ApiError) -> None:
        self.cluster = cluster
        self.admin = cluster.api()
        self.line = Refusing(cluster.api(), failure)
        config = Config(start=Start(backoff_seconds=300, backoff_max_seconds=300))
        self.parts: ReconcilerParts = reconciler(self.line, config, identity="me", clock=LoopClock(), rng=Random(1))

    async def create(self, name: str) -> None:
        await self.cluster.create(waiting_job(name, pods=3))

    async def delete(self, name: str) -> None:
        body = b'{"propagationPolicy": "Background"}'
        await self.admin.request("DELETE", f"{JOBS}/{name}", body=body)

    async def started(self, name: str) -> bool:
        return not orjson.loads(await self.admin.request("GET", f"{JOBS}/{name}"))["spec"]["suspend"]

    def why(self, name: str) -> tuple[Code, str] | None:
        (job,) = (job for job in self.parts.view.jobs.values() if job.name == name)
        reason = self.parts.reconciler.reason(job.uid)
        return None if reason is None else (reason.code, str(reason))


@asynccontextmanager
async def stage(failure: ApiError = FORBIDDEN) -> AsyncIterator[Stage]:
    """Yield a stage with a leader."""
    async with queued_cluster() as cluster:
        play = Stage(cluster, failure)
        running = asyncio.create_task(play.parts.run())
        await asyncio.sleep(2)
        await play.create("train")
        await asyncio.sleep(2)
        await play.create("other")
        yield play
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_start_that_cannot_be_written_says_so_once_on_the_job() -> None:
    down = Unavailable(500, "InternalError", 'failed calling webhook "jobs.tutti.dev": connection refused')
    async with stage(down) as play:
        await asyncio.sleep(60)
        assert play.line.refused > 2
        events = orjson.loads(await play.admin.request("GET", "/api/v1/namespaces/team-a/events"))["items"]
        (told,) = (event for event in events if event["reason"] == "StartFailed")
        assert (told["involvedObject"]["name"], told["type"]) == ("train", "Warning")
        assert down.message in told["message"]


@pytest.mark.parametrize("failure", [FORBIDDEN, INVALID], ids=["forbidden", "invalid"])
async def test_a_gang_whose_start_is_refused_for_good_gives_its_quota_back(failure: ApiError) -> None:
    async with stage(failure) as play:
        await asyncio.sleep(120)
        assert await play.started("other")
        assert [entry.name for entry in play.parts.view.ledger.entries.values()] == ["other"]
        found = play.why("train")
        assert found is not None
        assert found[0] is Code.WRITE_REFUSED
        assert failure.message in found[1]


async def test_it_is_tried_seldom_and_holds_nothing_meanwhile() -> None:
    async with stage() as play:
        await play.delete("other")
        await asyncio.sleep(120)
        before = play.line.refused
        for _ in range(60):
            await asyncio.sleep(10)
            assert not play.parts.view.ledger.entries
        assert play.line.refused - before <= 21


async def test_it_queues_again_when_a_write_is_let_through() -> None:
    async with stage() as play:
        await play.delete("other")
        await asyncio.sleep(120)
        play.line.failure = None
        await asyncio.sleep(60)
        assert await play.started("train")


async def test_one_that_may_be_written_but_not_started_backs_off_like_any_that_did_not_come_up() -> None:
    async with stage() as play:
        play.line.only_starts = True
        await asyncio.sleep(120)
        assert await play.started("other")
        found = play.why("train")
        assert found is not None
        assert found[0] is Code.BACKING_OFF
        await play.delete("other")
        play.line.failure = None
        await asyncio.sleep(300)
        assert await play.started("train")


async def test_one_refusal_or_two_are_no_reason_to_give_up() -> None:
    """A policy that is just being installed, say."""
    async with stage() as play:
        await asyncio.sleep(3)
        play.line.failure = None
        await asyncio.sleep(25)
        assert await play.started("train")
        assert play.line.refused >= 2


async def test_plain_pods_that_may_not_be_written_give_their_quota_back_when_their_time_to_start_is_over() -> None:
    async with stage() as play:
        play.line.failure = None
        for name in ("train", "other"):
            await play.delete(name)
        await asyncio.sleep(60)
        await play.cluster.create(pod_group())
        await play.cluster.create(waiting_pod())
        await asyncio.sleep(5)
        assert [entry.name for entry in play.parts.view.ledger.entries.values()] == ["train"]
        await play.cluster.create(waiting_job("large", pods=4))
        await asyncio.sleep(400)
        assert await play.started("large")
        assert [entry.name for entry in play.parts.view.ledger.entries.values()] == ["large"]
        found = play.why("train")
        assert found is not None
        assert found[0] is Code.WRITE_REFUSED


@pytest.mark.parametrize(
    "denial",
    [
        FORBIDDEN,
        Conflict(409, "Conflict", "a webhook says no"),
        NotFound(404, "NotFound", "a webhook knows no such team"),
    ],
    ids=["forbidden", "conflict", "not found"],
)
async def test_pods_behind_our_gates_that_may_not_be_let_go_are_told_tried_ever_more_rarely_and_go_when_they_may(
    denial: ApiError,
) -> None:
    """As if the pod had changed, or were gone: it was written each second, or never again, and nobody told why."""
    async with stage() as play:
        play.line.failure, play.line.pods = None, denial
        for name in ("train", "other"):
            await play.delete(name)
        await asyncio.sleep(60)
        await play.cluster.create(pod_group())
        await play.cluster.create(waiting_pod())
        await asyncio.sleep(100)
        assert 4 <= play.line.pods_refused <= 12
        events = orjson.loads(await play.admin.request("GET", "/api/v1/namespaces/team-a/events"))["items"]
        failed = [event for event in events if event["reason"] == "StartFailed"]
        (told,) = (event["message"] for event in failed if event["involvedObject"]["kind"] == "PodGroup")
        assert denial.message in told
        play.line.pods = None
        await asyncio.sleep(400)
        pod = orjson.loads(await play.admin.request("GET", f"{PODS}/train-0"))
        assert pod["status"]["phase"] == "Running"


async def test_a_namespace_that_may_not_be_labelled_is_asked_seldom() -> None:
    async with stage() as play:
        play.line.labels_refused, play.line.failure = True, None
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "hard", "namespace": "team-a"}}
        await play.cluster.create({**quota, "spec": {"hard": {"pods": "50"}}})
        await asyncio.sleep(300)
        assert 5 < len(play.line.labelled) <= 11
        play.line.labels_refused = False
        await asyncio.sleep(60)
        assert len(play.line.labelled) <= 13
