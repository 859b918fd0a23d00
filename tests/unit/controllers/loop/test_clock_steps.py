"""A clock that is set while a leader runs, or is wrong when one starts: no gang's time is used up by that."""

import asyncio
from random import Random

import orjson
import pytest

from tests.unit.controllers.stage import JOB, LEDGER, queued_cluster, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import ApiServersClock, LoopClock, telling
from webhook.config import Config
from webhook.core.notation import names
from webhook.kube.election import leader_of, readable_seconds
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.wire.times import unix_seconds

pytestmark = pytest.mark.virtual_time
EVENTS = "/apis/events.k8s.io/v1/events"


@pytest.mark.parametrize("step_seconds", [86_400.0, -86_400.0], ids=["forward", "back"])
async def test_a_gang_with_a_run_time_limit_runs_on_and_is_stopped_in_time(step_seconds: float) -> None:
    loop, set_by = asyncio.get_running_loop(), 0.0
    steady = ApiServersClock(wall=lambda: LoopClock().now() + set_by, elapsed=loop.time)
    async with queued_cluster() as cluster:
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
    clock = ApiServersClock(wall=lambda: wall[0], elapsed=lambda: elapsed[0])
    wall[0], elapsed[0] = 99_000.0, 7.5
    assert clock.now() == 1002.5


def started_off(cluster: SimulatedCluster, identity: str, off_seconds: float) -> ReconcilerParts:
    """Return a reconciler as a process makes it, on a machine whose clock is off by so much."""
    clock = ApiServersClock(
        wall=lambda: LoopClock().now() + off_seconds, elapsed=lambda: asyncio.get_running_loop().time()
    )
    api = cluster.api(on_date=telling(clock))
    return reconciler(api, Config(), identity=identity, clock=clock, rng=Random(1))


@pytest.mark.parametrize("first", [0.0, 3600.0, -3600.0], ids=["right", "ahead", "behind"])
@pytest.mark.parametrize("second", [0.0, 3600.0, -3600.0], ids=["right", "ahead", "behind"])
async def test_leaders_whose_machines_disagree_let_a_gang_run_for_its_time(first: float, second: float) -> None:
    """And write no time that people could not find on their own clocks."""
    async with queued_cluster() as cluster:
        parts = started_off(cluster, "first", first)
        running = asyncio.create_task(parts.run())
        job = waiting_job()
        job["metadata"]["labels"][names.MAX_EXECUTION_LABEL] = "120"
        await cluster.create(job)
        await asyncio.sleep(20)
        (entry,) = parts.view.ledger.entries.values()
        assert abs(LoopClock().now() - 20 - entry.since_seconds) < 20
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        running = asyncio.create_task(started_off(cluster, "second", second).run())
        await asyncio.sleep(70)
        assert not orjson.loads(await cluster.api().request("GET", JOB))["spec"]["suspend"]
        lease = leader_of(orjson.loads(await cluster.api().request("GET", LEDGER)))
        assert lease is not None
        assert lease.holder.startswith("second")
        assert abs(LoopClock().now() - (readable_seconds(lease.renewed) or 0)) < 10
        await asyncio.sleep(45)
        stopped = orjson.loads(await cluster.api().request("GET", JOB))
        assert stopped["spec"]["suspend"]
        events = orjson.loads(await cluster.api().request("GET", EVENTS))["items"]
        assert all(abs(unix_seconds(event["eventTime"]) - LoopClock().now()) < 150 for event in events)
        running.cancel()


async def test_a_clock_takes_the_api_servers_word_once_and_only_where_the_machine_disagrees() -> None:
    elapsed = [5.0]
    clock = ApiServersClock(wall=lambda: 1000.4, elapsed=lambda: elapsed[0])
    assert clock.heard(1000.0) == 0.0
    assert clock.now() == 1000.4
    clock = ApiServersClock(wall=lambda: 4600.0, elapsed=lambda: elapsed[0])
    assert clock.heard(1000.0) == 3600.0
    elapsed[0] = 7.5
    assert clock.now() == 1002.5
    assert clock.heard(50_000.0) == 0.0
    assert clock.now() == 1002.5
