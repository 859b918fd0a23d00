"""What it costs to place a gang: few writes, and no wait for a member that does not answer."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.test_hub import runs_in
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
COPY = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train"


async def granted(world: Fleet, name: str) -> bool:
    return dispatch_of(await world.hub.get("Job", name) or {}).phase is DispatchPhase.GRANTED


async def test_a_member_that_does_not_answer_delays_no_offer_to_others() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(5)
        world.links["a"].freeze()
        await asyncio.sleep(20)
        for number in range(4):
            await world.hub.cluster.create(plain_job(f"job-{number}", pods=1))
            await world.until(lambda number=number: granted(world, f"job-{number}"), 2)


async def test_a_gang_is_granted_once_though_its_controller_writes_on_its_copy_meanwhile() -> None:
    async with fleet("a") as world:
        asked, written, late = world.links["a"].request, asyncio.Event(), list[asyncio.Task[None]]()

        async def controller_writes(after_seconds: float = 0.0) -> None:
            await asyncio.sleep(after_seconds)
            if not written.is_set():
                written.set()
                seen = orjson.dumps({"status": {"conditions": [{"type": "Seen", "status": "True"}]}})
                await world.members["a"].admin.request("PATCH", f"{COPY}/status", body=seen, content_type=MERGE_PATCH)

        async def meanwhile(method: str, path: str, **more: Any) -> bytes:
            if method == "PATCH" and names.PERMIT.replace("/", "~1").encode() in more["body"]:
                await controller_writes()
            answer = await asked(method, path, **more)
            if method == "POST":
                late.append(asyncio.create_task(controller_writes(0.2)))
            if (method, path) == ("GET", COPY) and not written.is_set():
                return orjson.dumps({key: value for key, value in orjson.loads(answer).items() if key != "status"})
            return answer

        world.links["a"].request = meanwhile  # type: ignore[method-assign]
        stored, grants = world.own.request, list[bytes]()

        async def counted(method: str, path: str, **more: Any) -> bytes:
            if b'\\"phase\\":\\"granted\\"' in (more.get("body") or b""):
                grants.append(more["body"])
            return await stored(method, path, **more)

        world.own.request = counted  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())

        async def runs() -> bool:
            return await world.members["a"].running() == 2

        await world.until(runs)
        assert len(grants) == 1


async def test_a_gang_that_runs_and_one_that_has_ended_are_asked_for_once_a_minute_only() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("over", runtime="1s"))
        await world.until(lambda: world.over("PyTorchJob", "over"))
        await world.hub.cluster.create(pytorch_job(runtime="300s"))
        await runs_in(world, 3, 0)
        # The newest is read every five seconds, to see whether the hub was set back.
        await world.hub.cluster.create(pytorch_job("newest", runtime="300s"))
        await runs_in(world, 3, 3)
        await asyncio.sleep(10)
        asked = list[str]()
        for link in (world.own, world.links["a"]):

            async def counted(method: str, path: str, request: Any = link.request, **more: Any) -> bytes:
                asked.append(path)
                return await request(method, path, **more)

            link.request = counted  # type: ignore[method-assign]
        await asyncio.sleep(120)
        for name in ("over", "pytorch-test"):
            looks = sum(path.endswith(f"/pytorchjobs/{name}") for path in asked)
            # In the hub and in its member.
            assert 0 < looks <= 6, name
