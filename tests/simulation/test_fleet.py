"""A hub and three members under faults: links that lose, repeat, delay and swallow, and a hub that dies at its writes.

After each write that is stored in a member: no gang has pods or an un-suspended copy in two of them. When all is calm
again each gang has run to its end, and nothing of it is left anywhere.
"""

import asyncio
from random import Random

import pytest

from tests.unit.fleet.clusters import Fleet, fleet, plain_job, pytorch_job
from webhook.laboratory.simulated.api import WritePoint
from webhook.laboratory.simulated.faults import ROUGH, FaultPlan

pytestmark = pytest.mark.virtual_time
SEEDS = 6
JOBS = 6
BUSY_SECONDS = 120.0
CRASH = 0.03


async def cut_links(world: Fleet, chance: Random) -> None:
    """Cut a link now and then: what was asked of it hangs until it heals."""
    while True:
        await asyncio.sleep(chance.uniform(1, 15))
        link = world.links[chance.choice(sorted(world.links))]
        link.freeze()
        await asyncio.sleep(chance.uniform(1, 25))
        link.thaw()


async def keep_a_hub(world: Fleet, chance: Random) -> None:
    """Start a hub again when it has died at a write."""

    def crash(point: WritePoint) -> None:
        if chance.random() < CRASH:
            world.kill()

    while True:
        world.start(crash, FaultPlan(chance, ROUGH))
        while not world.dead:
            await asyncio.sleep(1)
        await asyncio.sleep(chance.uniform(0, 5))


async def submit(world: Fleet, chance: Random) -> list[tuple[str, str]]:
    jobs = []
    for number in range(JOBS):
        make = chance.choice((pytorch_job, plain_job))
        job = make(f"job-{number}", runtime=f"{chance.randrange(1, 40)}s")
        await world.hub.cluster.create(job)
        jobs.append((job["kind"], f"job-{number}"))
        await asyncio.sleep(chance.uniform(0, BUSY_SECONDS / JOBS))
    return jobs


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_each_gang_runs_in_one_member_and_leaves_nothing(seed: int) -> None:
    chance = Random(seed)
    async with fleet("a", "b", "c", starts=False) as world:
        faults = [asyncio.create_task(work) for work in (keep_a_hub(world, chance), cut_links(world, chance))]
        try:
            jobs = await submit(world, chance)
            await asyncio.sleep(BUSY_SECONDS / 2)
        finally:
            for task in faults:
                task.cancel()
            await asyncio.gather(*faults, return_exceptions=True)
        world.kill()
        world.start()

        async def all_over() -> bool:
            return all([await world.over(*job) for job in jobs])

        await world.until(all_over, 900)
        await asyncio.sleep(30)
        assert await world.empty("Job")
        assert await world.empty("PyTorchJob")
