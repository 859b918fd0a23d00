"""Scale requests in a simulated cluster: what its watches tell of the parent is all that a review has to go by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.gangs.test_orphans import PYTORCH_JOB, leader, prepare, pytorch_job
from tests.unit.jobs.objects_of_kinds import kind_of, load, record_of, reservation_of
from tests.unit.server.reviews import Answered, ask, review, view, with_ledger
from webhook import errors
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.jobs.patches.marking import marked
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.server.handler import ReviewHandler

pytestmark = pytest.mark.virtual_time
SCALE = Rule(frozenset({"UPDATE"}), frozenset({"kubeflow.org"}), frozenset({"*"}), frozenset({"*/scale"}))


@asynccontextmanager
async def reviewed() -> AsyncIterator[SimulatedCluster]:
    """Run a cluster in which each scale request is reviewed."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await prepare(cluster)
        parts = leader(cluster, "me")
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(10)
        handler = ReviewHandler(parts.view)

        async def answered(path: str, body: bytes) -> bytes:
            return (await handler.review(path, body, 2.0))[1]

        cluster.server.admission.register(Registration("scale", False, "/validate/jobs", answered, (SCALE,), "scale"))
        yield cluster
        running.cancel()


async def grow(cluster: SimulatedCluster, replicas: int = 5) -> None:
    scale = orjson.loads(await cluster.api().request("GET", PYTORCH_JOB + "/scale"))
    scale["spec"]["replicas"] = replicas
    await cluster.api().request("PUT", PYTORCH_JOB + "/scale", body=orjson.dumps(scale))


async def test_a_job_that_waits_for_nobody_is_scaled_up() -> None:
    """Nobody could ever scale one where Tutti is installed, nor could a HorizontalPodAutoscaler."""
    async with reviewed() as cluster:
        made = pytorch_job(suspend=False)
        del made["metadata"]["labels"]
        await cluster.create(made)
        await asyncio.sleep(1)
        await grow(cluster)
        stored = orjson.loads(await cluster.api().request("GET", PYTORCH_JOB))
        assert stored["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


async def test_a_job_that_was_admitted_is_not() -> None:
    async with reviewed() as cluster:
        await cluster.create(pytorch_job(suspend=True))
        await asyncio.sleep(10)
        with pytest.raises(errors.Forbidden, match="runs as a gang with a reservation"):
            await grow(cluster)


async def test_one_that_was_scaled_down_goes_back_to_what_is_reserved_for_it_and_no_further() -> None:
    async with reviewed() as cluster:
        await cluster.create(pytorch_job(suspend=True))
        await asyncio.sleep(10)
        for replicas in (1, 3, 2, 3):
            await grow(cluster, replicas)
            await asyncio.sleep(1)
        with pytest.raises(errors.Forbidden, match="scaling it from 3 to 4"):
            await grow(cluster, 4)


def running(worker: int, master: int = 1) -> dict[str, Any]:
    """Return an admitted PyTorchJob."""
    obj = load("pytorchjob")
    obj = marked(kind_of(obj), obj)
    obj["metadata"]["namespace"] = "team-a"
    obj["spec"]["runPolicy"]["suspend"] = False
    for name, replicas in (("Worker", worker), ("Master", master)):
        of = obj["spec"]["pytorchReplicaSpecs"][name]
        of["replicas"] = replicas
        of["template"]["metadata"]["labels"][names.GANG_LABEL] = obj["metadata"]["uid"]
    return obj


async def rescale(obj: dict[str, Any], held: Reservation, old: int, new: int) -> Answered:
    seen = with_ledger(view(), held)
    seen.put_job(record_of(obj))
    seen.put_controller(held.uid, "team-a", "")
    before, after = (
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "ddp", "namespace": "team-a", "uid": held.uid},
            "spec": {"replicas": number},
        }
        for number in (old, new)
    )
    body = orjson.loads(review(after, old=before, operation="UPDATE", subresource="scale"))
    body["request"]["resource"] = {"group": "kubeflow.org", "version": "v1", "resource": "pytorchjobs"}
    return await ask(ReviewHandler(seen), "/validate/jobs", orjson.dumps(body))


@pytest.mark.parametrize(("now", "wanted", "allowed"), [(2, 4, True), (1, 4, True), (2, 5, False), (4, 5, False)])
async def test_a_pod_set_is_scaled_to_what_is_reserved_for_it(now: int, wanted: int, allowed: bool) -> None:
    held = reservation_of(record_of(running(4)))
    assert (await rescale(running(now), held, now, wanted)).allowed is allowed


async def test_what_another_pod_set_has_reserved_is_not_its_own() -> None:
    held = reservation_of(record_of(running(2, master=8)))
    assert not (await rescale(running(2, master=8), held, 2, 8)).allowed
    assert not (await rescale(running(2), held, 3, 8)).allowed, "its parent is not known as it is now"


async def test_pods_that_nobody_judges_one_by_one_do_not_become_more() -> None:
    held = reservation_of(record_of(running(4)))
    assert not (await rescale(running(2), replace(held, adopted=True), 2, 4)).allowed
    bare = running(2)
    del bare["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"][names.GANG_LABEL]
    assert not (await rescale(bare, held, 2, 4)).allowed
