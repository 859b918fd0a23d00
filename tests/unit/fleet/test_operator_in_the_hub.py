"""An operator that is left in the hub's own cluster writes statuses of its own, by which no job that a hub places ends.

Such kinds have no ``managedBy`` that would keep it away. What the members' operators do, the tests do.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, PATHS, Fleet, Side, fleet
from tests.unit.fleet.test_hub_quota import events_of
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.api import WritePoint
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.resources import Resource

pytestmark = pytest.mark.virtual_time
KIND = "SparkApplication"
SPARK = Resource(
    "sparkoperator.k8s.io", "v1beta2", "sparkapplications", KIND, status=True, generation=True, custom=True
)
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
STATES = ("FAILED", "COMPLETED")


def application() -> dict[str, Any]:
    """A driver and one executor, as the webhook of a hub has written it."""
    role = {"cores": 1, "memory": "512m"}
    return {
        "apiVersion": SPARK.api_version,
        "kind": KIND,
        "metadata": {
            "name": "train",
            "namespace": NAMESPACE,
            "labels": {names.QUEUE_LABELS[0]: "research"},
            "annotations": {names.MANAGED_BY: names.HUB_MANAGER},
        },
        "spec": {"type": "Python", "mode": "cluster", "driver": role, "executor": {**role, "instances": 1}},
    }


@asynccontextmanager
async def sparks(*members: str) -> AsyncIterator[Fleet]:
    """Yield a fleet that knows SparkApplications, and has no operator of them anywhere."""

    def knows(name: str, cluster: SimulatedCluster) -> None:
        cluster.server.registry.add(SPARK)

    async with fleet(*members, prepare=knows) as world:
        asked = {"cpu": "4", "memory": "1Ti"}
        resources = [{"name": name, "nominalQuota": quantity} for name, quantity in asked.items()]
        group = {"coveredResources": [*asked], "flavors": [{"name": "any", "resources": resources}]}
        change = orjson.dumps({"spec": {"resourceGroups": [group]}})
        for side in world.members.values():
            await side.admin.request("PATCH", QUEUE, body=change, content_type=MERGE_PATCH)
        await asyncio.sleep(1)
        yield world


async def says(side: Side, state: str, **more: Any) -> None:
    """Have the operator of one cluster write a status."""
    path = f"{PATHS[KIND]}/namespaces/{NAMESPACE}/{SPARK.plural}/train/status"
    body = orjson.dumps({"status": {"applicationState": {"state": state}, **more}})
    await side.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)


async def admits(side: Side, stop_policy: str) -> None:
    """Stop the queue of a member, or let it go on."""
    body = orjson.dumps({"spec": {"stopPolicy": stop_policy}})
    await side.admin.request("PATCH", QUEUE, body=body, content_type=MERGE_PATCH)


async def record(world: Fleet) -> Dispatch:
    return dispatch_of(await world.hub.get(KIND, "train") or {})


async def runs(world: Fleet, member: str) -> bool:
    copy = await world.members[member].get(KIND, "train")
    return copy is not None and copy["spec"].get("suspend") is False


async def state(side: Side) -> str:
    shown = (await side.get(KIND, "train") or {}).get("status") or {}
    return str((shown.get("applicationState") or {}).get("state", ""))


@pytest.mark.parametrize("strange", STATES)
async def test_a_job_that_runs_in_a_member_runs_on_and_shows_what_the_member_says(strange: str) -> None:
    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.members["a"], "RUNNING")
        await asyncio.sleep(5)
        copy = (await world.members["a"].get(KIND, "train") or {})["metadata"]["uid"]
        for _ in range(3):
            await says(world.hub, strange)
            await asyncio.sleep(5)
            assert await state(world.hub) == "RUNNING"
        await asyncio.sleep(100)
        assert (await world.members["a"].get(KIND, "train") or {})["metadata"]["uid"] == copy
        assert (await record(world)).phase is DispatchPhase.GRANTED


async def test_a_job_ends_as_in_its_member_though_the_operator_writes_over_all_that_is_shown_before() -> None:
    async def fails_all() -> None:
        while True:
            await asyncio.sleep(0.3)
            if await state(world.hub) not in STATES:
                await says(world.hub, "FAILED")

    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        operator = asyncio.create_task(fails_all())
        await world.until(lambda: runs(world, "a"))
        await says(world.members["a"], "RUNNING")
        written: list[object] = []
        world.hub.cluster.server.store.subscribe(written.append, SPARK.storage)
        # Without pods the member would stop it after 300 s.
        await asyncio.sleep(200)
        assert len(written) < 2.2 * 200, "the hub shows a status once a second at most"
        assert await runs(world, "a")
        await says(world.members["a"], "COMPLETED")
        await asyncio.sleep(20)
        operator.cancel()
        assert await state(world.hub) == "COMPLETED"
        assert (await record(world)).phase is DispatchPhase.NOWHERE
        assert await world.empty(KIND)


@pytest.mark.parametrize("strange", STATES)
async def test_a_job_whose_copy_has_shown_nothing_yet_is_not_taken_away(strange: str) -> None:
    async with sparks("a") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.hub, strange)
        await asyncio.sleep(100)
        assert await runs(world, "a")
        await says(world.members["a"], "RUNNING")
        await asyncio.sleep(5)
        assert await state(world.hub) == "RUNNING"


@pytest.mark.parametrize("strange", STATES)
async def test_a_job_that_waits_in_a_member_goes_on_waiting_and_starts_there(strange: str) -> None:
    async with sparks("a") as world:
        await admits(world.members["a"], "Hold")
        await asyncio.sleep(1)
        await world.hub.cluster.create(application())
        await asyncio.sleep(10)
        assert (await record(world)).phase is DispatchPhase.OFFERED
        await says(world.hub, strange)
        await asyncio.sleep(30)
        assert (await record(world)).phase is DispatchPhase.OFFERED
        await admits(world.members["a"], "None")
        await world.until(lambda: runs(world, "a"))


async def test_it_is_said_once_an_hour_that_something_in_the_hub_writes_statuses() -> None:
    async with sparks("a") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        for _ in range(3):
            await says(world.hub, "FAILED")
            await asyncio.sleep(3)
        listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
        (told,) = [each["message"] for each in listed if each["reason"] == "OperatorInHub"]
        assert "no member has said that" in told


async def test_a_job_that_is_stopped_in_the_hub_is_taken_away_whatever_its_status_says_there() -> None:
    async with sparks("a") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.hub, "FAILED")
        await world.hub.patch(KIND, "train", {"spec": {"suspend": True}})
        await asyncio.sleep(30)
        assert await world.members["a"].get(KIND, "train") is None


@pytest.mark.parametrize("end", STATES)
async def test_an_end_that_a_hub_has_shown_and_died_before_it_was_noted_is_one(end: str) -> None:
    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await world.stop()

        def die(point: WritePoint) -> None:
            if point.phase == "after" and point.path.endswith("/train/status"):
                world.kill()

        world.start(die)
        await asyncio.sleep(5)
        await says(world.members["a"], end)
        async with asyncio.timeout(30):
            while not world.dead:
                await asyncio.sleep(0.2)
        assert await state(world.hub) == end
        assert (await record(world)).phase is DispatchPhase.GRANTED
        world.start()
        await asyncio.sleep(120)
        assert await world.empty(KIND)
        assert await state(world.hub) == end
        assert (await record(world)).phase is DispatchPhase.NOWHERE


@pytest.mark.parametrize("end", STATES)
async def test_a_job_that_has_ended_in_its_member_stays_ended(end: str) -> None:
    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.hub, "FAILED")
        await asyncio.sleep(2)
        await says(world.members["a"], end, terminationTime="2030-01-01T00:00:00Z")
        await asyncio.sleep(20)
        assert (await world.hub.get(KIND, "train") or {})["status"]["terminationTime"]
        assert await state(world.hub) == end
        assert (await record(world)).phase is DispatchPhase.NOWHERE
        await world.stop()
        world.start()
        await asyncio.sleep(120)
        assert await world.empty(KIND)
        assert (await record(world)).phase is DispatchPhase.NOWHERE


async def test_a_submission_that_is_tried_again_is_no_end() -> None:
    async with sparks("a") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        await says(world.members["a"], "SUBMISSION_FAILED", submissionAttempts=1)
        await asyncio.sleep(20)
        assert await runs(world, "a")
        assert (await record(world)).phase is DispatchPhase.GRANTED
        await says(world.members["a"], "SUBMITTED", submissionAttempts=2)
        await says(world.hub, "SUBMISSION_FAILED")
        await asyncio.sleep(5)
        assert await state(world.hub) == "SUBMITTED"
        assert await runs(world, "a")


async def test_no_member_is_said_to_have_failed_a_job_that_ends_by_such_a_status_while_it_leaves() -> None:
    async with sparks("a", "b") as world:
        await world.hub.cluster.create(application())
        await world.until(lambda: runs(world, "a"))
        side = world.members["a"]
        await says(side, "RUNNING")
        await asyncio.sleep(5)
        await side.patch(KIND, "train", {"metadata": {"finalizers": ["example.org/slow"]}})
        await side.delete(KIND, "train")
        await asyncio.sleep(5)
        dispatch = await record(world)
        assert (dispatch.phase, dispatch.failed) == (DispatchPhase.RECALLED, ())
        await says(world.hub, "FAILED")
        await asyncio.sleep(20)
        assert not await events_of(world, "FailedInMember")
