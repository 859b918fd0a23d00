"""A job that is stopped in the hub while its copy is about to be complete runs once: what has succeeded stays so."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, suspend
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
JOB = "Job", "train"


async def is_about_to_end(world: Fleet, how: str) -> str:
    """Have a's copy say that it is about to end, with pods that take a minute more; return the copy's uid."""
    await world.hub.cluster.create(plain_job(runtime="60s"))
    await world.until(lambda: world.places(*JOB))
    await asyncio.sleep(10)
    copy = await world.members["a"].get(*JOB) or {}
    now = copy["status"]["startTime"]
    met = {"type": how, "status": "True", "reason": "SuccessPolicy", "message": "", "lastTransitionTime": now}
    body = orjson.dumps({"status": {"conditions": [*copy["status"].get("conditions", ()), met]}})
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train/status"
    await world.members["a"].admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    await asyncio.sleep(2)
    uid: str = copy["metadata"]["uid"]
    return uid


async def uids_seen(world: Fleet, seconds: int) -> set[str]:
    seen = set()
    for _ in range(seconds):
        await asyncio.sleep(1)
        copies: list[Any] = [await side.get(*JOB) for side in world.members.values()]
        seen |= {each["metadata"]["uid"] for each in copies if each is not None and not each["spec"].get("suspend")}
    return seen


@pytest.mark.parametrize("silent", [False, True])
async def test_it_ends_and_does_not_run_again(silent: bool) -> None:
    async with fleet("a", "b") as world:
        first = await is_about_to_end(world, "SuccessCriteriaMet")
        await world.hub.patch(*JOB, suspend(plain_job, True))
        if silent:
            world.links["a"].freeze()
        await asyncio.sleep(20)
        stopped = await world.hub.get(*JOB) or {}
        assert dispatch_of(stopped).phase is DispatchPhase.GRANTED
        # Nobody may take that away again: it is shown with the end.
        assert "SuccessCriteriaMet" not in str(stopped["status"])
        await asyncio.sleep(100)
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert await world.over(*JOB)
        await world.hub.patch(*JOB, suspend(plain_job, False))
        assert await uids_seen(world, 60) <= {first}


async def test_one_that_is_resumed_meanwhile_ends_too() -> None:
    async with fleet("a", "b") as world:
        first = await is_about_to_end(world, "SuccessCriteriaMet")
        await world.hub.patch(*JOB, suspend(plain_job, True))
        await asyncio.sleep(5)
        await world.hub.patch(*JOB, suspend(plain_job, False))
        assert await uids_seen(world, 120) == {first}
        assert await world.over(*JOB)


async def test_one_that_is_deleted_leaves_at_once() -> None:
    async with fleet("a") as world:
        await is_about_to_end(world, "SuccessCriteriaMet")
        await world.hub.delete(*JOB)
        await asyncio.sleep(5)
        copy = await world.members["a"].get(*JOB)
        assert copy is None or copy["metadata"].get("deletionTimestamp")
