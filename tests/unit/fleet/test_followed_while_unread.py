"""A hub that starts while it cannot read queues or checks follows what its members have, and they hear of it."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, fleet, plain_job
from tests.unit.fleet.test_roster import POLICY, World, kubeconfig, secret
from webhook.clock import LoopClock
from webhook.errors import Forbidden
from webhook.fleet.hub import Hub
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.roster import Roster
from webhook.jobs.kinds.registry import KINDS

pytestmark = pytest.mark.virtual_time
UNREAD = ["admissionchecks", "clusterqueues", "localqueues", "multikueueconfigs"]


class HeardWorld(World):
    """A hub that renews a Lease in each member."""

    def __init__(self, whole: Fleet, directory: Path) -> None:
        super().__init__(whole, directory)
        api = whole.hub.cluster.api(HUB_ACCOUNT)
        self.hub = Hub(api, {}, KINDS, clock=LoopClock(), rng=Random(4), dead_man=True)
        self.members = Roster(self.hub, directory, self._reach)


async def run(it: World, seconds: float) -> None:
    """Run a hub for so long."""
    running = [asyncio.create_task(it.hub.run()), asyncio.create_task(it.members.run())]
    try:
        await asyncio.sleep(seconds)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def begin(whole: Fleet, first: World, runtime: str) -> None:
    """Have a hub place a job in the one MultiKueueCluster, and end."""
    await whole.hub.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    await whole.hub.cluster.create(secret(kubeconfig("a")))
    await whole.hub.cluster.create(plain_job(runtime=runtime))
    await run(first, 30)
    assert await whole.members["a"].running() == 2


def refuse(it: World, plural: str) -> None:
    """Have the hub's API server refuse that these be listed."""
    honest = it.hub.fleet.api.request

    async def request(method: str, path: str, **how: Any) -> bytes:
        if path.endswith(f"/{plural}"):
            raise Forbidden(403, "Forbidden", f"tutti-hub cannot list {plural}")
        return await honest(method, path, **how)

    it.hub.fleet.api.request = request  # type: ignore[method-assign]


async def reasons(whole: Fleet) -> set[str]:
    listed = await whole.hub.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
    return {each["reason"] for each in orjson.loads(listed)["items"] if each["involvedObject"]["name"] == "train"}


@pytest.mark.parametrize("plural", UNREAD)
async def test_what_runs_in_a_cluster_ends_in_the_hub_too(tmp_path: Path, plural: str) -> None:
    async with fleet("a", starts=False, hub_policy=POLICY) as whole:
        await begin(whole, World(whole, tmp_path), "60s")
        again = World(whole, tmp_path)
        refuse(again, plural)
        await whole.hub.cluster.create(plain_job("late"))
        await run(again, 120)
        stored = await whole.hub.get("Job", "train") or {}
        shown = {each["type"] for each in stored["status"]["conditions"] if each["status"] == "True"}
        assert "Complete" in shown, dispatch_of(stored)
        assert "MemberSilent" not in await reasons(whole), "it is a member"
        assert await whole.members["a"].get("Job", "late") is None, "nothing new is offered"


async def test_no_member_stops_what_it_has(tmp_path: Path) -> None:
    async with fleet("a", starts=False, hub_policy=POLICY, silent_hub_seconds=60) as whole:
        await begin(whole, HeardWorld(whole, tmp_path), "6000s")
        again = HeardWorld(whole, tmp_path)
        refuse(again, "admissionchecks")
        await run(again, 300)
        assert await whole.members["a"].running() == 2


async def test_nobody_is_told_that_a_member_is_none_while_it_is_not_known_which_there_are(tmp_path: Path) -> None:
    """Who believes it declares the member lost, whose gang then runs twice."""
    async with fleet("a", starts=False, hub_policy=POLICY) as whole:
        await begin(whole, World(whole, tmp_path), "6000s")
        again = World(whole, tmp_path)
        refuse(again, "multikueueclusters")
        await run(again, 300)
        assert "MemberSilent" not in await reasons(whole)
        assert "cannot read multikueueclusters" in again.hub.problems[0]
