"""The reconciler over a simulated cluster: jobs of one PodGroup start, stop and come back together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, POLICY, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.notation import names
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
CONFIG = Config(start={"timeout_seconds": 20, "recovery_seconds": 20, "backoff_seconds": 5, "backoff_max_seconds": 5})


class Line:
    """A leader's connection."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.unanswered = ""
        """Writes on the job of this name are not answered."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "PATCH" and path == f"{JOBS}/{self.unanswered}":
            await asyncio.Future()
        answer: bytes = await self._api.request(method, path, **more)
        return answer


class Stage:
    """A queue of four cpu, the PodGroup ``ring`` of four pods, and a leader."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.admin = cluster.api()
        self.line = Line(cluster.api())
        self.parts: ReconcilerParts | None = None
        self.leader: asyncio.Task[None] | None = None

    def lead(self) -> None:
        self.parts = reconciler(self.line, CONFIG, identity="me", clock=LoopClock(), rng=Random(1))
        self.leader = asyncio.create_task(self.parts.run())

    async def die(self) -> None:
        assert self.leader is not None
        self.leader.cancel()
        await asyncio.gather(self.leader, return_exceptions=True)

    async def create(self, name: str, runtime: str = "", pods: int = 2, least: int | None = None) -> None:
        job = waiting_job(name, pods=pods)
        if least is not None:
            job["metadata"]["annotations"] = {names.MIN_PARALLELISM: str(least)}
        job["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "ring"
        if runtime:
            job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": runtime}
        await self.cluster.create(job)

    async def patch(self, name: str, body: dict[str, Any]) -> None:
        await self.admin.request("PATCH", f"{JOBS}/{name}", body=orjson.dumps(body), content_type=MERGE_PATCH)

    async def job(self, name: str) -> Any:
        return orjson.loads(await self.admin.request("GET", f"{JOBS}/{name}"))

    async def ledger(self) -> Ledger:
        return ledger_text.decode(project(await self.admin.request("GET", LEDGER)).data)

    async def held(self) -> dict[str, str | None]:
        """Return what holds a reservation, with why it is being stopped."""
        return {entry.name: entry.stopping for entry in (await self.ledger()).entries.values()}

    async def running(self) -> list[str]:
        """Return the names of the jobs that are stored un-suspended and have not ended."""
        items = orjson.loads(await self.admin.request("GET", JOBS))["items"]
        live = [job for job in items if not job["spec"]["suspend"] and not job.get("status", {}).get("completionTime")]
        return sorted(job["metadata"]["name"] for job in live)

    async def why(self, name: str) -> str:
        assert self.parts is not None
        return str(self.parts.reconciler.reason((await self.job(name))["metadata"]["uid"]))

    async def noted(self, name: str, key: str) -> Any:
        return orjson.loads((await self.job(name))["metadata"].get("annotations", {}).get(key, "null"))


@asynccontextmanager
async def stage(*jobs: str) -> AsyncIterator[Stage]:
    """Yield a stage on which ``jobs`` of two pods each were created, with a leader."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 4}}
        for item in (*POLICY, group | {"metadata": {"name": "ring", "namespace": "team-a"}}):
            await cluster.create(item)
        play = Stage(cluster)
        play.lead()
        await asyncio.sleep(2)
        for name in jobs:
            await play.create(name)
            await asyncio.sleep(1)
        await asyncio.sleep(4)
        yield play
        await play.die()


async def test_the_first_waits_for_the_second_and_both_start_by_one_write() -> None:
    async with stage("left") as play:
        assert await play.running() == []
        assert "PodGroup team-a/ring needs 4 pods, its jobs that wait bring 2" in await play.why("left")
        await play.create("right")
        await asyncio.sleep(4)
        assert await play.running() == ["left", "right"]
        left, right = (await play.ledger()).entries.values()
        assert left.membership == right.membership
        assert left.since_seconds == right.since_seconds
        assert (await play.noted("left", names.ADMISSION))["membership"] == {"ensemble": "ring", "quorum": 4}


async def test_an_owners_hold_on_one_stops_both_and_they_come_back_when_it_is_lifted() -> None:
    async with stage("left", "right") as play:
        await play.patch("left", {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        assert await play.running() == []
        assert await play.held() == {}
        assert (await play.noted("right", names.REQUEUE))["reason"] == "SiblingStopped"
        assert await play.noted("left", names.HOLD) is not None
        assert await play.noted("right", names.HOLD) is None, "its owner did not hold it"
        assert "needs 4 pods" in await play.why("right")
        hold = {"metadata": {"annotations": {names.HOLD: None}}, "spec": {"suspend": False}}
        await play.patch("left", hold | {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        assert await play.running() == ["left", "right"]


async def test_a_deleted_job_takes_the_rest_along_until_another_completes_the_group() -> None:
    async with stage("left", "right") as play:
        await play.admin.request("DELETE", f"{JOBS}/left", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(10)
        assert await play.held() == {}
        assert await play.running() == []
        await play.create("third")
        await asyncio.sleep(6)
        assert await play.running() == ["right", "third"]


async def test_a_min_member_that_is_lowered_while_they_run_spares_those_that_make_it() -> None:
    async with stage("left", "right") as play:
        path = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups/ring"
        body = orjson.dumps({"spec": {"minMember": 2}})
        await play.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(3)
        assert (await play.noted("right", names.ADMISSION))["membership"] == {"ensemble": "ring", "quorum": 2}
        before = {entry.name: entry.since_seconds for entry in (await play.ledger()).entries.values()}
        await play.admin.request("DELETE", f"{JOBS}/left", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(10)
        after = {entry.name: entry.since_seconds for entry in (await play.ledger()).entries.values()}
        assert after == {"right": before["right"]}, "it was not started again"
        await play.admin.request("PATCH", path, body=body.replace(b"2", b"4"), content_type=MERGE_PATCH)
        await asyncio.sleep(3)
        assert await play.running() == ["right"], "raising it concerns who starts from then on"


async def test_pods_that_outlive_a_deleted_job_keep_its_room_and_make_no_quorum() -> None:
    async with stage("left", "right") as play:
        await play.admin.request("DELETE", f"{JOBS}/left", body=b'{"propagationPolicy": "Orphan"}')
        await asyncio.sleep(10)
        assert await play.held() == {"left": None}
        assert "needs 4 pods, its jobs that wait bring 2" in await play.why("right")


async def test_one_that_succeeds_leaves_its_room_and_the_other_needs_no_more_than_itself_from_then_on() -> None:
    async with stage() as play:
        await play.create("left", "5s")
        await play.create("right")
        await asyncio.sleep(15)
        assert await play.held() == {"right": None}
        assert await play.running() == ["right"]
        assert (await play.noted("right", names.ADMISSION))["membership"]["succeeded"] == 2
        await play.patch("right", {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        assert await play.held() == {}
        assert (await play.noted("right", names.REQUEUE))["succeeded"] == 2
        await play.patch("right", {"metadata": {"annotations": {names.HOLD: None}}})
        await asyncio.sleep(10)
        assert await play.running() == ["right"], "the pods of its sibling need not run again"


async def test_a_growth_that_is_turned_back_leaves_what_the_same_write_says_of_one_that_succeeded() -> None:
    async with stage() as play:
        await play.create("left", "30s")
        await play.create("right", pods=4, least=2)
        await asyncio.sleep(4)
        assert await play.running() == ["left", "right"]
        play.line.unanswered = "right"
        path = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups/ring"
        body = orjson.dumps({"spec": {"minMember": 3}})
        await play.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(30)
        (right,) = (await play.ledger()).entries.values()
        assert right.counts == {"main": 4}, "it grew into the room that was left, while its own job was still written"
        assert right.membership is not None
        assert (right.membership.quorum, right.membership.succeeded_pods) == (3, 2)


async def test_all_are_stopped_and_come_back_when_their_pods_do_not_reach_the_quorum_together() -> None:
    async with stage("left", "right") as play:
        for pod in orjson.loads(await play.admin.request("GET", "/api/v1/namespaces/team-a/pods"))["items"][:1]:
            status = {"status": {"phase": "Pending"}}
            path = f"/api/v1/namespaces/team-a/pods/{pod['metadata']['name']}/status"
            await play.admin.request("PATCH", path, body=orjson.dumps(status), content_type=MERGE_PATCH)
        await asyncio.sleep(24)
        notes = [await play.noted(name, names.REQUEUE) for name in ("left", "right")]
        assert [(note["reason"], note["attempts"]) for note in notes] == [
            ("PodsReadyTimeout", 1),
            ("PodsReadyTimeout", 1),
        ]
        assert notes[0]["place"] == notes[1]["place"]
        assert "only 3 of the 4 pods" in notes[1]["message"]
        await asyncio.sleep(15)
        assert await play.running() == ["left", "right"]


async def test_another_leader_knows_who_belongs_together() -> None:
    async with stage("left", "right") as play:
        await play.die()
        play.lead()
        await asyncio.sleep(30)
        await play.patch("right", {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        assert await play.running() == []


async def test_a_ledger_that_was_deleted_is_rebuilt_with_its_ensembles() -> None:
    async with stage("left", "right") as play:
        before = {entry.name: entry.membership for entry in (await play.ledger()).entries.values()}
        await play.admin.request("DELETE", LEDGER)
        await asyncio.sleep(20)
        assert {entry.name: entry.membership for entry in (await play.ledger()).entries.values()} == before
        assert await play.running() == ["left", "right"]


async def test_a_gang_that_is_stopped_as_soon_as_it_started_keeps_its_entry_while_pods_may_be_on_their_way() -> None:
    async with stage() as play:
        await play.cluster.create(waiting_job("train"))
        while await play.running() != ["train"]:
            await asyncio.sleep(0.1)
        await play.patch("train", {"spec": {"suspend": True}})
        await asyncio.sleep(3)
        assert await play.held() == {"train": "OnHold"}
        await asyncio.sleep(5)
        assert await play.held() == {}


async def test_one_more_than_the_group_needs_starts_by_itself_and_stops_by_itself() -> None:
    async with stage("left", "right") as play:
        await play.create("late", pods=1)
        await asyncio.sleep(4)
        assert await play.running() == ["left", "right"]
        assert "asks for 1 cpu" in await play.why("late")
        await play.admin.request("DELETE", f"{JOBS}/left", body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(10)
        assert (await play.ledger()).entries == {}, "the place of the group is before it"
        assert "needs 4 pods, its jobs that wait bring 3" in await play.why("late")
