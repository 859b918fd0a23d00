"""What it costs to place a gang: few reads and writes, and no wait for a member that does not answer."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job, suspend
from tests.unit.fleet.test_hub import runs_in
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.errors import Gone
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


def requests(world: Fleet, name: str) -> list[str]:
    """Have noted from now on what the hub's process asks about one job, in the hub and in the members."""
    found: list[str] = []

    def of(side: str, ask: Any) -> Any:
        async def request(method: str, path: str, **more: Any) -> bytes:
            job, status, _ = path.partition("/status")
            if job.endswith(f"/{name}"):
                found.append(f"{method} in {side}{status}")
            answer: bytes = await ask(method, path, **more)
            return answer

        return request

    world.own.request = of("hub", world.own.request)  # type: ignore[method-assign]
    for link in world.links.values():
        link.request = of("member", link.request)  # type: ignore[method-assign]
    return found


async def test_a_gang_is_placed_by_what_watches_have_shown_and_what_was_written() -> None:
    async with fleet("a", "b", hub_policy=POLICY) as world:
        await asyncio.sleep(5)
        asked = requests(world, "train")
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: granted(world, "train"), 5)
        until_permitted = asked[: asked.index("PATCH in member")]
        assert until_permitted.count("PATCH in hub") == 2, "offered, granted"
        await asyncio.sleep(1)
        assert "GET in hub" not in asked[: asked.index("PATCH in hub/status")]
        # Whether the name is free, whether there is room; and that its controller has seen it.
        assert until_permitted.count("GET in member") <= 3


async def test_a_gang_that_waits_for_its_queue_is_not_asked_for() -> None:
    async with fleet("a", hub_policy=POLICY) as world:
        await asyncio.sleep(5)
        await world.hub.cluster.create(plain_job("first", pods=4, runtime="50s"))
        await world.until(lambda: granted(world, "first"), 5)
        asked = requests(world, "train")
        await world.hub.cluster.create(plain_job(pods=4))
        await asyncio.sleep(40)
        assert not asked
        await world.until(lambda: granted(world, "train"), 20)


async def test_a_status_that_changes_all_the_time_is_shown_once_a_second_and_as_it_is_then() -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: granted(world, "train"), 5)
        await asyncio.sleep(5)
        asked = requests(world, "train")
        for number in range(50):
            seen = orjson.dumps({"status": {"conditions": [{"type": f"Seen{number}", "status": "True"}]}})
            await world.members["a"].admin.request("PATCH", f"{COPY}/status", body=seen, content_type=MERGE_PATCH)
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        shown = (await world.hub.get("Job", "train") or {})["status"]["conditions"]
        assert shown[-1]["type"] == "Seen49"
        assert 4 <= asked.count("PATCH in hub/status") <= 7


async def test_what_a_watch_has_shown_is_not_offered_if_it_has_changed_since() -> None:
    async with fleet("a") as world:
        await asyncio.sleep(5)
        stored, tries = world.own.request, list[bytes]()

        async def changed_first(method: str, path: str, **more: Any) -> bytes:
            if method == "PATCH" and path == COPY:
                tries.append(more["body"])
                if len(tries) == 1:
                    await world.hub.patch("Job", "train", suspend(plain_job, held=True))
            return await stored(method, path, **more)

        world.own.request = changed_first  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(10)
        assert len(tries) == 1
        assert await world.empty("Job")


async def test_no_permit_is_written_by_a_grant_as_it_was_stored_if_the_job_has_changed_since() -> None:
    async with fleet("a") as world:
        await asyncio.sleep(5)
        asked, permits = world.links["a"].request, list[bytes]()

        async def lost_first(method: str, path: str, **more: Any) -> bytes:
            if method == "PATCH" and names.PERMIT.replace("/", "~1").encode() in more["body"]:
                permits.append(more["body"])
                if len(permits) == 1:
                    await world.hub.patch("Job", "train", suspend(plain_job, held=True))
                    raise Gone(410, "", "lost on its way")
            return await asked(method, path, **more)

        world.links["a"].request = lost_first  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(20)
        assert len(permits) == 1
        assert await world.empty("Job")
