"""Jobs of one name: made again, or of two kinds. Each is told what becomes of it."""

import orjson
import pytest

from tests.unit.fleet.clusters import NAMESPACE, Fleet, fleet, plain_job, pytorch_job
from tests.unit.fleet.test_hub import SEED, runs_in

pytestmark = pytest.mark.virtual_time


async def told(world: Fleet) -> set[str]:
    """Return the uids of the jobs that are told where they run."""
    listed = orjson.loads(await world.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
    return {each["involvedObject"]["uid"] for each in listed if each["reason"] == "ScheduleBindingSucceed"}


async def test_a_job_that_is_made_again_by_its_name_is_told_where_it_runs() -> None:
    async with fleet("a") as world:
        uids = set()
        for _ in range(2):
            uids.add((await world.hub.cluster.create(pytorch_job(runtime="600s"))).uid)
            await runs_in(world, 3)
            await world.hub.delete(*SEED)
            await runs_in(world, 0)

            async def gone() -> bool:
                return await world.hub.get(*SEED) is None

            await world.until(gone)
        assert await told(world) == uids


async def test_jobs_of_two_kinds_by_one_name_are_both_told_where_they_run() -> None:
    async with fleet("a") as world:
        first = await world.hub.cluster.create(pytorch_job("same", workers=1, runtime="600s"))
        await runs_in(world, 2)
        second = await world.hub.cluster.create(plain_job("same", runtime="600s"))
        await runs_in(world, 4)
        assert await told(world) == {first.uid, second.uid}
