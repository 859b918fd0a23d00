"""A job that names a queue of the hub only once it is stored waits there as any other, and runs in a member."""

import asyncio

import pytest

from tests.unit.controllers.stage import POLICY
from tests.unit.fleet.clusters import Make, fleet, plain_job, pytorch_job
from webhook.errors import Forbidden

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("make", [pytorch_job, plain_job])
async def test_a_suspended_job_that_is_labelled_for_a_queue_does_not_start_in_the_hub(make: Make) -> None:
    """The webhook's own advice to who labels a job that runs: suspend it first, and change it then."""
    job = make("late", runtime="60s")
    labels = job["metadata"].pop("labels")
    policy = job["spec"].get("runPolicy", job["spec"])
    del policy["managedBy"]
    policy["suspend"] = True
    async with fleet("a", "b", hub_policy=POLICY) as world:
        await world.hub.cluster.create(job)
        await asyncio.sleep(2)
        try:
            await world.hub.patch(job["kind"], "late", {"metadata": {"labels": labels}})
        except Forbidden:
            # To say so then would do as well.
            return
        await asyncio.sleep(30)
        assert await world.hub.pods() == []
        assert await world.places(job["kind"], "late") == ["a"]
