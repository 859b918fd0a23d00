"""What the hub shows of a job that has ended is what its copy showed last."""

import asyncio

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, pytorch_job, template
from webhook.laboratory.simulated.api import WritePoint

pytestmark = pytest.mark.virtual_time
SEED = "PyTorchJob", "pytorch-test"


async def test_what_a_controller_counts_after_the_end_is_shown_before_the_copy_is_deleted() -> None:
    job = pytorch_job(runtime="5s")
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = template("6s")
    async with fleet("a", starts=False) as world:

        def die(point: WritePoint) -> None:
            if (point.method, point.phase) == ("DELETE", "before"):
                world.kill()

        world.start(die)
        await world.hub.cluster.create(job)
        async with asyncio.timeout(60):
            while not world.dead:
                await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        ended = (await world.members["a"].get(*SEED) or {})["status"]
        assert (await world.hub.get(*SEED) or {})["status"] != ended, "its workers ended after its master"
        world.start()
        await world.until(lambda: world.over(*SEED), 60)
        assert (await world.hub.get(*SEED) or {})["status"] == ended


async def test_once_it_is_stopped_it_has_no_status_rather_than_an_empty_one() -> None:
    """Definitions require fields of a status that is there: that of a SparkApplication its driver's."""
    async with fleet("a") as world:
        await world.hub.cluster.create(pytorch_job(runtime="600s"))
        await world.until(lambda: shown(world))
        await world.hub.patch(*SEED, {"spec": {"runPolicy": {"suspend": True}}})
        await world.until(lambda: world.empty("PyTorchJob"))

        async def cleared() -> bool:
            return "status" not in (await world.hub.get(*SEED) or {})

        await world.until(cleared)


async def shown(world: Fleet) -> bool:
    """The hub's job says how its copy runs."""
    return bool((await world.hub.get(*SEED) or {}).get("status"))
