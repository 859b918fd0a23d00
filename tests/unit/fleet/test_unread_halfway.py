"""What can be listed in part only, or whose list is never answered, is named, and holds up nothing else."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, plain_job, pytorch_job, suspend
from tests.unit.fleet.test_hub_quota import events_of
from webhook.errors import Unavailable
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
BROKEN = Unavailable(500, "InternalError", "conversion webhook for it failed: no endpoints available")
UNANSWERED = Unavailable(0, "Timeout", "no answer in 60 s")


@pytest.mark.parametrize("fails", ["nothing", "its first page", "its second page", "its answer"])
async def test_a_kind_that_can_be_listed_in_part_only_holds_up_no_other_without_a_word(fails: str) -> None:
    async with fleet("a", starts=False) as world:
        for number in range(3):
            await world.hub.cluster.create(pytorch_job(f"old-{number}"))
            await world.hub.patch("PyTorchJob", f"old-{number}", suspend(pytorch_job, True))
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, *, query: Any = None, **how: Any) -> bytes:
            if method == "GET" and path.endswith("/v1/pytorchjobs"):
                query = {**(query or {}), "limit": "1"}
                page = "its second page" if "continue" in query else "its first page"
                if fails == "its answer":
                    await asyncio.sleep(60)
                    raise UNANSWERED
                if fails == page:
                    raise BROKEN
            return await request(method, path, query=query, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(5)
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await asyncio.sleep(900)
        elsewhere = dispatch_of(await world.hub.get("Job", "train") or {}).elsewhere
        told = [each["message"] for each in await events_of(world, "NoMember")]
        said = [*told, *elsewhere, *world.running_hub.problems]
        assert await world.places("Job", "train") or any("pytorchjobs" in each for each in said), said


@pytest.mark.parametrize("fails", ["its first page", "its second page"])
async def test_policies_that_can_be_listed_in_part_only_are_named_and_what_is_deleted_leaves(fails: str) -> None:
    async with fleet("a") as world:
        await world.hub.cluster.create(plain_job("before", runtime="6000s"))
        await world.until(lambda: world.places("Job", "before"))
        await world.stop()
        for number in range(3):
            metadata = {"name": f"p{number}", "namespace": "team-a"}
            await world.hub.cluster.create(
                {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": metadata}
            )
        world.start()
        request = world.own.request

        async def asked(method: str, path: str, *, query: Any = None, **how: Any) -> bytes:
            if path.endswith("/policy.karmada.io/v1alpha1/propagationpolicies"):
                query = {**(query or {}), "limit": "1"}
                if fails == ("its second page" if "continue" in query else "its first page"):
                    raise BROKEN
            return await request(method, path, query=query, **how)

        world.own.request = asked  # type: ignore[method-assign]
        await asyncio.sleep(5)
        await world.hub.delete("Job", "before")
        await asyncio.sleep(300)
        assert any("propagationpolicies" in each for each in world.running_hub.problems), world.running_hub.problems
        assert await world.hub.get("Job", "before") is None, "what is deleted leaves its member"
