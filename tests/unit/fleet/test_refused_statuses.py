"""What a copy says of itself reaches the hub's Job also where the API server would refuse it there as it is."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job
from webhook.commands.show.dispatched import dispatched
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.fleet.jobs.events import status_refused
from webhook.fleet.jobs.unstored import REST_SECONDS_MAX
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.controllers.nodes import FATE

pytestmark = pytest.mark.virtual_time
METADATA = {"namespace": NAMESPACE, "name": "train", "uid": "its-uid"}


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


async def explained(world: Fleet) -> str:
    """Return what ``tutti explain`` warns of."""
    now = world.hub.cluster.server.clock.now()
    lines = await dispatched(world.hub.admin, "job/train", NAMESPACE, now)
    return " ".join(text for name, text in lines or () if name == "warning")


async def test_explain_says_of_a_job_whose_member_was_taken_away_that_it_is_none() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job(runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        world.running_hub.leave("a")
        await asyncio.sleep(70)
        assert "MemberSilent: a is not a member of this hub" in await explained(world)


def test_of_a_run_that_is_over_it_names_no_member() -> None:
    job = {"apiVersion": "batch/v1", "metadata": METADATA}
    message = status_refused(KINDS["Job.batch"], job, "", "422 {odd}", 0.0)["message"]
    assert message.startswith("The API server of the hub refuses to clear what this job shows of a run that is over: ")
    assert "422 {odd}" in message


REFUSED = [
    Invalid(422, "Invalid", "status.replicaStatuses: Invalid value; metadata.annotations: Too long"),
    Unavailable(500, "InternalServerError", "etcdserver: request is too large"),
    Unavailable(500, "InternalError", 'failed calling webhook "their.policy": it is down on Thursdays'),
    Forbidden(403, "Forbidden", "no notes on Thursdays"),
    Conflict(409, "Conflict", 'admission webhook "their.policy" denied the request: no notes on Thursdays'),
    NotFound(404, "NotFound", 'admission webhook "their.policy" denied the request: no notes on Thursdays'),
    Unavailable(429, "TooManyRequests", 'admission webhook "their.policy" denied the request: none on Thursdays'),
    Unavailable(503, "ServiceUnavailable", 'admission webhook "their.policy" denied the request: none on Thursdays'),
    Unavailable(504, "Timeout", "request did not complete within the allotted timeout on Thursdays"),
]
WHY = [
    "by a schema or a bound",
    "object too large",
    "for want of a webhook",
    "by a policy",
    "as if it had moved on",
    "as if it were gone",
    "as if there were too many",
    "as if nobody answered",
    "for a webhook that hangs",
]


@pytest.mark.parametrize("answer", REFUSED, ids=WHY)
async def test_a_status_that_is_refused_all_the_same_is_told_on_the_job(
    answer: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another schema in the hub, or a rule of the API server that is not known here."""
    async with fleet("a") as world:
        request = world.own.request

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/status"):
                raise answer
            return await request(method, path, **how)

        async def told() -> list[str]:
            listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
            return [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "StatusRefused"]

        with monkeypatch.context() as odd:
            odd.setattr(world.own, "request", refuses)
            await world.hub.cluster.create(pytorch_job(runtime="5s"))
            await asyncio.sleep(120)
            (message,) = await told()
            assert message.startswith("The API server of the hub refuses the status that a shows of this job: ")
            assert str(answer) in message
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"))


@pytest.mark.parametrize("answer", REFUSED, ids=WHY)
async def test_a_record_that_is_refused_is_told_on_the_job_which_goes_on_once_it_is_not(answer: ApiError) -> None:
    """Its owner has filled it, where no webhook keeps room in it; or an administrator of the hub forbids the write."""
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job(runtime="600s"))
        await world.until(lambda: world.places("Job", "train"))
        request = world.own.request

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/jobs/train"):
                raise answer
            return await request(method, path, **how)

        world.own.request = refuses  # type: ignore[method-assign]
        await world.hub.delete("Job", "train")
        await asyncio.sleep(60)
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        (said,) = [each["message"] for each in orjson.loads(listed)["items"] if each["reason"] == "DispatchRefused"]
        assert str(answer) in said
        assert str(answer) in await explained(world)
        assert await world.places("Job", "train") == ["a"]
        world.own.request = request  # type: ignore[method-assign]
        await world.until(lambda: world.empty("Job"), 30)


async def test_a_server_that_is_busy_for_some_seconds_is_not_said_to_refuse_a_record() -> None:
    async with fleet("a") as world:
        request, busy_until = world.own.request, asyncio.get_running_loop().time() + 8
        asked = 0

        async def busy(method: str, path: str, **how: Any) -> bytes:
            nonlocal asked
            if method == "PATCH" and asyncio.get_running_loop().time() < busy_until:
                asked += 1
                raise Unavailable(429, "TooManyRequests", "Too many requests, please try again later.")
            return await request(method, path, **how)

        world.own.request = busy  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())
        await world.until(lambda: world.over("Job", "train"), 90)
        assert asked > 1
        listed = await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        assert "DispatchRefused" not in {each["reason"] for each in orjson.loads(listed)["items"]}


async def test_what_is_refused_is_tried_less_and_less_often() -> None:
    async with fleet("a") as world:
        request, asked = world.own.request, 0

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            nonlocal asked
            if method == "PATCH":
                asked += 1
                raise Conflict(409, "Conflict", 'admission webhook "their.policy" denied the request')
            return await request(method, path, **how)

        world.own.request = refuses  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job())
        await asyncio.sleep(600)
        assert 600 / REST_SECONDS_MAX / 2 <= asked <= 600 / REST_SECONDS_MAX + 6


@pytest.mark.parametrize("answer", REFUSED, ids=WHY)
async def test_a_record_that_is_refused_after_all_were_lost_keeps_no_other_gang_waiting(answer: ApiError) -> None:
    async with fleet("a", starts=False) as world:
        world.start()
        for name in ("first", "second"):
            await world.hub.cluster.create(plain_job(name, runtime="600s"))
            await world.until(lambda name=name: world.places("Job", name))
        await world.stop()
        for name in ("first", "second"):
            await world.hub.patch("Job", name, {"metadata": {"annotations": {names.DISPATCH: None}}})
        world.start()
        request = world.own.request

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/jobs/first"):
                raise answer
            return await request(method, path, **how)

        async def adopted() -> bool:
            second = await world.hub.get("Job", "second")
            assert second is not None
            return dispatch_of(second).phase is DispatchPhase.GRANTED

        world.own.request = refuses  # type: ignore[method-assign]
        await world.until(adopted, 30)
