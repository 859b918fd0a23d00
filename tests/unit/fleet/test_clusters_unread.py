"""A hub that cannot read which clusters it has does not take them for none."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet.clusters import plain_job
from tests.unit.fleet.test_roster import World, kubeconfig, running_in, world
from webhook.core.notation import names
from webhook.errors import Unavailable

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("fails", [False, True])
async def test_a_hub_that_was_restored_and_cannot_read_its_clusters_runs_nothing_twice(
    tmp_path: Path, fails: bool
) -> None:
    """It waits for every MultiKueueCluster, for each may have gangs of which its record says nothing any more (P4)."""
    (tmp_path / "b").write_text(kubeconfig("b"))
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        whole = it.whole
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        await whole.hub.cluster.create(plain_job(runtime="6000s"))
        await whole.until(lambda: running_in(whole, "a"), 60)
        it.cut("a")
        it.cut("b")
        lost = {"metadata": {"annotations": {names.DISPATCH: None}, "finalizers": []}}
        await whole.hub.patch("Job", "train", lost)
        again = World(whole, tmp_path)
        request = again.hub.fleet.api.request

        async def unread(method: str, path: str, **how: Any) -> bytes:
            if "kueue.x-k8s.io" in path:
                raise Unavailable(500, "InternalError", "conversion webhook for kueue.x-k8s.io failed")
            return await request(method, path, **how)

        if fails:
            again.hub.fleet.api.request = unread  # type: ignore[method-assign]
        running = [asyncio.create_task(again.hub.run()), asyncio.create_task(again.members.run())]
        try:
            await asyncio.sleep(120)
            assert [await side.running() for side in whole.members.values()] == [2, 0]
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
