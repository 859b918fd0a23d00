"""A cluster that two names lead to is one cluster, also for a gang that fails there."""

import asyncio

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, Side, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_dead_man import SEED
from tests.unit.fleet.test_failover import has_failed, true_conditions
from tests.unit.fleet.test_said_cluster import says_it_is, says_uid
from webhook.fleet.members.copies import dispatch_of
from webhook.laboratory.simulated.objects.store import Event

pytestmark = pytest.mark.virtual_time


def started(side: Side) -> set[str]:
    """Return the copies that have run in a member, by uid; it goes on growing."""
    ran = set[str]()

    def note(event: Event) -> None:
        if not event.current.object["spec"]["runPolicy"].get("suspend"):
            ran.add(event.current.uid)

    side.cluster.server.store.subscribe(note, ("kubeflow.org", "pytorchjobs"))
    return ran


async def fails_there(side: Side) -> bool:
    """Return whether the seed has failed in a member."""
    return "Failed" in true_conditions(await side.get(*SEED))


async def test_a_gang_that_failed_is_not_tried_again_in_the_same_cluster_by_its_other_name() -> None:
    async with fleet("a", "b", starts=False) as world:
        world.away = {"b"}
        world.start()
        world.running_hub.join("z", world.members["a"].cluster.api(HUB_ACCOUNT))
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        copies = set()
        async with asyncio.timeout(4 * TOLERATION):
            while not await has_failed(world, "PyTorchJob", "pytorch-test"):
                copies |= {each["metadata"]["uid"] for each in await world.members["a"].all("PyTorchJob")}
                await asyncio.sleep(0.2)
        assert len(copies) == 1, "each eligible cluster once"


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_job_that_fails_runs_in_each_cluster_once_though_one_gets_another_name(renamed: bool) -> None:
    async with fleet("a", "b") as world:
        made: list[str] = []
        for side in world.members.values():
            await fail_all(side)
            side.cluster.server.store.subscribe(
                lambda event, name=side.name: made.append(name) if event.type == "ADDED" else None,
                ("kubeflow.org", "pytorchjobs"),
            )
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="90s")))

        async def in_b() -> bool:
            return await world.places("PyTorchJob", "pytorch-test") == ["b"]

        await world.until(in_b, 300)
        if renamed:
            world.running_hub.leave("a")
            world.running_hub.join("y", world.members["a"].cluster.api(HUB_ACCOUNT))
        await asyncio.sleep(600)
        assert made == ["a", "b"]
        assert await has_failed(world, "PyTorchJob", "pytorch-test")


async def test_a_failed_job_is_tried_in_the_other_member_though_the_first_says_that_it_is_that_cluster() -> None:
    async with fleet("a", "b") as world:
        await says_it_is(world, "a", "b")
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="90s")))
        await asyncio.sleep(170)
        record = dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {})
        assert await world.places("PyTorchJob", "pytorch-test") == ["b"], record


@pytest.mark.parametrize("lies", [False, True])
async def test_a_member_that_is_silent_keeps_its_try_though_the_first_says_that_it_is_that_cluster(lies: bool) -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        if lies:
            await says_it_is(world, "a", "b")
        await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="60s")))
        await world.until(lambda: world.places(*SEED))
        assert await world.places(*SEED) == ["a"]
        await asyncio.sleep(80)
        world.links["b"].freeze()
        await asyncio.sleep(40)
        world.links["b"].thaw()
        await asyncio.sleep(30)
        record = dispatch_of(await world.hub.get(*SEED) or {})
        assert await world.places(*SEED) == ["b"], record


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_cluster_of_two_names_is_tried_once_though_somebody_deletes_the_failed_copy(deleted: bool) -> None:
    async with fleet("a", "b") as world:
        world.running_hub.join("z", world.members["a"].cluster.api(HUB_ACCOUNT))
        for side in world.members.values():
            await fail_all(side)
        ran = started(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: fails_there(world.members["a"]))
        await asyncio.sleep(5)
        if deleted:
            await world.members["a"].delete(*SEED)
        await asyncio.sleep(400)
        assert await has_failed(world, *SEED)
        assert len(ran) == 1


async def test_a_member_that_says_each_time_that_it_is_another_cluster_has_no_try_without_end() -> None:
    async with fleet("a", "b") as world:
        made: list[str] = []
        world.members["a"].cluster.server.store.subscribe(
            lambda event: made.append("a") if event.type == "ADDED" else None, ("kubeflow.org", "pytorchjobs")
        )
        for side in world.members.values():
            await fail_all(side)
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="20s")))
        said = 0
        async with asyncio.timeout(1200):
            while not await has_failed(world, "PyTorchJob", "pytorch-test"):
                record = dispatch_of(await world.hub.get("PyTorchJob", "pytorch-test") or {})
                if len(record.failed) > said and record.member != "a":
                    said = len(record.failed)
                    await says_uid(world, "a", f"other-{said}")
                await asyncio.sleep(0.2)
        assert said
        assert len(made) == 2
