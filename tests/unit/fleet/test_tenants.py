"""What a tenant of the hub, or of a member, does to a job that runs in a member: it stays the hub's to stop."""

import asyncio
from typing import Any

import pytest

from tests.simulation.fleet.rules import Rules
from tests.unit.fleet.clusters import Make, fleet, plain_job, pytorch_job, suspend
from webhook.core.notation import names

pytestmark = pytest.mark.virtual_time
KINDS = pytest.mark.parametrize("make", [plain_job, pytorch_job])


@KINDS
async def test_a_job_that_is_labelled_as_a_copy_is_stopped_and_deleted_as_any_other(make: Make) -> None:
    kind = make()["kind"]
    async with fleet("a", "b") as world:
        await world.hub.cluster.create(make("mine", runtime="600s"))
        await world.until(lambda: world.places(kind, "mine"))
        await world.hub.patch(kind, "mine", {"metadata": {"labels": {names.ORIGIN_LABEL: "mine"}}})
        await asyncio.sleep(2)
        await world.hub.patch(kind, "mine", suspend(make, True))
        await world.until(lambda: world.empty(kind), 30)
        await world.hub.patch(kind, "mine", suspend(make, False))
        await world.until(lambda: world.places(kind, "mine"))
        await world.hub.delete(kind, "mine")

        async def gone() -> bool:
            return await world.hub.get(kind, "mine") is None

        await world.until(gone)


def kept_for(make: Make, seconds: int) -> dict[str, Any]:
    job = make(runtime="10s")
    (job["spec"].get("runPolicy") or job["spec"])["ttlSecondsAfterFinished"] = seconds
    return job


@KINDS
async def test_a_job_that_ends_while_no_hub_runs_runs_once_however_soon_it_is_to_be_deleted(make: Make) -> None:
    kind, name = make()["kind"], make()["metadata"]["name"]
    async with fleet("a", "b") as world:
        rules = Rules(world.hub, world.members)
        await world.hub.cluster.create(kept_for(make, 5))
        await world.until(lambda: world.places(kind, name))
        world.kill()
        await asyncio.sleep(60)
        world.start()
        await world.until(lambda: world.over(kind, name), 30)
        assert [len(copies) for copies in rules.started.values()] == [1]


@KINDS
async def test_a_copy_that_is_deleted_when_it_has_ended_does_not_run_again(make: Make) -> None:
    kind, name = make()["kind"], make()["metadata"]["name"]
    async with fleet("a", "b") as world:
        rules, side = Rules(world.hub, world.members), world.members["a"]
        await world.hub.cluster.create(make(runtime="10s"))
        await world.until(lambda: world.places(kind, name))
        world.kill()
        await side.patch(kind, name, {"metadata": {"finalizers": ["example.org/slow"]}})
        await asyncio.sleep(30)
        await side.delete(kind, name)
        world.start()
        await asyncio.sleep(5)
        await side.patch(kind, name, {"metadata": {"finalizers": None}})
        await world.until(lambda: world.over(kind, name), 30)
        assert [len(copies) for copies in rules.started.values()] == [1]
