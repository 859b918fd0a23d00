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

from tests.unit.controllers.stage import JOB, LEDGER, PODS, pod_group, queued_cluster, waiting_job, waiting_pod
from tests.unit.samples import sample
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.cluster.queue_counts import QueueCounts
from webhook.config import Config
from webhook.controllers.gangs import gated_pods
from webhook.controllers.loop import failed_gangs
from webhook.core.assignment.decision import Decision
from webhook.core.notation import names
from webhook.core.pending.pending_queue import EquivalenceClass
from webhook.core.pod_group.ensemble_engine import EnsembleEngine
from webhook.core.quota.allocations import Allocation
from webhook.core.reasons.reasons import Code, Reason
from webhook.core.scheduler import explain, growth
from webhook.core.scheduler.state import State
from webhook.jobs.patches import job as patches
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

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


def fail_on(monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
    """Have the engine fail whenever it decides about a job of these names."""
    genuine = State.decide

    def decide(state: State, eclass: EquivalenceClass, **more: Any) -> Decision:
        assert eclass.head.name not in broken, "an invariant that nobody thought would break"
        return genuine(state, eclass, **more)

    monkeypatch.setattr(State, "decide", decide)


async def test_a_gang_on_which_the_engine_fails_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on(monkeypatch, "train", "worse")
    before = sample("tutti_broken_jobs_total")
    with structlog.testing.capture_logs() as logs:
        async with led() as (cluster, parts):
            for name in ("train", "worse", "other"):
                await cluster.create(waiting_job(name))
            await asyncio.sleep(5)
            assert not await suspended(cluster, "other")
            # What comes later costs it no further term, and what it failed on is not forgotten.
            await label(cluster, 1)
            await asyncio.sleep(60)
            assert await suspended(cluster, "train")
            assert await suspended(cluster, "worse")
            assert str(parts.reconciler.reason(await uid(cluster))).startswith("Tutti failed on this job")
            await cluster.api().request("DELETE", JOB)
            await cluster.create(waiting_job("another"))
            await asyncio.sleep(5)
            assert not await suspended(cluster, "another")
    said = sorted(each["jobs"] for each in logs if each["event"] == "gang.broken")
    assert said == ["team-a/train", "team-a/worse"]
    assert sample("tutti_broken_jobs_total") == before + 2


async def test_of_two_replicas_each_fails_once_on_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on(monkeypatch, "train")
    async with queued_cluster() as cluster:
        # The engine has admitted the first when it fails on the second: nothing of that is carried out, or kept.
        for name in ("first", "train", "other"):
            await cluster.create(waiting_job(name))
        running = [
            asyncio.create_task(
                reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(name)).run()
            )
            for name in ("one", "two")
        ]
        before = sample("tutti_stepped_down_total", why="bug")
        await asyncio.sleep(10)
        assert not await suspended(cluster, "first")
        assert not await suspended(cluster, "other")
        ledger = orjson.loads(await cluster.api().request("GET", LEDGER))["data"]
        assert len(ledger) == len({"meta", "first", "other"})
        await asyncio.sleep(60)
        assert sample("tutti_stepped_down_total", why="bug") - before <= 2
        assert not any(task.done() for task in running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def fail_to_explain(monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
    """Have the engine fail whenever it is asked why a job of these names waits."""
    genuine = explain.why_waiting

    def why_waiting(state: State, uid: str) -> Reason | None:
        waiting = state.pending.records.get(uid)
        assert waiting is None or waiting.gang.name not in broken, "an invariant that nobody thought would break"
        return genuine(state, uid)

    monkeypatch.setattr("webhook.core.scheduler.engine.why_waiting", why_waiting)


async def test_a_gang_that_cannot_be_explained_keeps_no_news_of_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_explain(monkeypatch, "train")
    before = sample("tutti_stepped_down_total", why="bug")
    async with led() as (cluster, _):
        await cluster.create(waiting_job("train", pods=50))
        await cluster.create(waiting_job("worse", pods=60))
        await cluster.create(waiting_job("other"))
        await asyncio.sleep(20)
        assert not await suspended(cluster, "other")
        said = dict(await queued(cluster))
        assert said["train"].startswith("Unreadable: Tutti failed on this job")
        assert said["worse"].startswith("ExceedsMaxQuota")
        await asyncio.sleep(60)
    assert sample("tutti_stepped_down_total", why="bug") == before + 1


async def test_a_follower_that_cannot_explain_a_gang_begins_anew_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with led() as (cluster, parts):
        follower = reconciler(cluster.api(), Config(), identity="second", clock=LoopClock(), rng=Random(2))
        running = asyncio.create_task(follower.run())
        await cluster.create(waiting_job("train", pods=50))
        await cluster.create(waiting_job("worse", pods=60))
        await asyncio.sleep(5)
        uids = {job.name: job.uid for job in follower.view.jobs.values()}
        fail_to_explain(monkeypatch, "train")
        assert str(follower.reconciler.reason(uids["train"])).startswith("Tutti failed on this job")
        held = follower.reconciler.reason(uids["worse"])
        assert held is not None
        assert held.code is Code.PENDING_EVALUATION, "what the engine holds is not to be trusted"
        await asyncio.sleep(1)
        known = follower.reconciler.reason(uids["worse"])
        assert known is not None
        assert known.code is Code.EXCEEDS_MAX_QUOTA
        assert str(follower.reconciler.reason(uids["train"])).startswith("Tutti failed on this job")
        assert parts.reconciler.leading
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_plain_pods_that_we_fail_to_let_go_do_not_end_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def lifting(*_: Any) -> Any:
        raise KeyError("a shape that nobody thought of")

    before = sample("tutti_stepped_down_total", why="bug")
    monkeypatch.setattr(gated_pods, "lifting", lifting)
    with structlog.testing.capture_logs() as logs:
        async with led() as (cluster, _):
            await cluster.create(pod_group())
            await cluster.create(waiting_pod())
            await cluster.create(waiting_job("other"))
            await asyncio.sleep(20)
            assert not await suspended(cluster, "other")
    assert told(logs) == ["team-a/train"]
    assert sample("tutti_stepped_down_total", why="bug") == before


async def test_a_running_gang_at_whose_growth_the_engine_fails_runs_on_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = growth.grow

    def grow(allocation: Allocation, *others: Any) -> Allocation | None:
        assert allocation.gang is None or allocation.gang.name != "train", "an invariant nobody thought of"
        return genuine(allocation, *others)

    before = sample("tutti_stepped_down_total", why="bug")
    async with led() as (cluster, _):
        await cluster.create(pod_group())
        await cluster.create(waiting_pod())
        await asyncio.sleep(5)
        monkeypatch.setattr("webhook.core.scheduler.cycle.grow", grow)
        second = waiting_pod()
        second["metadata"]["name"] = "train-1"
        await cluster.create(second)
        await cluster.create(waiting_job("other"))
        await asyncio.sleep(60)
        assert not await suspended(cluster, "other")
        pods = orjson.loads(await cluster.api().request("GET", PODS))["items"]
        gated = {pod["metadata"]["name"]: bool(pod["spec"].get("schedulingGates")) for pod in pods}
        assert {name: gated[name] for name in ("train-0", "train-1")} == {"train-0": False, "train-1": True}
    assert sample("tutti_stepped_down_total", why="bug") == before + 1


async def test_many_jobs_of_one_podgroup_are_one_gang_that_failed_and_few_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or one tenant's would be as many as end the process, in a text as long as they like."""
    monkeypatch.setattr(failed_gangs, "FAILED_MAX", 3)
    fail_on(monkeypatch, "train", "worse")
    genuine = EnsembleEngine.deciding

    def deciding(engine: EnsembleEngine) -> tuple[str, ...]:
        found = genuine(engine)
        return (*found, *(f"sibling-{number}" for number in range(1000))) if found else ()

    monkeypatch.setattr(EnsembleEngine, "deciding", deciding)
    with structlog.testing.capture_logs() as logs:
        async with led() as (cluster, _):
            for name in ("train", "worse", "other"):
                await cluster.create(waiting_job(name))
            await asyncio.sleep(5)
            assert not await suspended(cluster, "other")
    said = [each["jobs"] for each in logs if each["event"] == "gang.broken"]
    assert len(said) == 2
    assert max(map(len, said)) < 100


async def test_where_the_engine_fails_on_each_gang_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_gangs, "FAILED_MAX", 3)
    fail_on(monkeypatch, *(f"train-{number}" for number in range(5)))
    async with queued_cluster() as cluster:
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        for number in range(5):
            await cluster.create(waiting_job(f"train-{number}"))
        await asyncio.wait([running], timeout=60)
        ended = running.exception()
        assert isinstance(ended, ExceptionGroup)
        assert ended.subgroup(AssertionError) is not None


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
        mark["metadata"]["annotations"] = {names.HOLD: None}
        await cluster.api().request("PATCH", JOB, body=orjson.dumps(mark), content_type=MERGE_PATCH)
        await asyncio.sleep(5)
        assert waiting() == 1
        assert len(await queued(cluster)) == 1, "it waits for what was told before"


async def queued(cluster: SimulatedCluster) -> list[tuple[str, str]]:
    """Return what the events of team-a say of jobs that wait: names and notes."""
    events = await cluster.api().request("GET", "/apis/events.k8s.io/v1/namespaces/team-a/events")
    items = [each for each in orjson.loads(events)["items"] if each["reason"] == "Queued"]
    return [(each["regarding"]["name"], each["note"]) for each in items]


async def uid(cluster: SimulatedCluster) -> str:
    found: str = orjson.loads(await cluster.api().request("GET", JOB))["metadata"]["uid"]
    return found


async def suspended(cluster: SimulatedCluster, name: str) -> bool:
    found: bool = orjson.loads(await cluster.api().request("GET", JOB.replace("train", name)))["spec"]["suspend"]
    return found


async def label(cluster: SimulatedCluster, number: int) -> None:
    """Have somebody write the job, so that it is looked at."""
    body = orjson.dumps({"metadata": {"labels": {"number": str(number)}}})
    await cluster.api().request("PATCH", JOB, body=body, content_type=MERGE_PATCH)


def told(logs: list[Any]) -> list[str]:
    """Return the jobs of which the log says that we failed on them."""
    return [each["job"] for each in logs if each["event"] == "job.broken"]
