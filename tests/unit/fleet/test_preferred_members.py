"""A policy selects members by their labels, and says which of them are asked before others."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import KUEUE
from tests.unit.fleet.clusters import Fleet, fleet, plain_job
from tests.unit.fleet.failing import fail_all, failover_policy, once
from tests.unit.fleet.test_hub import runs_in
from tests.unit.fleet.test_slow_members import granted, slow_down
from tests.unit.fleet.test_stopping_others import job, members, runs
from webhook.fleet.members.copies import dispatch_of
from webhook.kube.api import MERGE_PATCH

pytestmark = pytest.mark.virtual_time
SOON_SECONDS = 10.0
B_BEFORE_A = {"clusterAffinities": [{"affinityName": name, "clusterNames": [name]} for name in "ba"]}
WEST = {"clusterAffinity": {"labelSelector": {"matchLabels": {"zone": "west"}}}}


def by(placement: dict[str, Any]) -> dict[str, Any]:
    return failover_policy("Job", placement=placement)


def named(member: str, **labels: str) -> dict[str, Any]:
    """The MultiKueueCluster of a member's name."""
    spec = {"clusterSource": {"kubeConfig": {"location": member, "locationType": "Secret"}}}
    metadata = {"name": member, "labels": labels}
    return {"apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": metadata, "spec": spec}


async def has_it(world: Fleet, name: str, seconds: float = SOON_SECONDS) -> str:
    await world.hub.cluster.create(plain_job(name, pods=4, runtime="6000s"))
    return await granted(world, name, seconds)


async def test_a_gang_runs_in_the_member_whose_labels_its_policy_selects_and_waits_while_there_is_none() -> None:
    async with fleet("a", "b", "c") as world:
        for each in (by(WEST), named("a", zone="east"), named("c", zone="west")):
            await world.hub.cluster.create(each)
        await asyncio.sleep(1)
        assert await has_it(world, "first") == "c"
        path = f"/apis/{KUEUE}/multikueueclusters/c"
        change = orjson.dumps({"metadata": {"labels": {"zone": "east"}}})
        await world.hub.admin.request("PATCH", path, body=change, content_type=MERGE_PATCH)
        await asyncio.sleep(1)
        await world.hub.cluster.create(plain_job("second", pods=2, runtime="6000s"))
        await asyncio.sleep(30)
        assert await world.places("Job", "first") == ["c"], "what runs there stays"
        said = dispatch_of(await world.hub.get("Job", "second") or {}).elsewhere
        policy = "is left out by PropagationPolicy team-a/for-job"
        assert said == (
            f"a {policy}: the labels of MultiKueueCluster a do not match",
            f"b {policy}: it asks for labels, and there is no MultiKueueCluster b to have any",
            f"c {policy}: the labels of MultiKueueCluster c do not match",
        )
        await world.hub.cluster.create(named("b", zone="west"))
        assert await granted(world, "second", 15) == "b"


async def test_the_second_group_gets_what_the_first_has_no_room_for() -> None:
    async with fleet("a", "b", "c") as world:
        await world.hub.cluster.create(by(B_BEFORE_A))
        await asyncio.sleep(1)
        assert [await has_it(world, name) for name in ("first", "second")] == ["b", "a"]
        await world.hub.cluster.create(plain_job("third", pods=4))
        await asyncio.sleep(60)
        assert await world.places("Job", "third") == [], "c is in no group"
        await world.hub.delete("Job", "first")
        assert await granted(world, "third", SOON_SECONDS) == "b"


async def test_a_first_group_that_does_not_answer_or_is_slow_holds_nothing_up() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(by(B_BEFORE_A))
        await asyncio.sleep(10)
        slow_down(world, "b")
        await asyncio.sleep(20)
        assert await has_it(world, "first", 5) == "a"
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(by(B_BEFORE_A))
        await asyncio.sleep(10)
        world.links["b"].freeze()
        await asyncio.sleep(20)
        assert await has_it(world, "first", 5) == "a"


async def test_a_member_of_the_first_group_that_falls_silent_with_an_offer_loses_it_to_the_second() -> None:
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(by(B_BEFORE_A))
        await asyncio.sleep(1)
        assert await has_it(world, "full", SOON_SECONDS) == "b"
        theirs = plain_job("theirs", pods=4, runtime="20s")
        del theirs["spec"]["managedBy"]
        await world.members["a"].cluster.create(theirs)
        await asyncio.sleep(3)
        await world.hub.cluster.create(plain_job("waits", pods=4, runtime="6000s"))
        await asyncio.sleep(2)
        world.links["b"].freeze()
        assert await granted(world, "waits", 60) == "a"


async def test_a_gang_that_failed_in_the_first_group_is_tried_in_the_second() -> None:
    async with fleet("a", "b", "c") as world:
        await fail_all(world.members["b"])
        await world.hub.cluster.create(by(B_BEFORE_A))
        await world.hub.cluster.create(once(plain_job(pods=2, runtime="60s")))
        await asyncio.sleep(60)
        await runs_in(world, 2, 0, 0)


async def fill_first(world: Fleet) -> None:
    """Let a usual gang run in the first group, which has no room for another then."""
    await world.hub.cluster.create(by(B_BEFORE_A))
    await asyncio.sleep(1)
    await world.hub.cluster.create(job("usual"))
    assert await runs(world, "usual") == "b"
    await asyncio.sleep(2)


async def test_where_nobody_has_room_somebody_is_stopped_in_the_first_group() -> None:
    async with members("a", "b") as world:
        await fill_first(world)
        await world.hub.cluster.create(job("other"))
        assert await runs(world, "other") == "a"
        await asyncio.sleep(2)
        await world.hub.cluster.create(job("urgent", "urgent"))
        assert await runs(world, "urgent") == "b"
        assert await world.places("Job", "other") == ["a"]


async def test_an_urgent_gang_takes_room_of_the_second_group_before_it_stops_another() -> None:
    async with members("a", "b") as world:
        await fill_first(world)
        await world.hub.cluster.create(job("urgent", "urgent"))
        assert await runs(world, "urgent") == "a"
        assert await world.places("Job", "usual") == ["b"]
