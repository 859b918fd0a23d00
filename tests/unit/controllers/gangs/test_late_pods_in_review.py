"""Pods that another webhook looks at for seconds, while their gang ends: they are stored while it has room."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, PODS, Stage, stage, waiting_job
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import text as ledger_text
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule

pytestmark = pytest.mark.virtual_time
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train"
PYTORCH = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs/train"
REVIEW_SECONDS = 4.5


class Play:
    """A stage on which each pod that is stored without room is noted."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        self.without_room: list[str] = []
        self.slow = False
        every = frozenset({"*"})
        rule = Rule(frozenset({"CREATE"}), frozenset({""}), every, frozenset({"pods"}))
        on.cluster.server.admission.register(Registration("slow", False, "/slow", self._review, (rule,), "slow"))
        on.cluster.server.store.subscribe(self._stored)

    async def _review(self, _path: str, body: bytes) -> bytes:
        await asyncio.sleep(REVIEW_SECONDS if self.slow else 0)
        asked = orjson.loads(body)
        return orjson.dumps({**asked, "response": {"uid": asked["request"]["uid"], "allowed": True}})

    def _stored(self, event: Any) -> None:
        name = event.current.key[1]
        if event.storage == ("", "pods") and event.type == "ADDED" and name.startswith("train") and not self._holds():
            self.without_room.append(name)

    def _holds(self) -> bool:
        stored = self.on.cluster.server.store.get(("", "configmaps"), "tutti-system", "tutti-ledger")
        assert stored is not None
        entries = ledger_text.decode(project(orjson.dumps(stored.object)).data).entries
        return any(entry.name == "train" for entry in entries.values())

    async def loses(self, part: str) -> None:
        """Let a pod be deleted, and wait until another in its stead is being reviewed."""
        self.slow = True
        pods = orjson.loads(await self.on.admin.request("GET", PODS))["items"]
        name = next(pod["metadata"]["name"] for pod in pods if part in pod["metadata"]["name"])
        await self.on.admin.request("DELETE", f"{PODS}/{name}", body=b'{"gracePeriodSeconds": 0}')
        await asyncio.sleep(0.1)


@asynccontextmanager
async def play() -> AsyncIterator[Play]:
    async with stage() as on:
        await on.take_over()
        yield Play(on)


def jobset(driver: Callable[[dict[str, Any]], None] = lambda job: None) -> dict[str, Any]:
    """Return a JobSet of a driver and a worker, which has succeeded when the driver has."""
    job = waiting_job(pods=1)["spec"]
    del job["suspend"]
    parts = [{"name": name, "replicas": 1, "template": {"spec": deepcopy(job)}} for name in ("driver", "worker")]
    driver(parts[0]["template"]["spec"])
    spec = {"suspend": True, "replicatedJobs": parts}
    spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": waiting_job()["metadata"],
        "spec": spec,
    }


@pytest.mark.parametrize("fate", ["succeeds", "fails"])
async def test_a_jobset_that_ends_while_a_pod_of_it_is_replaced(fate: str) -> None:
    def driver(job: dict[str, Any]) -> None:
        job["backoffLimit"] = 0
        marks = {"tutti.dev/simulated-runtime": "60s", "tutti.dev/simulated-fate": fate}
        job["template"]["metadata"]["annotations"] = marks

    async with play() as told:
        await told.on.cluster.create(jobset(driver))
        await asyncio.sleep(50)
        # Its controller asks for another ten seconds later.
        await told.loses("worker")
        await asyncio.sleep(30)
        assert not told.without_room
        assert not (await told.on.ledger()).entries


async def test_a_jobset_that_its_owner_suspends_while_a_pod_of_it_is_replaced_under_another_leader() -> None:
    async with play() as told:
        await told.on.cluster.create(jobset())
        await asyncio.sleep(20)
        await told.on.hand_over()
        await asyncio.sleep(20)
        await told.loses("worker")
        await asyncio.sleep(10.5)
        suspend = b'{"spec": {"suspend": true}}'
        await told.on.admin.request("PATCH", JOBSET, body=suspend, content_type=MERGE_PATCH)
        await asyncio.sleep(30)
        assert not told.without_room
        assert not (await told.on.ledger()).entries


async def test_a_pytorchjob_that_is_deleted_a_second_after_it_lost_a_pod_while_the_ledger_is_written() -> None:
    template = waiting_job()["spec"]["template"]
    replicas = {each: {"replicas": 1, "template": template} for each in ("Master", "Worker")}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": waiting_job()["metadata"], "spec": spec}
    async with play() as told:
        usual = told.on.line.request

        async def request(method: str, path: str, **more: Any) -> bytes:
            answer: bytes = await usual(method, path, **more)
            if method == "PATCH" and path == LEDGER and b"other" in more["body"] and not told.slow:
                # The first write of that name: it reserves room for another.
                await asyncio.sleep(2)
            return answer

        told.on.line.request = request  # type: ignore[method-assign]
        await told.on.cluster.create(job)
        await asyncio.sleep(20)
        await told.on.cluster.create(waiting_job("other", pods=1))
        await asyncio.sleep(0.1)
        await told.loses("worker")
        await asyncio.sleep(0.9)
        await told.on.admin.request("DELETE", PYTORCH, body=b'{"propagationPolicy": "Background"}')
        await asyncio.sleep(30)
        assert not told.without_room
        assert [entry.name for entry in (await told.on.ledger()).entries.values()] == ["other"]


async def test_the_room_of_a_jobset_that_succeeds_is_free_at_once() -> None:
    def driver(job: dict[str, Any]) -> None:
        job["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "20s"}

    async with play() as told:
        document = jobset(driver)
        driver(document["spec"]["replicatedJobs"][1]["template"]["spec"])
        await told.on.cluster.create(document)
        await asyncio.sleep(22.5)
        assert not (await told.on.ledger()).entries
