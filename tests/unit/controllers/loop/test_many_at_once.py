"""A leader that has more to look at than it does in a row, such as a new one, decides and writes once it saw it all."""

import asyncio
from random import Random

import pytest

from tests.unit.controllers.ledger.test_ledger_rules import POLICY, waiting_job
from webhook.assembly import reconciler
from webhook.clock import LoopClock
from webhook.cluster.view import View
from webhook.config import Config
from webhook.controllers.loop import dirty_set
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


async def test_many_gangs_are_looked_at_a_few_in_a_row_and_written_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_set, "TAKEN_MAX", 2)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        await cluster.add_node("node")
        for obj in POLICY:
            await cluster.create(obj)
        for number in range(9):
            job = waiting_job(f"train-{number}", pods=1)
            job["spec"]["template"]["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "20s"}
            await cluster.create(job)
        held: list[frozenset[str]] = []
        for leader in ("first", "second"):
            parts = reconciler(cluster.api(), Config(), identity=leader, clock=LoopClock(), rng=Random(1))

            def note(view: View = parts.view) -> None:
                names = frozenset(entry.name for entry in view.ledger.entries.values())
                if not held or names != held[-1]:
                    held.append(names)

            parts.reconciler.after_cycle = note
            running = asyncio.create_task(parts.run())
            await asyncio.sleep(10)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # By the time that the second one leads all four have ended.
            await asyncio.sleep(20)
        first, second = held
        assert len(first) == len(second) == 4
        assert not first & second, "those that had ended left, and others came, in one write"
