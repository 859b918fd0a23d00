"""What a copy says of itself reaches the hub's Job also where the API server would refuse it there as it is."""

import asyncio

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, plain_job
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation.moments import time_text
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.nodes import FATE

pytestmark = pytest.mark.virtual_time


async def test_a_job_that_was_made_smaller_while_a_member_has_it_ends_in_the_hub() -> None:
    async with fleet("a") as world:
        job = plain_job(pods=4)
        job["spec"]["completionMode"] = "Indexed"
        await world.hub.cluster.create(job)
        await asyncio.sleep(10)
        await world.hub.patch("Job", "train", {"spec": {"parallelism": 2, "completions": 2}})
        await world.until(lambda: world.over("Job", "train"))
        ended = await world.hub.get("Job", "train")
        assert ended is not None
        assert ended["status"]["completedIndexes"] == "0-1"
        assert ended["status"]["succeeded"] == 4


async def test_a_job_ends_in_the_hub_though_the_clock_of_its_first_member_was_ahead() -> None:
    async with fleet("a", starts=False) as world:
        await world.hub.cluster.create(plain_job())
        ahead = time_text(int(world.hub.cluster.server.clock.now()) + 600)
        change = orjson.dumps({"status": {"startTime": ahead}})
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train/status"
        await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        world.start()
        await world.until(lambda: world.over("Job", "train"))
        ended = await world.hub.get("Job", "train")
        assert ended is not None
        assert ended["status"]["completionTime"] == ahead


async def test_a_job_of_which_a_pod_has_failed_is_stopped_in_the_hub_and_runs_again() -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(10)
        pod = (await world.members["a"].pods())[0]
        fails = orjson.dumps({"metadata": {"annotations": {FATE: "fails"}}})
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
        await world.members["a"].admin.request("PATCH", path, body=fails, content_type=MERGE_PATCH)
        await asyncio.sleep(50)
        before = await world.hub.get("Job", "train")
        assert before is not None
        assert (before["status"]["failed"], before["status"]["active"]) == (1, 1)
        await world.hub.patch("Job", "train", {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        stopped = await world.hub.get("Job", "train")
        assert stopped is not None
        assert dispatch_of(stopped).phase is DispatchPhase.NOWHERE
        assert stopped["status"] == {"failed": 1, "succeeded": 1}
        await world.hub.patch("Job", "train", {"spec": {"suspend": False}})
        await world.until(lambda: world.over("Job", "train"), 120)
