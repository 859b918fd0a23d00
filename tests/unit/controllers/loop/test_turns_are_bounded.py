"""No turn of the loop takes longer because more gangs stop: what is done in one is counted, not timed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import POLICY, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.config import Config
from webhook.controllers.gangs import stops
from webhook.controllers.loop import dirty_set, engine_feed
from webhook.controllers.loop import reconciler as loop
from webhook.core.quota.allocations import Allocations
from webhook.core.scheduler import cycle
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
GANGS = 40
MOST = 4
"""Of anything, in a row."""
LOOKS = 2 * GANGS
URGENT: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"


class Turns:
    """What was done in the fullest turn, by what it is."""

    def __init__(self) -> None:
        self.most, self.all = Counter[str](), Counter[str]()
        self._now = Counter[str]()
        self._due = False

    def note(self, what: str, count: int = 1) -> None:
        """Take note that so much was done in this turn."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._end)
        self._now[what] += count
        self.all[what] += count
        self.most[what] = max(self.most[what], self._now[what])

    def _end(self) -> None:
        self._due = False
        self._now.clear()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Few may be in a row, and what is done is counted."""
    found = Turns()
    for module, name, most in (
        (engine_feed, "SETTLED_MAX", MOST),
        (dirty_set, "TAKEN_MAX", MOST),
        (stops, "STOPPED_MAX", MOST),
        (cycle, "DRAINED_MAX", MOST),
        (loop, "LOOKED_AT_MAX", LOOKS),
    ):
        monkeypatch.setattr(module, name, most)

    def counted(owner: type, name: str, what: str, number: Callable[[Any], int] = lambda _: 1) -> None:
        original = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            found.note(what, number(result))
            return result

        monkeypatch.setattr(owner, name, noted)

    counted(stops.Stops, "gang", "stopped")
    counted(loop.Reconciler, "_absorb_one", "looked at")
    counted(Occupancy, "_begin", "settled")
    counted(Allocations, "to_look_at", "considered as victims", len)
    return found


async def _told(turns: Turns, *, wide: int = 0, narrow: int = 0) -> None:
    """Run as many gangs as there is room for, then drain their queue, or have ``wide`` gangs want the room of all or
    ``narrow`` ones that of one each; all are stopped.
    """
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for number in range(GANGS // 4):
            await cluster.add_node(f"node-{number}", cpu="4")
        flavor, queue, local = POLICY
        resources = [{"name": "cpu", "nominalQuota": GANGS}]
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}]
        rules = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": rules}
        for policy in (flavor, {**queue, "spec": spec}, local, URGENT):
            await cluster.create(policy)
        parts = reconciler(cluster.api(), Config(), identity="me", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(2)
        for number in range(GANGS):
            await cluster.create(waiting_job(f"low-{number}", pods=1))
        await asyncio.sleep(20)
        low = set(parts.view.ledger.entries)
        assert len(low) == GANGS
        turns.most.clear()
        turns.all.clear()
        for number in range(wide + narrow):
            high = waiting_job(f"high-{number}", pods=GANGS // 4 if wide else 1)
            pod = high["spec"]["template"]["spec"]
            pod["priorityClassName"] = URGENT["metadata"]["name"]
            pod["containers"][0]["resources"] = {"requests": {"cpu": "4" if wide else "1"}}
            await cluster.create(high)
        if not wide + narrow:
            body = orjson.dumps({"spec": {"stopPolicy": "HoldAndDrain"}})
            await cluster.api().request("PATCH", QUEUE, body=body, content_type="application/merge-patch+json")
        await asyncio.sleep(40)
        assert low.isdisjoint(parts.view.ledger.entries)
        assert len(parts.view.ledger.entries) == wide + narrow
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert turns.all["stopped"] == GANGS


async def test_a_queue_that_drains_is_stopped_and_settled_a_few_gangs_in_a_turn(turns: Turns) -> None:
    await _told(turns)
    _bounded(turns)


async def test_all_that_one_wide_gang_has_stopped_are_stopped_a_few_in_a_turn(turns: Turns) -> None:
    await _told(turns, wide=1)
    _bounded(turns)


async def test_many_gangs_that_each_have_one_stopped_search_in_turns(turns: Turns) -> None:
    await _told(turns, narrow=GANGS)
    _bounded(turns)
    assert turns.all["considered as victims"] > 10 * LOOKS


def _bounded(turns: Turns) -> None:
    assert turns.most["stopped"] <= MOST
    assert turns.most["looked at"] <= MOST
    # Before gangs are looked at, between, and before they are decided about.
    assert turns.most["settled"] <= 3 * MOST
    # One decision may look at all of them more than once: it is the last of its turn.
    assert turns.most["considered as victims"] <= LOOKS + 8 * GANGS
