"""A gang of a silent member is given up by the grace that its pods have there, whatever its job says since."""

import asyncio
from typing import Any

import pytest

from tests.unit.fleet.clusters import fleet, pytorch_job
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SEED, SURELY_SECONDS, runs_in
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.laboratory.simulated.controllers.base import Pace

pytestmark = pytest.mark.virtual_time
GRACE = 600


def with_grace(seconds: int) -> dict[str, Any]:
    job = pytorch_job(runtime="6000s")
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    return job


@pytest.mark.parametrize("edited", [False, True])
async def test_a_gang_does_not_run_twice_whose_grace_is_made_shorter_in_the_hub_while_a_member_has_it(
    edited: bool,
) -> None:
    async with fleet("a", "b", silent_hub_seconds=PATIENCE, pace=Pace(pod_stop_seconds=GRACE)) as world:
        await asyncio.sleep(3 * RENEW_SECONDS)
        await world.hub.cluster.create(with_grace(GRACE))
        await runs_in(world, 3, 0)
        if edited:
            replicas = with_grace(5)["spec"]["pytorchReplicaSpecs"]
            await world.hub.patch(*SEED, {"spec": {"pytorchReplicaSpecs": replicas}})
            await asyncio.sleep(5)
        world.links["a"].freeze()
        await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
        assert await world.members["a"].pods(), "they take their time to end"
        assert await world.members["b"].pods() == []
