"""etcd set back to a backup, as clients see it: older revisions, and watches that are told nothing, or 410."""

import asyncio
from random import Random

import orjson
import pytest

from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def names(cluster: SimulatedCluster) -> list[str]:
    items = orjson.loads(await cluster.api().request("GET", MAPS))["items"]
    return [item["metadata"]["name"] for item in items]


async def lines_for(cluster: SimulatedCluster, revision: int, seconds: float) -> list[bytes]:
    found: list[bytes] = []

    async def read() -> None:
        query = {"resourceVersion": str(revision), "allowWatchBookmarks": "true", "timeoutSeconds": "1000"}
        async for line in cluster.api().watch(MAPS, query=query, idle_seconds=500):
            found.append(line)

    task = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    task.cancel()
    return found


@pytest.mark.parametrize("bumped", [False, True])
async def test_what_is_stored_is_what_was(bumped: bool) -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        await cluster.create(config_map("kept"))
        await cluster.create(config_map("comes-back"))
        backup = cluster.server.store.backup()
        await cluster.create(config_map("never-was"))
        await cluster.api().request("DELETE", f"{MAPS}/comes-back")
        before = cluster.server.store.revision
        cluster.restore(backup, bumped=bumped)
        assert await names(cluster) == ["comes-back", "kept"]
        assert (cluster.server.store.revision > before) is bumped


async def test_a_watch_from_a_revision_that_is_still_to_come_again_hears_nothing_until_then() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        backup = cluster.server.store.backup()
        for number in range(5):
            await cluster.create(config_map(f"lost-{number}"))
        revision = cluster.server.store.revision
        cluster.restore(backup)
        reading = asyncio.create_task(lines_for(cluster, revision, 200))
        await asyncio.sleep(100)
        for number in range(7):
            await cluster.create(config_map(f"new-{number}"))
        found = [orjson.loads(line) for line in await reading]
        told = [event["object"]["metadata"]["name"] for event in found if event["type"] == "ADDED"]
        assert told == ["new-5", "new-6"]


async def test_where_revisions_were_raised_a_watch_from_before_is_told_so() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        revision = cluster.server.store.revision
        cluster.restore(cluster.server.store.backup(), bumped=True)
        (line,) = await lines_for(cluster, revision, 1)
        assert orjson.loads(line)["object"]["code"] == 410
