"""A member's name leads to another cluster that cannot be settled at once: it gets offers, or somebody is told why."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Fleet, fleet, plain_job
from webhook.core.fleet.dispatch import Dispatch
from webhook.core.notation import names
from webhook.errors import Forbidden
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time


def lead_b_to_c(world: Fleet, method: str, refuses: Callable[[str], bool]) -> None:
    """Have a name lead to another cluster, which refuses some requests."""
    link = world.members["c"].cluster.api(HUB_ACCOUNT)
    request = link.request

    async def asked(how: str, path: str, **more: Any) -> bytes:
        if how == method and refuses(path):
            raise Forbidden(403, "Forbidden", 'admission webhook "keep.example.org" denied the request')
        return await request(how, path, **more)

    link.request = asked  # type: ignore[method-assign]
    world.running_hub.fleet.members["b"].reach(link)


async def record(world: Fleet, name: str) -> Dispatch:
    return dispatch_of(await world.hub.get("Job", name) or {})


async def test_one_old_copy_that_is_not_let_go_keeps_no_other_gang_from_it() -> None:
    async with fleet("a", "b", "c", starts=False) as world:
        world.away.add("c")
        world.start()
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(5)
        job = await world.hub.get("Job", "train")
        assert job is not None
        stray = plain_job("train", pods=1, runtime="60s")
        del stray["spec"]["managedBy"]
        stray["spec"]["suspend"] = True
        stray["metadata"]["labels"][names.ORIGIN_LABEL] = world.running_hub.fleet.uid
        stray["metadata"]["annotations"] = {names.OFFER: f"{job['metadata']['uid']} 1.1"}
        await world.members["c"].cluster.create(stray)
        lead_b_to_c(world, "DELETE", lambda path: path.endswith("/jobs/train"))
        await asyncio.sleep(30)
        # a has room for two more pods, and c for three.
        await world.hub.cluster.create(plain_job("next", pods=3, runtime="6000s"))
        await asyncio.sleep(60)
        assert await world.places("Job", "next") == ["c"]


async def test_a_gang_is_told_that_it_could_not_be_swept() -> None:
    async with fleet("a", "b", "c", starts=False) as world:
        world.away.add("c")
        world.start()
        await world.hub.cluster.create(plain_job("train", runtime="6000s"))
        await world.until(lambda: world.places("Job", "train"))
        await asyncio.sleep(5)
        lead_b_to_c(world, "GET", lambda path: "/namespaces/" not in path)
        await asyncio.sleep(10)
        await world.hub.cluster.create(plain_job("next", pods=3, runtime="6000s"))
        await asyncio.sleep(60)
        (told,) = (await record(world, "next")).elsewhere
        assert told.startswith("b leads to a cluster that is looked through first")
        assert "keep.example.org" in told
