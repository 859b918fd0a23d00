"""What the hub shows of a job that has ended is what its copy showed last."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job, template
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, Unavailable
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.api import WritePoint

pytestmark = pytest.mark.virtual_time
SEED = "PyTorchJob", "pytorch-test"


async def test_what_a_controller_counts_after_the_end_is_shown_before_the_copy_is_deleted() -> None:
    job = pytorch_job(runtime="5s")
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = template("6s")
    async with fleet("a", starts=False) as world:

        def die(point: WritePoint) -> None:
            if (point.method, point.phase) == ("DELETE", "before"):
                world.kill()

        world.start(die)
        await world.hub.cluster.create(job)
        async with asyncio.timeout(60):
            while not world.dead:
                await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        ended = (await world.members["a"].get(*SEED) or {})["status"]
        assert (await world.hub.get(*SEED) or {})["status"] != ended, "its workers ended after its master"
        world.start()
        await world.until(lambda: world.over(*SEED), 60)
        assert (await world.hub.get(*SEED) or {})["status"] == ended


async def test_once_it_is_stopped_it_has_no_status_rather_than_an_empty_one() -> None:
    """Definitions require fields of a status that is there: that of a SparkApplication its driver's."""
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await world.until(lambda: shown(world))
        await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": True}}})
        await world.until(lambda: world.empty("PyTorchJob"))

        async def cleared() -> bool:
            return "status" not in (await world.hub.get(*SEED) or {})

        await world.until(cleared)


async def shown(world: Fleet) -> bool:
    """The hub's job says how its copy runs."""
    return bool((await world.hub.get(*SEED) or {}).get("status"))


REFUSED = [
    Invalid(422, "Invalid", "no statuses on Thursdays"),
    Forbidden(403, "Forbidden", "no statuses on Thursdays"),
    Unavailable(500, "InternalError", 'failed calling webhook "their.policy": it is down'),
    Conflict(409, "Conflict", "no statuses on Thursdays"),
    Unavailable(503, "ServiceUnavailable", "no statuses on Thursdays"),
]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("answer", REFUSED, ids=["422", "403", "500", "409", "503"])
async def test_it_leaves_though_what_its_copy_says_after_the_end_is_refused(answer: ApiError, deleted: bool) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job(runtime="20s"))
        await world.until(lambda: world.places("Job", "train"))
        link, honest, own = world.links["a"], world.links["a"].request, world.own.request

        async def keeps(method: str, path: str, **how: Any) -> bytes:
            if method == "DELETE":
                raise Unavailable(503, "ServiceUnavailable", "it restarts")
            return await honest(method, path, **how)

        async def refuses(method: str, path: str, **how: Any) -> bytes:
            if method == "PATCH" and path.endswith("/jobs/train/status"):
                raise answer
            return await own(method, path, **how)

        link.request = keeps  # type: ignore[method-assign]
        await asyncio.sleep(40)
        job = await world.hub.get("Job", "train") or {}
        assert dispatch_of(job).phase is DispatchPhase.RECALLED
        assert "Complete" in {each["type"] for each in job["status"]["conditions"]}, "its end is shown"
        # Its controller counts on.
        change = orjson.dumps({"status": {"terminating": 1}})
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train/status"
        await world.members["a"].admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        world.own.request = refuses  # type: ignore[method-assign]
        link.request = honest  # type: ignore[method-assign]
        await asyncio.sleep(30)
        if deleted:
            await world.hub.delete("Job", "train")
        await asyncio.sleep(300)
        job = await world.hub.get("Job", "train") or {}
        assert not job if deleted else dispatch_of(job).phase is DispatchPhase.NOWHERE, "its quota is never given back"
