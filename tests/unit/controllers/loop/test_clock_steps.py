"""A clock that is set while a leader runs: no gang's time is used up by that."""

import asyncio
from random import Random

import orjson
import pytest

from tests.unit.controllers.ledger.test_ledger_rules import JOB, POLICY, waiting_job
from webhook.assembly import reconciler
from webhook.clock import LoopClock, SteadyClock
from webhook.config import Config
from webhook.core.model import names
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("step_seconds", [86_400.0, -86_400.0], ids=["forward", "back"])
async def test_a_gang_with_a_run_time_limit_runs_on_and_is_stopped_in_time(step_seconds: float) -> None:
    loop, set_by = asyncio.get_running_loop(), 0.0
    steady = SteadyClock(wall=lambda: LoopClock().now() + set_by, elapsed=loop.time)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for item in POLICY:
            await cluster.create(item)
        running = asyncio.create_task(
            reconciler(cluster.api(), Config(), identity="me", clock=steady, rng=Random(1)).run()
        )
        job = waiting_job()
        job["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = "60"
        await cluster.create(job)
        await asyncio.sleep(20)
        set_by = step_seconds
        await asyncio.sleep(20)
        assert not orjson.loads(await cluster.api().request("GET", JOB))["spec"]["suspend"]
        await asyncio.sleep(40)
        assert orjson.loads(await cluster.api().request("GET", JOB))["spec"]["suspend"]
        running.cancel()


async def test_a_steady_clock_counts_on_from_when_it_was_made() -> None:
    wall, elapsed = [1000.0], [5.0]
    clock = SteadyClock(wall=lambda: wall[0], elapsed=lambda: elapsed[0])
    wall[0], elapsed[0] = 99_000.0, 7.5
    assert clock.now() == 1002.5
