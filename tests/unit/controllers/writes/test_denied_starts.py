"""A start that is answered as if the job were another, or gone, while all that is read says that it is neither."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import queued_cluster, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.reasons.reasons import Code
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


class Denying:
    """A connection on which somebody between us and the API server denies what is written to jobs."""

    def __init__(self, api: Any, denial: ApiError) -> None:
        self._api = api
        self.denial: ApiError | None = denial
        self.denied = 0
        self.moved_on = False
        """Jobs are of another version than whoever watches them was told."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "PATCH" and "/jobs/" in path and self.denial is not None:
            self.denied += 1
            raise self.denial
        answer: bytes = await self._api.request(method, path, **more)
        if method == "GET" and "/jobs/" in path and self.moved_on:
            document = orjson.loads(answer)
            document["metadata"]["resourceVersion"] = "999999"
            return orjson.dumps(document)
        return answer


@dataclass
class Site:
    """A leader that is denied what it writes to jobs."""

    cluster: SimulatedCluster
    line: Denying
    parts: ReconcilerParts

    async def create(self) -> str:
        """Create a job that may start, and return its uid."""
        return (await self.cluster.create(waiting_job())).uid

    async def note(self, namespace: str, reason: str) -> str:
        """Return what the only event of a reason says."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        events = orjson.loads(await self.cluster.api().request("GET", path))["items"]
        (note,) = [event["note"] for event in events if event["reason"] == reason]
        return str(note)


@asynccontextmanager
async def denied(denial: ApiError, *, job_first: bool = False) -> AsyncIterator[tuple[Site, str]]:
    """Run a reconciler that is denied, and create a job once it leads, or before; gives the job's uid with it."""
    async with queued_cluster() as cluster:
        line = Denying(cluster.api(), denial)
        parts = reconciler(line, Config(), identity="me", clock=LoopClock(), rng=Random(1))  # type: ignore[arg-type]
        site = Site(cluster, line, parts)
        uid = await site.create() if job_first else ""
        running = asyncio.create_task(parts.run())
        if not job_first:
            await asyncio.sleep(3)
            uid = await site.create()
        yield site, uid
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "denial",
    [Conflict(409, "Conflict", "a webhook says no"), NotFound(404, "NotFound", "a webhook knows no such team")],
    ids=["conflict", "not found"],
)
async def test_it_is_told_once_tried_ever_more_rarely_and_goes_on_when_it_may(denial: ApiError) -> None:
    async with denied(denial) as (site, uid):
        await asyncio.sleep(100)
        # After 0.5, 1, 2, 4, 8, 16 and 30 s.
        assert site.line.denied <= 12
        assert str(denial) in await site.note("team-a", "StartFailed")
        site.line.denial = None
        await asyncio.sleep(35)
        assert not site.parts.view.jobs[uid].suspended


@pytest.mark.parametrize(
    "denial",
    [Conflict(409, "Conflict", "a webhook says no"), NotFound(404, "NotFound", "a webhook knows no such team")],
    ids=["conflict", "not found"],
)
async def test_what_is_denied_for_good_holds_no_quota_says_why_it_waits_and_is_tried_again(denial: ApiError) -> None:
    async with denied(denial) as (site, uid):
        await asyncio.sleep(150)
        assert not site.parts.view.ledger.entries
        why = site.parts.reconciler.reason(uid)
        assert why is not None
        assert why.code is Code.WRITE_REFUSED
        assert str(denial) in why.message
        before = site.line.denied
        await asyncio.sleep(90)
        assert 2 <= site.line.denied - before <= 4
        site.line.denial = None
        await asyncio.sleep(35)
        assert not site.parts.view.jobs[uid].suspended


async def test_a_start_that_conflicts_because_nothing_is_heard_any_more_of_its_job_gives_up_nothing() -> None:
    """What was read of it is old: it may have been started by whoever led before."""
    async with denied(Conflict(409, "Conflict", "another version")) as (site, uid):
        site.line.moved_on = True
        await asyncio.sleep(200)
        assert uid in site.parts.view.ledger.entries


async def test_a_job_that_has_changed_is_not_left_alone() -> None:
    """What was denied may have been denied for what it was."""
    async with denied(Conflict(409, "Conflict", "a webhook says no")) as (site, uid):
        await asyncio.sleep(60)
        site.line.denial = None
        body = orjson.dumps({"metadata": {"labels": {"a": "b"}}})
        path, merge = "/apis/batch/v1/namespaces/team-a/jobs/train", "application/merge-patch+json"
        await site.cluster.api().request("PATCH", path, body=body, content_type=merge)
        await asyncio.sleep(3)
        assert not site.parts.view.jobs[uid].suspended


async def test_a_rebuild_that_waits_for_a_job_that_cannot_be_written_says_for_which_and_reads_all_rarely() -> None:
    """A start that an earlier leader sent could still come upon it: until that is ruled out nobody is admitted."""
    async with denied(Unavailable(500, "InternalError", "failed calling a webhook"), job_first=True) as (site, uid):
        await asyncio.sleep(100)
        # After 0.5, 1, 2 and 4 s, and each 8 s from then on.
        assert site.line.denied <= 5 + 100 / 8 + 1
        note = await site.note("tutti-system", "LedgerRebuildWaits")
        assert "1 job that an earlier leader may have started cannot be written" in note
        assert "team-a/train: 500 InternalError: failed calling a webhook" in note
        site.line.denial = None
        await asyncio.sleep(15)
        assert not site.parts.view.jobs[uid].suspended
