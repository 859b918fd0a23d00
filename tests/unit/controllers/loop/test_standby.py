"""A standby answers as the leader does, and leads as soon as the lease of a leader that died has run out, or at once
when it is told of that death.
"""

import asyncio
from dataclasses import replace
from random import Random

import orjson
import pytest

from tests.unit.controllers.stage import JOB, POLICY, waiting_job
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.controllers.loop.death_watch import DeathWatch
from webhook.kube.election import LeaderRecord
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "team-a"},
    "spec": {"hard": {"pods": "1"}},
}


async def test_leader_and_standby_name_the_same_resource_quota() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for obj in (*POLICY, QUOTA, waiting_job()):
            await cluster.create(obj)
        replicas: list[ReconcilerParts] = [
            reconciler(cluster.api(), Config(), identity=name, clock=LoopClock(), rng=Random(name))
            for name in ("one", "two")
        ]
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        await asyncio.sleep(10)
        uid = orjson.loads(await cluster.api().request("GET", JOB))["metadata"]["uid"]
        assert sorted(replica.reconciler.leading for replica in replicas) == [False, True]
        said = {str(replica.reconciler.reason(uid)) for replica in replicas}
        assert len(said) == 1
        assert said.pop().startswith("asks for 2 pods; ResourceQuota team-a/few has 1")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("seed", range(4))
async def test_a_standby_leads_when_the_lease_has_run_out_and_not_a_look_or_two_later(seed: int) -> None:
    config = Config()
    async with SimulatedCluster(Random(seed), namespaces=("tutti-system", "team-a")) as cluster:
        dying = cluster.api()
        due: list[float] = []
        first, second = (
            reconciler(api, config, identity=name, clock=LoopClock(), rng=Random(name), on_renewed=renewed)
            for name, api, renewed in (("one", dying, due.append), ("two", cluster.api(), lambda deadline: None))
        )
        running = [asyncio.create_task(first.run())]
        await asyncio.sleep(2.5)
        running.append(asyncio.create_task(second.run()))
        await asyncio.sleep(10 + Random(seed).uniform(0, 5))
        dying.sever()
        died, left = asyncio.get_running_loop().time(), second.terms.keeper.free_in_seconds
        while not second.reconciler.leading:
            await asyncio.sleep(0.01)
        # It had seen the last renewal as that was made, and did not look later than it had to.
        renewed = due[-1] - config.lease.renew_seconds
        assert died + left < renewed + config.lease.lease_seconds + 0.2
        assert asyncio.get_running_loop().time() - died < left + 0.2
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Told:
    """What a standby is told of deaths, and which addresses it has asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dead = asyncio.Event()

    async def death_of(self, address: str) -> None:
        self.asked.append(address)
        await self.dead.wait()


@pytest.mark.parametrize("lives", [False, True], ids=["it is dead", "it lives"])
async def test_a_standby_leads_at_once_when_it_is_told_that_the_leader_is_dead(lives: bool) -> None:
    """Wrongly told so it takes over from one that lives, which steps down and leaves it the lease."""
    told = Told()
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        dying, silent = cluster.api(), Told()
        first, second = (
            reconciler(api, Config(), identity=name, clock=LoopClock(), rng=Random(name), address=name, death_of=by)
            for name, api, by in (("one", dying, silent.death_of), ("two", cluster.api(), told.death_of))
        )
        running = [asyncio.create_task(first.run())]
        await asyncio.sleep(2.5)
        running.append(asyncio.create_task(second.run()))
        await asyncio.sleep(10)
        assert told.asked == ["one"]
        if not lives:
            dying.sever()
        told.dead.set()
        await asyncio.sleep(0.3)
        assert second.reconciler.leading
        await asyncio.sleep(10)
        assert second.reconciler.leading
        assert not first.reconciler.leading
        assert silent.asked == (["two"] if lives else [])
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_who_cannot_take_the_lease_of_the_dead_asks_no_faster_than_usual() -> None:
    told = Told()
    told.dead.set()
    record = LeaderRecord("one_1", 5.0, "", "", 1, "one")
    watch, began = DeathWatch(told.death_of), asyncio.get_running_loop().time()
    assert await watch.wait(record, 1.0)
    for _ in range(3):
        assert not await watch.wait(record, 1.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)
    assert await watch.wait(replace(record, transitions=2), 1.0)
    assert told.asked == ["one", "one"]
    watch.stop()


async def test_what_fails_to_tell_of_deaths_tells_of_none() -> None:
    async def death_of(_address: str) -> None:
        raise OSError("no more sockets")

    watch, began = DeathWatch(death_of), asyncio.get_running_loop().time()
    for _ in range(2):
        assert not await watch.wait(LeaderRecord("one_1", 5.0, "", "", 1, "one"), 1.0)
    assert asyncio.get_running_loop().time() - began <= 2.0


async def test_who_leads_or_sees_another_lead_watches_the_former_one_no_more() -> None:
    watched: list[str] = []

    async def death_of(address: str) -> None:
        watched.append(address)
        try:
            await asyncio.Event().wait()
        finally:
            watched.remove(address)

    watch = DeathWatch(death_of)
    for address in ("one", "two"):
        assert not await watch.wait(LeaderRecord(address, 5.0, "", "", 1, address), 1.0)
        assert watched == [address]
    watch.stop()
    await asyncio.sleep(0)
    assert not watched


async def test_a_standby_whose_own_network_was_away_leaves_the_lease_to_who_renews_it() -> None:
    """All its connections ended, and new ones were refused: that told it nothing of the leader."""
    told = Told()
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        away = cluster.api()
        first, second = (
            reconciler(api, Config(), identity=name, clock=LoopClock(), rng=Random(name), address=name, death_of=by)
            for name, api, by in (("one", cluster.api(), Told().death_of), ("two", away, told.death_of))
        )
        running = [asyncio.create_task(first.run())]
        await asyncio.sleep(2.5)
        running.append(asyncio.create_task(second.run()))
        await asyncio.sleep(10)
        away.freeze()
        told.dead.set()
        await asyncio.sleep(60)
        away.thaw()
        await asyncio.sleep(10)
        assert (first.reconciler.leading, second.reconciler.leading) == (True, False)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
