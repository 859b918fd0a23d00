"""What has ended, and is written to run again, waits again: it is not adopted above its quota a second time."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import LEDGER, stage, waiting_job
from tests.unit.jobs.objects_of_kinds import load
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.objects.resources import Resource

pytestmark = pytest.mark.virtual_time
PATH = "/apis/argoproj.io/v1alpha1/namespaces/team-a/workflows/"


def workflow(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"tutti.dev/queue-name": "research"},
            "annotations": {"kube-queue/min-resources": "cpu: 4"},
        },
        "spec": {"suspend": True, "entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]},
    }


@pytest.mark.parametrize("led", [True, False], ids=["led", "while nobody leads"])
async def test_a_workflow_that_had_ended_takes_no_quota_of_others(led: bool) -> None:
    async with stage() as play:
        play.cluster.server.registry.add(Resource("argoproj.io", "v1alpha1", "workflows", "Workflow", custom=True))
        await play.cluster.create(workflow("one"))
        await play.take_over()

        async def phase(name: str, text: str) -> None:
            body = orjson.dumps({"status": {"phase": text}})
            try:
                await play.admin.request("PATCH", PATH + name, body=body, content_type=MERGE_PATCH)
            finally:
                await asyncio.sleep(20)

        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["one"]
        await phase("one", "Succeeded")
        assert not (await play.ledger()).entries
        await play.cluster.create(workflow("two"))
        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["two"]
        # As ``argo retry`` does; the status of a Workflow is no subresource, and ``edit`` may write it.
        epoch = (await play.ledger()).epoch
        if not led:
            await play.stop_leading()
        await phase("one", "Running")
        if not led:
            await play.take_over()
            await asyncio.sleep(20)
        after = await play.ledger()
        entries = after.entries.values()
        assert [each.name for each in entries] == ["two"], [(each.name, each.adopted) for each in entries]
        assert after.epoch == epoch + (not led), "nor does it have a ledger rebuilt which is as good as any"
        assert orjson.loads(await play.admin.request("GET", PATH + "one"))["spec"]["suspend"]


async def test_a_workflow_that_its_owner_suspends_keeps_its_room_for_when_it_is_resumed() -> None:
    """Its pods go on meanwhile. It could be neither resumed nor released: it held its quota until it was deleted."""
    async with stage() as play:
        play.cluster.server.registry.add(Resource("argoproj.io", "v1alpha1", "workflows", "Workflow", custom=True))
        await play.cluster.create(workflow("one"))
        await play.take_over()
        await asyncio.sleep(10)

        async def write(**fields: Any) -> None:
            await play.admin.request("PATCH", PATH + "one", body=orjson.dumps(fields), content_type=MERGE_PATCH)
            await asyncio.sleep(20)

        async def held() -> list[tuple[str, str | None]]:
            return [(each.name, each.stopping) for each in (await play.ledger()).entries.values()]

        await write(status={"phase": "Running"})
        await write(spec={"suspend": True})
        await play.cluster.create(workflow("two"))
        await asyncio.sleep(20)
        assert await held() == [("one", None)]
        await play.admin.request("DELETE", LEDGER)
        await asyncio.sleep(60)
        assert await held() == [("one", None)], "nor is it taken for one that is stopped when the ledger is lost"
        assert orjson.loads(await play.admin.request("GET", PATH + "one"))["spec"]["suspend"], "its owner resumes it"
        await write(spec={"suspend": None})
        assert await held() == [("one", None)]
        await write(status={"phase": "Succeeded"})
        assert await held() == [("two", None)]


RAY_JOBS = "/apis/ray.io/v1/namespaces/team-a/rayjobs/"


def old_ray_job() -> dict[str, Any]:
    """Return a RayJob that ran before Tutti came, on 4 of the queue's 4 cpu."""
    made = load("rayjob")
    made["metadata"] = {"name": "one", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}}
    container = {"name": "head", "image": "x", "resources": {"requests": {"cpu": "4"}}}
    made["spec"]["rayClusterSpec"] = {"headGroupSpec": {"template": {"spec": {"containers": [container]}}}}
    made["spec"]["submitterPodTemplate"] = {"spec": {"containers": [{"name": "s", "image": "x"}]}}
    made["status"] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    return made


async def test_what_was_adopted_and_had_ended_takes_no_quota_of_others() -> None:
    async with stage() as play:
        play.cluster.server.registry.add(Resource("ray.io", "v1", "rayjobs", "RayJob", custom=True))
        await play.cluster.create(old_ray_job())
        await play.take_over()

        async def status(deployment: str, job: str) -> None:
            body = orjson.dumps({"status": {"jobDeploymentStatus": deployment, "jobStatus": job}})
            await play.admin.request("PATCH", RAY_JOBS + "one", body=body, content_type=MERGE_PATCH)
            await asyncio.sleep(20)

        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["one"]
        await status("Complete", "SUCCEEDED")
        assert not (await play.ledger()).entries
        await play.cluster.create(waiting_job("two", pods=4))
        await asyncio.sleep(20)
        assert [str(each.name) for each in (await play.ledger()).entries.values()] == ["two"]
        await status("Running", "RUNNING")
        entries = (await play.ledger()).entries.values()
        assert [each.name for each in entries] == ["two"], [(each.name, each.adopted) for each in entries]
