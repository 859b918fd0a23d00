"""What comes along with a job: told in the end, up to date, and there as long as the job."""

import asyncio

import pytest

from tests.unit.fleet.clusters import NAMESPACE, fleet, template
from tests.unit.fleet.jobs.dependencies.test_dependencies import (
    change,
    get,
    give,
    make,
    needy,
    refuse,
    remove,
    runs_in,
    started,
    told,
)
from webhook.core.notation import names
from webhook.errors import Forbidden

pytestmark = pytest.mark.virtual_time
ROLE = "eks.amazonaws.com/role-arn"


@pytest.mark.parametrize("waiting", [0, 200])
async def test_a_dependency_that_is_missing_is_told_in_the_end_though_jobs_of_others_are_told_that_they_wait(
    waiting: int,
) -> None:
    async with fleet("a") as world:
        await give(world)
        fleet_, now = world.running_hub.fleet, asyncio.get_running_loop().time

        async def tell_those_that_wait() -> None:
            """What ``NoMember`` for thousands of jobs takes: all that is allowed, for a while."""
            for _ in range(waiting):
                while not fleet_.telling_of_waits.takes(now()):
                    await asyncio.sleep(0.02)

        telling = asyncio.create_task(tell_those_that_wait())
        await world.hub.cluster.create(needy(runtime="6000s", maps=2))
        await world.until(runs_in(world, "a"))
        await telling
        await asyncio.sleep(600)
        assert ["settings-1" in each for each in await told(world)] == [True]


async def test_a_service_account_that_has_another_identity_in_the_hub_has_it_in_the_member_or_that_is_told() -> None:
    async with fleet("a") as world:
        await give(world)
        await change(world.hub, "ServiceAccount", "trainer", {"metadata": {"annotations": {ROLE: "admin"}}})
        await world.hub.cluster.create(needy("one", "600s", pods=1))
        await world.until(lambda: started(world, "one"))
        await change(world.hub, "ServiceAccount", "trainer", {"metadata": {"annotations": {ROLE: "reader"}}})
        await world.hub.cluster.create(needy("two", "600s", pods=1))
        await world.until(lambda: started(world, "two"))
        await asyncio.sleep(2)
        found = await get(world.members["a"], "ServiceAccount", "trainer")
        assert found is not None
        assert found["metadata"]["annotations"][ROLE] == "reader" or await told(world)


async def test_what_another_hub_has_brought_does_not_go_from_under_a_job_without_a_word() -> None:
    async with fleet("a") as world:
        await give(world)
        side = world.members["a"]
        theirs = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "theirs", "namespace": NAMESPACE}}
        await side.cluster.create({**theirs, "spec": {"suspend": True, "template": template("1s")}})
        stored = await side.get("Job", "theirs")
        assert stored is not None
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": stored["metadata"]["uid"]}
        marks = {"labels": {names.ORIGIN_LABEL: "another-hub"}, "ownerReferences": [owner]}
        await make(side, "ConfigMap", "settings", data={"rate": "of another hub"}, metadata=marks)
        await world.hub.cluster.create(needy(runtime="600s"))
        await world.until(runs_in(world, "a"))
        await side.delete("Job", "theirs")
        await asyncio.sleep(60)
        assert await get(side, "ConfigMap", "settings") is not None or await told(world)


async def test_what_the_hub_no_longer_has_and_others_have_brought_is_told_to_who_comes_later() -> None:
    """It is not kept for them: somebody has taken it away, and it goes with the last of those that have it."""
    async with fleet("a") as world:
        await give(world)
        side = world.members["a"]
        await world.hub.cluster.create(needy("one", "60s", pods=1))
        await world.until(lambda: started(world, "one"))
        await remove(world.hub, "ConfigMap", "settings")
        await world.hub.cluster.create(needy("two", "600s", pods=1))
        await world.until(lambda: started(world, "two"))
        await asyncio.sleep(1)
        found = await get(side, "ConfigMap", "settings")
        assert found is not None
        assert [each["name"] for each in found["metadata"]["ownerReferences"]] == ["one"]
        assert await told(world) == [
            "In a: ConfigMap settings is not in the hub, and a has none of its own: create it in the hub, or in a; "
            "what is there was brought for other jobs, and goes with them"
        ]
        await world.until(lambda: world.over("Job", "one"), 120)
        await asyncio.sleep(5)
        assert await started(world, "two")
        assert await get(side, "ConfigMap", "settings") is None


async def test_what_others_have_brought_and_the_hub_may_no_longer_read_is_told_too() -> None:
    async with fleet("a") as world:
        await give(world)
        await world.hub.cluster.create(needy("one", "60s", pods=1))
        await world.until(lambda: started(world, "one"))
        refuse(world, world.hub, Forbidden(403, "Forbidden", "no"), {"GET"}, {"secrets"})
        await world.hub.cluster.create(needy("two", "600s", pods=1))
        await world.until(lambda: started(world, "two"))
        await asyncio.sleep(1)
        (said,) = await told(world)
        assert "Secret registry may not be read by this hub" in said
        assert said.endswith("; what is there was brought for other jobs, and goes with them")


async def test_what_was_brought_for_a_job_itself_before_the_hub_lost_it_stays_with_that_without_a_word() -> None:
    async with fleet("a") as world:
        await give(world)
        request = world.links["a"].request
        refuse(world, world.members["a"], Forbidden(403, "Forbidden", "not here"), {"POST"}, {"serviceaccounts"})
        await world.hub.cluster.create(needy(runtime="600s"))
        await asyncio.sleep(5)
        assert await get(world.members["a"], "ConfigMap", "settings") is not None
        await remove(world.hub, "ConfigMap", "settings")
        world.links["a"].request = request  # type: ignore[method-assign]
        await world.until(runs_in(world, "a"))
        await asyncio.sleep(5)
        assert await get(world.members["a"], "ConfigMap", "settings") is not None
        assert await told(world) == []
