"""What goes when something else goes: dependents of owners, contents of namespaces."""

import asyncio
from typing import Any

import pytest

from tests.unit.laboratory.simulated.clients import CONFIGMAPS, JOBS, PODS, Client, config_map, job
from webhook import errors
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


def owned(name: str, *owners: Any) -> Any:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]
    return {**config_map(name), "metadata": {"name": name, "ownerReferences": references}}


async def test_dependents_go_with_their_last_owner(client: Client) -> None:
    first, second = await client.post(CONFIGMAPS, config_map("x")), await client.post(CONFIGMAPS, config_map("y"))
    await client.post(CONFIGMAPS, owned("both", first, second))
    await client.post(CONFIGMAPS, owned("one", first))
    await client.delete(f"{CONFIGMAPS}/x")
    await asyncio.sleep(1)
    assert await client.names(CONFIGMAPS) == ["both", "y"]
    (left,) = (await client.get(f"{CONFIGMAPS}/both"))["metadata"]["ownerReferences"]
    assert left["name"] == "y"
    await client.delete(f"{CONFIGMAPS}/y")
    await asyncio.sleep(1)
    assert await client.names(CONFIGMAPS) == []


async def test_who_names_an_owner_twice_goes_with_it(client: Client) -> None:
    owner = await client.post(CONFIGMAPS, config_map("x"))
    await client.post(CONFIGMAPS, owned("child", owner, owner))
    await client.delete(f"{CONFIGMAPS}/x")
    await asyncio.sleep(1)
    assert await client.names(CONFIGMAPS) == []


async def test_what_lost_its_owner_before_a_backup_goes_after_it_was_restored(
    cluster: SimulatedCluster, client: Client
) -> None:
    owner = await client.post(CONFIGMAPS, config_map("x"))
    child = owned("child", owner)
    child["metadata"]["finalizers"] = ["example.com/lingers"]
    await client.post(CONFIGMAPS, child)
    await client.delete(f"{CONFIGMAPS}/x")
    backup = cluster.server.store.backup()
    await asyncio.sleep(1)
    assert "deletionTimestamp" in (await client.get(f"{CONFIGMAPS}/child"))["metadata"]
    cluster.restore(backup)
    assert "deletionTimestamp" not in (await client.get(f"{CONFIGMAPS}/child"))["metadata"]
    await asyncio.sleep(1)
    assert "deletionTimestamp" in (await client.get(f"{CONFIGMAPS}/child"))["metadata"]


async def test_an_owner_of_the_same_name_but_another_uid_keeps_nothing(client: Client) -> None:
    old = await client.post(CONFIGMAPS, config_map("x"))
    await client.delete(f"{CONFIGMAPS}/x")
    await client.post(CONFIGMAPS, config_map("x"))
    await client.post(CONFIGMAPS, owned("child", old))
    await asyncio.sleep(1)
    assert await client.names(CONFIGMAPS) == ["x"]


async def test_orphaning_leaves_the_dependents_without_owner(client: Client) -> None:
    owner = await client.post(CONFIGMAPS, config_map("x"))
    await client.post(CONFIGMAPS, owned("child", owner))
    await client.delete(f"{CONFIGMAPS}/x", {"propagationPolicy": "Orphan"})
    await asyncio.sleep(1)
    assert await client.names(CONFIGMAPS) == ["child"]
    assert "ownerReferences" not in (await client.get(f"{CONFIGMAPS}/child"))["metadata"]


async def test_a_namespace_goes_with_everything_in_it(cluster: SimulatedCluster, client: Client) -> None:
    await cluster.add_node("n1", gpu="8")
    await client.post(JOBS, job("a"))
    await client.post(CONFIGMAPS, config_map("x"))
    await asyncio.sleep(3)
    assert len(await client.names(PODS)) == 2
    going = await client.delete("/api/v1/namespaces/team-a")
    assert going["status"]["phase"] == "Terminating"
    with pytest.raises(errors.Forbidden, match="because it is being terminated"):
        await client.post(CONFIGMAPS, config_map("y"))
    await asyncio.sleep(20)
    with pytest.raises(errors.NotFound):
        await client.get("/api/v1/namespaces/team-a")
    assert await client.names("/api/v1/pods") == []


async def test_a_namespace_waits_for_a_finalizer_inside_it(client: Client) -> None:
    held = {**config_map("x"), "metadata": {"name": "x", "finalizers": ["example.com/hold"]}}
    await client.post(CONFIGMAPS, held)
    await client.delete("/api/v1/namespaces/team-a")
    await asyncio.sleep(30)
    assert (await client.get("/api/v1/namespaces/team-a"))["status"]["phase"] == "Terminating"
    await client.merge(f"{CONFIGMAPS}/x", {"metadata": {"finalizers": None}})
    await asyncio.sleep(5)
    with pytest.raises(errors.NotFound):
        await client.get("/api/v1/namespaces/team-a")
