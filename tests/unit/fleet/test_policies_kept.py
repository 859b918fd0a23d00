"""Who writes policies without end in one namespace fills no hub, and keeps nobody else's from being read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.unit.kube.fake_api import FakeApi, thing
from webhook.fleet.policies.propagation import (
    NAMESPACE_BYTES_MAX,
    POLICIES_MAX,
    SIZE_BYTES_MAX,
    Propagation,
)
from webhook.fleet.watching import LEFT_OUT_SECONDS, PropagationFeed

pytestmark = pytest.mark.virtual_time


def policy(name: str, version: int = 1, *, namespace: str = "team", names: int = 1) -> dict[str, Any]:
    clusters = [f"m{number}" for number in range(names)]
    spec = {"placement": {"clusterAffinity": {"clusterNames": clusters}}}
    return {**thing(name, version, namespace=namespace), "spec": spec}


@asynccontextmanager
async def following(api: FakeApi) -> AsyncIterator[PropagationFeed]:
    """Follow one kind of policy."""

    def changed(found: Propagation | None) -> None:
        pass

    feed = PropagationFeed(api, changed, rng=Random(1))
    task = asyncio.create_task(feed.informers[0].run())
    await asyncio.sleep(1)
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def kept(feed: PropagationFeed, namespace: str = "team") -> list[str]:
    return sorted(name for where, name in feed.informers[0].records if where == namespace)


async def test_of_thousands_of_policies_of_a_namespace_a_hundred_are_kept_and_all_of_another() -> None:
    api = FakeApi()
    api.objects = [policy(f"p{number:04}") for number in range(3000)] + [policy("own", namespace="zoo")]
    async with following(api) as feed:
        assert kept(feed) == [f"p{number:04}" for number in range(POLICIES_MAX)]
        assert kept(feed, "zoo") == ["own"]
        api.watches[-1].say("ADDED", policy("p9999", 2))
        api.watches[-1].say("MODIFIED", policy("p0000", 3, names=7))
        api.watches[-1].say("ADDED", policy("more", 4, namespace="zoo"))
        await asyncio.sleep(1)
        assert len(kept(feed)) == POLICIES_MAX
        (changed,) = feed.informers[0].records["team", "p0000"].groups or ()
        assert len(changed.only or ()) == 7, "those that are kept are still followed"
        assert kept(feed, "zoo") == ["more", "own"]


@pytest.mark.parametrize("names", [200, 400])
async def test_policies_of_a_namespace_are_kept_up_to_a_size_together(names: int) -> None:
    api = FakeApi()
    api.objects = [policy(f"p{number:04}", names=names) for number in range(POLICIES_MAX)]
    async with following(api) as feed:
        sizes = [each.size_bytes for each in feed.informers[0].records.values()]
        assert NAMESPACE_BYTES_MAX - SIZE_BYTES_MAX < sum(sizes) <= NAMESPACE_BYTES_MAX
        grown = kept(feed)[0]
        api.watches[-1].say("MODIFIED", policy(grown, 2, names=450))
        await asyncio.sleep(1)
        sizes = [each.size_bytes for each in feed.informers[0].records.values()]
        assert sum(sizes) <= NAMESPACE_BYTES_MAX


async def test_a_policy_of_more_names_than_anybody_has_clusters_is_not_kept_and_said_why() -> None:
    api = FakeApi()
    api.objects = [policy("long", names=4000)]
    async with following(api) as feed:
        assert kept(feed) == []
        assert "name fewer clusters and labels" in feed.informers[0].unreadable["team", "long"]


async def test_those_that_were_left_out_are_read_once_others_are_gone_and_at_most_once_a_minute() -> None:
    api = FakeApi()
    api.objects = [policy(f"p{number:04}") for number in range(POLICIES_MAX + 2)]
    async with following(api) as feed:
        loop, lists = asyncio.get_running_loop(), feed.informers[0].counts
        assert lists.lists == 1
        for gone in range(2):
            name = api.objects.pop(0)["metadata"]["name"]
            api.version = 10 + gone
            api.watches[-1].say("DELETED", policy(name, api.version))
            await asyncio.sleep(1)
            for _ in range(10):
                feed.read_left_out(loop.time())
                await asyncio.sleep(1)
            assert lists.lists == 2, "whoever deletes one after another has them listed no more often"
        assert kept(feed) == [f"p{number:04}" for number in range(2, POLICIES_MAX + 1)]
        await asyncio.sleep(LEFT_OUT_SECONDS)
        feed.read_left_out(loop.time())
        await asyncio.sleep(1)
        assert kept(feed) == [f"p{number:04}" for number in range(2, POLICIES_MAX + 2)]
        await asyncio.sleep(LEFT_OUT_SECONDS)
        feed.read_left_out(loop.time())
        await asyncio.sleep(1)
        assert lists.lists == 3, "nothing is left out any more"
