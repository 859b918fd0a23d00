"""What a start costs the API server, however many pods the gang has and wherever they are to go."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.controllers.stage import PODS, POLICY, waiting_job
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.laboratory.simulated.api import SimulatedApi
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
NODES, RACK = 64, "example.com/rack"


class Counted(SimulatedApi):
    """A connection that keeps what it was asked to write: verb, last part of the path, and body."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.router)
        self.stored: list[tuple[str, str, bytes]] = []

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        """Send one request; a dry run stores nothing."""
        if method != "GET" and "dryRun" not in (more.get("query") or {}):
            self.stored.append((method, path.rpartition("/")[2], more.get("body") or b""))
        return await super().request(method, path, **more)


@pytest.mark.parametrize("pods", [2, 1000])
async def test_a_start_is_one_write_of_the_ledger_and_one_of_the_job_and_its_owner_is_told_by_one_event(
    pods: int,
) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        for number in range(NODES):
            await cluster.add_node(f"node-{number:02}", cpu="16", labels={RACK: f"r{number // 8}"})
        for each in POLICY:
            enough = orjson.dumps(each).replace(b'"nominalQuota":4', b'"nominalQuota":1000')
            await cluster.create(orjson.loads(enough))
        api = Counted(cluster)
        leader = reconciler(api, Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(leader.run())
        await asyncio.sleep(10)
        api.stored.clear()
        ranked = waiting_job(pods=pods)
        ranked["spec"]["completionMode"] = "Indexed"
        ranked["spec"]["template"]["metadata"]["annotations"] = {names.PREFERRED_TOPOLOGY: RACK}
        uid = (await cluster.create(ranked)).uid.encode()
        await asyncio.sleep(30)
        made = orjson.loads(await cluster.api().request("GET", PODS))["items"]
        assert sum(1 for pod in made if pod["spec"].get("nodeName")) == pods
        of_gang = [
            (verb, what)
            for verb, what, body in api.stored
            if what == "train" or (what == names.LEDGER_NAME and uid in body)
        ]
        assert of_gang == [("PATCH", names.LEDGER_NAME), ("PATCH", "train")]
        # Besides: its lease goes on, and queues show what they use.
        others = Counter(what for _, what, _ in api.stored if what != names.LEDGER_NAME)
        assert others == {"train": 1, "events": 1, "status": 2}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
