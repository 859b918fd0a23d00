"""A job that fails leaves its member for none that answers and would be offered nothing, or would start nothing."""

import asyncio

import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, fleet, pytorch_job
from tests.unit.fleet.failing import TOLERATION, fail_all, failover_policy, once
from tests.unit.fleet.test_dead_man import SEED
from tests.unit.fleet.test_failover import has_failed
from tests.unit.fleet.test_no_leader import SEEN_SECONDS, whose_reconciler_ends
from tests.unit.fleet.test_said_cluster import says_it_is
from tests.unit.fleet.test_swept_but_for_one_kind import without
from tests.unit.fleet.test_two_names_failing import fails_there, started
from webhook.fleet.jobs.asking.failed import SILENT_SECONDS
from webhook.fleet.members.copies import dispatch_of

pytestmark = pytest.mark.virtual_time
SOON_SECONDS = 15.0
"""A few looks."""


@pytest.mark.parametrize("comes", ["before it was swept", "later"])
async def test_it_has_failed_after_a_minute_beside_a_cluster_that_was_never_swept(comes: str) -> None:
    async with fleet("a", "b", starts=False) as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        world.start()
        if comes == "later":
            without(world, "b", "/apis/")
            await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="60s")))
        await world.until(lambda: world.places(*SEED))
        if comes == "before it was swept":
            # The name of b leads to another cluster now, which no sweep can read.
            without(world, "b", "/apis/")
            world.running_hub.fleet.swept.clusters.pop("b")
        await world.until(lambda: fails_there(world.members["a"]), 100)
        await asyncio.sleep(TOLERATION + SOON_SECONDS)
        waits = dispatch_of(await world.hub.get(*SEED) or {}).waits
        assert waits.endswith("; others may have it, and could not be looked through yet, or start nothing: b")
        await world.until(lambda: has_failed(world, *SEED), SILENT_SECONDS + SOON_SECONDS)


async def test_it_is_tried_there_once_that_cluster_could_be_swept() -> None:
    async with fleet("a", "b", starts=False) as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        world.start()
        mend = without(world, "b", "/apis/")
        await asyncio.sleep(10)
        await world.hub.cluster.create(once(pytorch_job(runtime="60s")))
        await world.until(lambda: world.places(*SEED))
        await world.until(lambda: fails_there(world.members["a"]), 100)
        await asyncio.sleep(TOLERATION + SOON_SECONDS)
        mend()
        await world.until(lambda: world.over(*SEED), 200)
        assert not await has_failed(world, *SEED)


@pytest.mark.parametrize("silent", [True, False])
async def test_it_has_failed_after_a_minute_beside_a_member_whose_tutti_nobody_leads(silent: bool) -> None:
    async with whose_reconciler_ends("b") as (world, runs):
        await runs.aclose()
        if silent:
            world.links["a"].freeze()
        await asyncio.sleep(SEEN_SECONDS)
        await fail_all(world.members["b"])
        await world.hub.cluster.create(failover_policy())
        await world.hub.cluster.create(once(pytorch_job(runtime="30s")))
        await world.until(lambda: world.places(*SEED))
        assert await world.places(*SEED) == ["b"]
        await world.until(lambda: fails_there(world.members["b"]), 100)
        await world.until(lambda: has_failed(world, *SEED), TOLERATION + SILENT_SECONDS + SOON_SECONDS)


@pytest.mark.parametrize("swept_by_that_name", [False, True])
@pytest.mark.parametrize("late", [0.0, 1.0, 3.0, 6.0])
async def test_it_runs_once_in_a_cluster_though_another_name_has_only_come_to_lead_there(
    late: float, swept_by_that_name: bool
) -> None:
    async with fleet("a", "b") as world:
        side = world.members["a"]
        await fail_all(side)
        ran = started(side)
        await world.hub.cluster.create(failover_policy())
        await asyncio.sleep(10)
        if swept_by_that_name:
            running = world.running_hub.fleet
            running.swept.clusters["b"].append(running.members["a"].uid)
        await world.hub.cluster.create(once(pytorch_job(runtime="5s")))
        await world.until(lambda: fails_there(side))
        # The new credentials lead to the cluster of a, which they reach only a little later.
        to_a = side.cluster.api(HUB_ACCOUNT)
        to_a.freeze()
        world.running_hub.fleet.reach("b", to_a)
        await asyncio.sleep(TOLERATION + 5 + late)
        to_a.thaw()
        await world.until(lambda: has_failed(world, *SEED), SILENT_SECONDS + SOON_SECONDS)
        assert len(ran) == 1


async def test_a_member_that_answers_for_the_first_time_has_its_try_though_the_first_says_it_is_that_cluster() -> None:
    async with fleet("a", "b") as world:
        await fail_all(world.members["a"])
        await world.hub.cluster.create(failover_policy())
        await says_it_is(world, "a", "b")
        b = world.running_hub.fleet.members["b"]
        await world.hub.cluster.create(once(pytorch_job(runtime="20s")))
        await world.until(lambda: world.places(*SEED))
        assert await world.places(*SEED) == ["a"]
        await world.until(lambda: fails_there(world.members["a"]))
        world.links["b"].freeze()
        b.uid = ""
        await asyncio.sleep(TOLERATION + SOON_SECONDS)
        world.links["b"].thaw()
        await world.until(lambda: world.over(*SEED), 200)
        assert not await has_failed(world, *SEED)
