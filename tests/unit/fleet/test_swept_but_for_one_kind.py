"""A member that does not list one kind is swept for all others: what it has of them is settled, and nobody waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from webhook.clock import LoopClock
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
WORDS = "conversion webhook for it failed: no endpoints available"


async def test_a_lost_member_that_comes_back_stops_its_copies() -> None:
    async with fleet("a", "b", watched=False) as world:
        await runs_twice(world, "Job", plain_job("train", runtime="6000s"))
        without(world, "a", "rayjobs")
        world.links["a"].thaw()
        await asyncio.sleep(60)
        assert await world.places("Job", "train") == ["b"]


async def test_a_lost_member_that_comes_back_stops_its_copies_of_that_kind_once_it_lists_them() -> None:
    async with fleet("a", "b", watched=False) as world:
        await runs_twice(world, "PyTorchJob", pytorch_job("train", runtime="6000s"))
        mend = without(world, "a", "pytorchjobs")
        world.links["a"].thaw()
        await asyncio.sleep(60)
        assert sorted(await world.places("PyTorchJob", "train")) == ["a", "b"], "nobody knows what it has"
        mend()
        await asyncio.sleep(60)
        assert await world.places("PyTorchJob", "train") == ["b"]
        assert not world.running_hub.fleet.swept.unseen


async def test_what_an_offer_left_there_goes() -> None:
    async with fleet("a", "b") as world:
        await asyncio.sleep(10)
        create = world.links["a"].request

        async def once(method: str, path: str, **how: Any) -> bytes:
            answer = await create(method, path, **how)
            if method == "POST" and path.endswith("/jobs"):
                world.links["a"].freeze()
            return answer

        world.links["a"].request = once  # type: ignore[method-assign]
        await world.hub.cluster.create(plain_job("train", runtime="60s"))
        await world.until(world.members["b"].running, 60)
        world.links["a"].request = create  # type: ignore[method-assign]
        without(world, "a", "rayjobs")
        world.links["a"].thaw()
        await asyncio.sleep(30)
        assert await world.members["a"].all("Job") == []


async def test_a_hub_that_starts_offers_jobs_of_that_kind_from_before_only_when_it_is_listed() -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job("before", workers=1, runtime="6000s"))
        await world.hub.cluster.create(plain_job("other", runtime="6000s"))
        world.start()
        mend = without(world, "b", "pytorchjobs")
        await world.until(lambda: world.places("Job", "other"), 30)
        await asyncio.sleep(60)
        held = dispatch_of(await world.hub.get("PyTorchJob", "before") or {})
        assert held.phase is DispatchPhase.NOWHERE
        (said,) = held.elsewhere
        assert said.startswith("b may have it from before this hub began, and does not list the jobs of this kind")
        assert WORDS in said
        # Of one that came after the start it can have nothing.
        await world.hub.cluster.create(pytorch_job("after", workers=1, runtime="6000s"))
        await world.until(lambda: world.places("PyTorchJob", "after"), 30)
        mend()
        await world.until(lambda: world.places("PyTorchJob", "before"), 30)


async def test_a_gang_of_which_pods_are_left_stays_set_apart_while_its_kind_is_not_listed() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(pytorch_job("stuck", runtime="600s"))
        await world.until(lambda: world.places("PyTorchJob", "stuck"))
        await asyncio.sleep(5)
        side = world.members["a"]
        for pod in await side.pods():
            await side.keep_pod(pod, ["example.org/never"])
        world.kill()
        await side.delete("PyTorchJob", "stuck")
        await world.hub.patch("PyTorchJob", "stuck", {"metadata": {"annotations": {names.DISPATCH: None}}})
        await asyncio.sleep(5)
        world.start()
        await asyncio.sleep(20)
        assert world.running_hub.fleet.swept.apart["a"]
        without(world, "a", "pytorchjobs")
        await asyncio.sleep(60)
        assert await world.places("PyTorchJob", "stuck") == []


async def test_a_member_that_lists_no_kind_is_not_swept() -> None:
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        world.start()
        without(world, "b", "/apis/")
        await asyncio.sleep(60)
        assert await world.places("Job", "train") == []
        assert "b" in world.running_hub.fleet.swept.due


def without(world: Fleet, member: str, word: str) -> Callable[[], None]:
    """Let a member list nothing whose path has this word; return what mends it."""
    link = world.links[member]
    request = link.request

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if word in path and "/namespaces/" not in path:
            raise Unavailable(500, "InternalError", WORDS)
        return await request(method, path, **how)

    def mend() -> None:
        link.request = request  # type: ignore[method-assign]

    link.request = asked  # type: ignore[method-assign]
    return mend


async def runs_twice(world: Fleet, kind: str, job: dict[str, Any]) -> None:
    """Let a job run in ``a``, which is silent and was declared lost, and in ``b``."""
    await world.hub.cluster.create(job)
    await world.until(lambda: world.places(kind, "train"))
    await asyncio.sleep(10)
    world.links["a"].freeze()
    await asyncio.sleep(10)
    [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
    await asyncio.sleep(60)
    assert sorted(await world.places(kind, "train")) == ["a", "b"]
