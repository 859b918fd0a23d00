"""A ledger is rebuilt only after every start that an earlier leader sent can no longer land (ledger rule 4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import POLICY, stage
from tests.unit.controllers.stage import waiting_job as queued_job
from tests.unit.samples import sample
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.ledger.recovery import Recovery
from webhook.core.notation import names
from webhook.errors import ApiError, Conflict, Invalid, Unavailable
from webhook.kube.api import MERGE_PATCH
from webhook.kube.election import LeaderRecord, render
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.base import Pace
from webhook.wire.times import micro_time_text

pytestmark = pytest.mark.virtual_time
LEDGER = "/api/v1/namespaces/tutti-system/configmaps/tutti-ledger"
JOB = "/apis/batch/v1/namespaces/team-a/jobs/train"


class Refusing:
    """A connection on which patches of jobs fail, until a test lets them through."""

    def __init__(self, api: Any, failure: ApiError) -> None:
        self._api = api
        self.failure: ApiError | None = failure
        self.tried = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "PATCH" and "/jobs/" in path:
            self.tried += 1
            if self.failure is not None:
                raise self.failure
        answer: bytes = await self._api.request(method, path, **more)
        return answer


def waiting_job() -> dict[str, Any]:
    """Return a Job that waits in a queue which nobody has made."""
    spec = {"containers": [{"name": "main", "image": "train:1"}], "restartPolicy": "Never"}
    metadata = {"name": "train", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}}
    body = {"suspend": True, "template": {"metadata": {"labels": {names.GANG_LABEL: "pending"}}, "spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


async def ledger_is_written(admin: Any) -> bool:
    """Return whether a rebuilt ledger is stored."""
    try:
        return bool(orjson.loads(await admin.request("GET", LEDGER)).get("data"))
    except ApiError:
        return False


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable(0, "Timeout", "nobody knows", outcome_unknown=True),
        Unavailable(500, "InternalError", "failed calling webhook"),
        Conflict(409, "Conflict", "another version"),
    ],
    ids=["unknown", "unavailable", "conflict"],
)
async def test_no_ledger_stands_before_each_waiting_job_was_written(failure: ApiError) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        admin = cluster.api()
        await cluster.create(waiting_job())
        api = Refusing(cluster.api(), failure)
        parts = reconciler(api, Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        assert api.tried > 3
        assert not await ledger_is_written(admin)
        api.failure = None
        await asyncio.sleep(5)
        assert await ledger_is_written(admin)
        assert names.VOIDED in orjson.loads(await admin.request("GET", JOB))["metadata"]["annotations"]
        running.cancel()


@pytest.mark.parametrize("ends", ["rebuilt", "lease lost", "process ends"])
async def test_that_the_ledger_is_being_rebuilt_is_scraped_until_that_is_over_however_it_ends(ends: str) -> None:
    """The leader leads all that time, and the count of rebuilds grows only when one is done: nobody was woken."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        before = sample("tutti_ledger_rebuilding")
        await cluster.create(waiting_job())
        api = Refusing(cluster.api(), Unavailable(500, "InternalError", "failed calling webhook"))
        parts = reconciler(api, Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        assert (sample("tutti_leading"), sample("tutti_ledger_rebuilding")) == (1, before + 1)
        if ends == "rebuilt":
            api.failure = None
        elif ends == "lease lost":
            other = LeaderRecord("two", 60.0, "then", micro_time_text(LoopClock().now()), 1)
            stolen = orjson.dumps({"metadata": {"annotations": {names.LEASE_ANNOTATION: render(other)}}})
            await cluster.api().request("PATCH", LEDGER, body=stolen, content_type=MERGE_PATCH)
        else:
            running.cancel()
        await asyncio.sleep(5)
        assert sample("tutti_ledger_rebuilding") == before
        if ends == "lease lost":
            assert sample("tutti_leading") == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_job_that_cannot_be_written_at_all_does_not_hold_up_the_others() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.create(waiting_job())
        api = Refusing(cluster.api(), Invalid(422, "Invalid", "an older server stored what this one refuses"))
        parts = reconciler(api, Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        assert await ledger_is_written(cluster.api())
        running.cancel()


@asynccontextmanager
async def gang_that_runs(
    flavor_labels: dict[str, str], pod_stop_seconds: float = 1.0
) -> AsyncIterator[tuple[SimulatedCluster, ReconcilerParts]]:
    """Yield a cluster on which a gang of three pods runs, and its leader."""
    pace = Pace(pod_stop_seconds=pod_stop_seconds)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), pace=pace) as cluster:
        await cluster.add_node("node", labels=flavor_labels)
        for item in POLICY:
            spec = {"nodeLabels": flavor_labels} if item["kind"] == "ResourceFlavor" else item.get("spec")
            await cluster.create({**item, "spec": spec})
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(3)
        await cluster.create(queued_job(pods=3))
        await asyncio.sleep(5)
        yield cluster, parts
        running.cancel()


@pytest.mark.parametrize("flavor_labels", [{}, {"pool": "a"}], ids=["nothing injected", "a flavor injected"])
async def test_a_gang_that_was_stopped_holds_its_quota_until_its_last_pod_is_gone_though_the_ledger_is_lost(
    flavor_labels: dict[str, str],
) -> None:
    async with gang_that_runs(flavor_labels, pod_stop_seconds=30) as (cluster, parts):
        admin = cluster.api()
        hold = b'{"spec": {"suspend": true}}'
        await admin.request("PATCH", JOB, body=hold, content_type=MERGE_PATCH)
        await asyncio.sleep(2)
        await admin.request("DELETE", LEDGER)
        await asyncio.sleep(3)
        pods = orjson.loads(await admin.request("GET", "/api/v1/namespaces/team-a/pods"))["items"]
        assert pods
        assert [str(entry) for entry in parts.view.ledger.entries.values()] == ["Job team-a/train"]
        await asyncio.sleep(60)
        assert not parts.view.ledger.entries
        (job,) = parts.view.jobs.values()
        assert job.held, "its owner's word stands"


async def test_pods_that_outlive_their_job_hold_what_the_leader_remembers_though_the_ledger_is_lost() -> None:
    async with gang_that_runs({}) as (cluster, parts):
        admin = cluster.api()
        await admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(2)
        await admin.request("DELETE", LEDGER)
        await asyncio.sleep(3)
        assert [str(entry) for entry in parts.view.ledger.entries.values()] == ["Job team-a/train"]
        await admin.request("DELETE", "/api/v1/namespaces/team-a/pods")
        await asyncio.sleep(30)
        assert not parts.view.ledger.entries


@pytest.mark.parametrize(("owned", "goes"), [(True, True), (True, False), (False, False)])
async def test_pods_of_a_deleted_job_that_nobody_remembers_are_let_go_first_but_not_for_ever(
    owned: bool, goes: bool
) -> None:
    slow = Pace(pod_stop_seconds=1_000)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), pace=slow) as cluster:
        admin, pod = cluster.api(), "/api/v1/namespaces/team-a/pods/worker"
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "gone", "controller": True}
        metadata = {"name": "worker", "namespace": "team-a", "labels": {names.GANG_LABEL: "gone"}}
        metadata |= {"ownerReferences": [job] if owned else []}
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "train:1"}], "restartPolicy": "Never"}
        spec |= {"nodeName": "node-1", "terminationGracePeriodSeconds": 1_000}
        await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        assert await ledger_is_written(admin) is not owned, "what nobody owns may run for ever"
        if goes:
            await admin.request("DELETE", pod, body=b'{"gracePeriodSeconds": 0}')
            await asyncio.sleep(2)
            assert await ledger_is_written(admin)
        await asyncio.sleep(30)
        assert await ledger_is_written(admin)
        running.cancel()


async def test_pods_of_a_job_that_is_deleted_while_others_are_written_are_let_go_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reservation was written on it alone; without it the room that they take would be given away."""
    slow = Pace(pod_stop_seconds=1_000)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a"), pace=slow) as cluster:
        admin, void = cluster.api(), Recovery._void
        await cluster.add_node("node")
        job = queued_job("train", pods=1)
        job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "1h"}
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1_000
        for obj in (*POLICY, job):
            await cluster.create(obj)
        first = asyncio.create_task(
            reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1)).run()
        )
        await asyncio.sleep(10)
        assert orjson.loads(await admin.request("GET", "/api/v1/namespaces/team-a/pods"))["items"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await admin.request("DELETE", LEDGER)

        async def void_and_delete(recovery: Recovery, suspects: set[str], epoch: int) -> None:
            await admin.request("DELETE", JOB, body=b'{"propagationPolicy": "Background"}')
            await void(recovery, suspects, epoch)

        monkeypatch.setattr(Recovery, "_void", void_and_delete)
        second = asyncio.create_task(
            reconciler(cluster.api(), Config(), identity="two", clock=LoopClock(), rng=Random(1)).run()
        )
        await asyncio.sleep(10)
        [pod] = orjson.loads(await admin.request("GET", "/api/v1/namespaces/team-a/pods"))["items"]
        assert pod["metadata"]["deletionTimestamp"]
        assert not await ledger_is_written(admin)
        path = f"/api/v1/namespaces/team-a/pods/{pod['metadata']['name']}"
        await admin.request("DELETE", path, body=b'{"gracePeriodSeconds": 0}')
        await asyncio.sleep(2)
        assert await ledger_is_written(admin)
        second.cancel()


async def test_the_first_ledger_of_an_installation_is_no_rebuild() -> None:
    async def told() -> list[tuple[str, str]]:
        path = "/apis/events.k8s.io/v1/namespaces/tutti-system/events"
        events = orjson.loads(await admin.request("GET", path))["items"]
        return [(event["type"], event["reason"]) for event in events if event["reason"].startswith("Ledger")]

    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        admin, before = cluster.api(), sample("tutti_ledger_rebuilds_total")
        await cluster.create(waiting_job())
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        assert await ledger_is_written(admin)
        assert await told() == [("Normal", "LedgerCreated")]
        assert sample("tutti_ledger_rebuilds_total") == before
        await admin.request("DELETE", LEDGER)
        await asyncio.sleep(20)
        assert sorted(await told()) == [("Normal", "LedgerCreated"), ("Warning", "LedgerRebuilt")]
        assert sample("tutti_ledger_rebuilds_total") == before + 1
        running.cancel()


@pytest.mark.parametrize("before_tutti", [False, True], ids=["admitted", "adopted"])
async def test_what_pods_were_given_at_their_creation_stays_charged_though_nothing_says_it_any_more(
    before_tutti: bool,
) -> None:
    """The LimitRange that filled their requests in is gone when the ledger is lost."""
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits", "namespace": "team-a"}}
    async with stage() as world:
        await world.cluster.create({**limit_range, "spec": {"limits": limits}})
        job = queued_job()
        del job["spec"]["template"]["spec"]["containers"][0]["resources"]
        if before_tutti:
            job["spec"]["suspend"] = False
            del job["spec"]["template"]["metadata"]
        await world.take_over()
        await world.cluster.create(job)
        await asyncio.sleep(8)
        (before,) = (await world.ledger()).entries.values()
        await world.admin.request("DELETE", "/api/v1/namespaces/team-a/limitranges/limits")
        await asyncio.sleep(3)
        await world.admin.request("DELETE", LEDGER)
        await asyncio.sleep(12)
        (after,) = (await world.ledger()).entries.values()
        assert after.usage() == before.usage()
        assert sum(before.usage().values()) == 4000
