"""Two members' names are swapped while a cluster that was not looked through for a kind may have a gang of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, pytorch_job
from webhook.clock import LoopClock
from webhook.core.notation import names
from webhook.errors import Unavailable
from webhook.fleet.lost import give_up
from webhook.fleet.members.copies import dispatch_of
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.api import SimulatedApi

pytestmark = pytest.mark.virtual_time
JOB = "PyTorchJob", "train"
WORDS = "conversion webhook for it failed: no endpoints available"


def unlisted(link: SimulatedApi, listed: asyncio.Event) -> SimulatedApi:
    """Have a member list no PyTorchJobs until ``listed``."""
    request = link.request

    async def asked(method: str, path: str, **how: Any) -> bytes:
        if path.endswith("/pytorchjobs") and "/namespaces/" not in path and not listed.is_set():
            raise Unavailable(500, "InternalError", WORDS)
        return await request(method, path, **how)

    link.request = asked  # type: ignore[method-assign]
    return link


@asynccontextmanager
async def unseen_in_a(listed: asyncio.Event, *, watched: bool = True) -> AsyncIterator[Fleet]:
    """Yield a hub that has started, of whose job a has the copy, and lists none: its record is lost."""
    async with fleet("a", "b", watched=watched) as world:
        await world.hub.cluster.create(pytorch_job("train", runtime="6000s"))
        await world.until(lambda: world.places(*JOB))
        await asyncio.sleep(5)
        assert await world.places(*JOB) == ["a"]
        world.kill()
        await world.hub.patch(*JOB, {"metadata": {"annotations": {names.DISPATCH: None}}})
        await asyncio.sleep(5)
        world.start()
        unlisted(world.links["a"], listed)
        await asyncio.sleep(30)
        assert world.running_hub.fleet.swept.unseen["a"]
        yield world


async def test_it_is_offered_to_nobody_and_followed_once_its_cluster_lists_the_kind_by_its_new_name() -> None:
    listed = asyncio.Event()
    async with unseen_in_a(listed) as world:
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        world.running_hub.fleet.members["a"].reach(links["b"])
        world.running_hub.fleet.members["b"].reach(unlisted(links["a"], listed))
        await asyncio.sleep(60)
        assert await world.places(*JOB) == ["a"]
        (said,) = dispatch_of(await world.hub.get(*JOB) or {}).elsewhere
        assert said.startswith("b may have it")
        assert WORDS in said
        listed.set()
        await asyncio.sleep(20)
        assert await world.places(*JOB) == ["a"]
        assert dispatch_of(await world.hub.get(*JOB) or {}).member == "b"
        assert world.running_hub.fleet.swept.knows_all_of(KINDS["PyTorchJob.kubeflow.org"].feed)


async def test_one_that_no_name_leads_to_any_more_is_waited_for_until_it_is_declared_lost() -> None:
    async with unseen_in_a(asyncio.Event(), watched=False) as world:
        world.running_hub.fleet.members["a"].reach(world.members["b"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(60)
        assert await world.places(*JOB) == ["a"]
        (said,) = dispatch_of(await world.hub.get(*JOB) or {}).elsewhere
        assert said.startswith("a may have it")
        assert said.endswith(", to which its name led before")
        [_ async for _ in give_up(world.hub.admin, KINDS, "a", LoopClock(), dry_run=False, force=True)]
        await asyncio.sleep(30)
        assert await world.places(*JOB) == ["a", "b"]


async def test_that_a_name_has_not_answered_since_it_was_swapped_is_told() -> None:
    """Before it does nobody hears whether it leads elsewhere now."""
    listed = asyncio.Event()
    async with fleet("a", "b", starts=False) as world:
        await world.hub.cluster.create(pytorch_job("train", workers=0, runtime="6000s"))
        world.start()
        unlisted(world.links["a"], listed)
        await asyncio.sleep(30)
        links = {name: side.cluster.api(HUB_ACCOUNT) for name, side in world.members.items()}
        links["b"].freeze()
        world.running_hub.fleet.reach("a", links["b"])
        world.running_hub.fleet.reach("b", unlisted(links["a"], listed))
        await asyncio.sleep(60)
        listed.set()
        await asyncio.sleep(120)
        (why,) = dispatch_of(await world.hub.get(*JOB) or {}).elsewhere
        assert why.endswith("That is what it said last; now it does not answer")


@pytest.mark.parametrize("renewed", [False, True])
async def test_new_credentials_beside_an_unswept_member_make_nobody_wait_that_did_not_before(renewed: bool) -> None:
    async with fleet("a", "b", "c", starts=False) as world:
        world.away = {"c"}
        world.start()
        never = asyncio.Event()
        unlisted(world.links["b"], never)
        await asyncio.sleep(10)
        # They came after the start, and so do not wait for b. The third finds no room.
        for name in ("first", "second", "third"):
            await world.hub.cluster.create(pytorch_job(name, workers=3, runtime="6000s"))
            await asyncio.sleep(10)
        to_c = world.members["c"].cluster.api(HUB_ACCOUNT)
        to_c.freeze()
        world.running_hub.join("c", to_c)
        await asyncio.sleep(10)
        if renewed:
            world.running_hub.fleet.reach("b", unlisted(world.members["b"].cluster.api(HUB_ACCOUNT), never))
        await asyncio.sleep(20)
        to_c.thaw()
        await asyncio.sleep(60)
        assert await world.places("PyTorchJob", "third") == ["c"]
