"""One kind that the hub's API server cannot list holds up no job of another kind, or that is told."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, plain_job, pytorch_job
from webhook.core.notation import names
from webhook.errors import Forbidden, Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")
NO_RIGHT = Forbidden(403, "Forbidden", "tutti-hub cannot list it")


@pytest.mark.parametrize(
    ("unread", "error"),
    [("/no/such/", BROKEN), ("/rayjobs", BROKEN), ("/apis/policy.karmada.io/v1alpha1/propagationpolicies", NO_RIGHT)],
    ids=["nothing", "another kind", "policies of Karmada"],
)
async def test_a_kind_that_cannot_be_listed_in_the_hub_holds_up_no_other_without_a_word(
    unread: str, error: Exception
) -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(plain_job("before", runtime="6000s"))
        await world.until(lambda: world.places("Job", "before"))
        await world.stop()
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if unread in path:
                raise error
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(5)
        await world.hub.cluster.create(plain_job("train", runtime="600s"))
        await world.hub.delete("Job", "before")
        await asyncio.sleep(300)
        listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
        told = [each["message"] for each in listed if each["involvedObject"]["name"] == "train"]
        job = await world.hub.get("Job", "train")
        said = [*told, *dispatch_of(job or {}).elsewhere]
        assert await world.places("Job", "train") or any(unread.rpartition("/")[2] in each for each in said), said
        assert await world.hub.get("Job", "before") is None, "what is deleted leaves its member"


@pytest.mark.parametrize("left", ["copy", "pods"])
async def test_jobs_of_a_kind_that_is_listed_late_are_looked_for_before_they_are_offered(left: str) -> None:
    """What the record of one does not say any more may run in a member all the same (P4)."""
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("lost", runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "lost"))
        await world.stop()
        await world.hub.patch(
            "PyTorchJob", "lost", {"metadata": {"annotations": {names.DISPATCH: None}, "finalizers": []}}
        )
        side = world.members["a"]
        if left == "pods":
            for pod in await side.pods():
                await side.keep_pod(pod, ["example.org/slow"])
            await side.delete("PyTorchJob", "lost")
        pods = await side.pods()
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, **how: Any) -> bytes:
            if "pytorchjobs" in path:
                raise BROKEN
            return await request(method, path, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(30)
        assert any("cannot list pytorchjobs" in why for why in world.running_hub.problems)
        await world.hub.cluster.create(plain_job("other", runtime="600s"))
        await world.until(lambda: world.places("Job", "other"))
        assert (await side.pods())[: len(pods)] == pods, "nothing is known of it yet"
        world.links["a"].freeze()
        world.own.request = request  # type: ignore[method-assign]
        await asyncio.sleep(120)
        assert await world.members["b"].all("PyTorchJob") == []
        world.links["a"].thaw()
        await asyncio.sleep(60)
        assert await world.members["b"].all("PyTorchJob") == []
        found = dispatch_of(await world.hub.get("PyTorchJob", "lost") or {})
        assert found.member == ("a" if left == "copy" else ""), "it is known again"
        assert world.running_hub.problems == []


@pytest.mark.parametrize("unlisted", ["/jobs", "/tfjobs"])
@pytest.mark.parametrize("error", [BROKEN, NO_RIGHT], ids=["broken", "no right"])
async def test_jobs_of_other_kinds_go_on_also_where_it_is_batch_jobs(unlisted: str, error: Exception) -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job("train", runtime="6000s"))
        world.start()
        request = world.own.request

        async def refused(method: str, path: str, **how: Any) -> bytes:
            if method == "GET" and path.endswith(unlisted) and "/namespaces/" not in path:
                raise error
            return await request(method, path, **how)

        world.own.request = refused  # type: ignore[method-assign]
        await world.until(lambda: world.places("PyTorchJob", "train"), 120)
        assert world.running_hub.problems
