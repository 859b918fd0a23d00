"""The label by which a whole namespace waits comes and goes with policy; a person's own stays."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.unit.laboratory.simulated.clients import Client, eventually
from webhook.assembly.reconciler import reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.notation import names
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"
NAMESPACE = "/api/v1/namespaces/team-a"
JOBS = f"/apis/batch/v1{NAMESPACE.removeprefix('/api/v1')}/jobs"
TREE = {
    "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
    "kind": "ElasticQuotaTree",
    "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
    "spec": {
        "root": {
            "name": "root",
            "max": {"cpu": 1},
            "min": {"cpu": 1},
            "children": [{"name": "a", "max": {"cpu": 1}, "min": {"cpu": 1}, "namespaces": ["team-a"]}],
        }
    },
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system", "team-a")) as cluster:
        parts = reconciler(cluster.api(), Config(), identity="one", clock=LoopClock(), rng=Random(1))
        running = asyncio.create_task(parts.run())
        yield Client(cluster.api())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def label(client: Client) -> str | None:
    found: str | None = (await client.get(NAMESPACE))["metadata"]["labels"].get(names.GATED_NAMESPACE)
    return found


async def set_label(client: Client, value: str | None) -> None:
    await client.merge(NAMESPACE, {"metadata": {"labels": {names.GATED_NAMESPACE: value}}})


async def becomes(client: Client, value: str | None) -> None:
    async def holds() -> bool:
        return await label(client) == value

    await eventually(holds)


def oversized_job() -> dict[str, Any]:
    """A Job as the webhook would store it, that asks more than the tree can ever give."""
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "2"}}}
    template = {
        "metadata": {"labels": {names.GANG_LABEL: "pending"}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


async def test_a_namespace_is_gated_while_a_tree_names_it(client: Client) -> None:
    await client.post(TREES, TREE)
    await becomes(client, "policy")
    await client.delete(f"{TREES}/elasticquotatree")
    await becomes(client, None)


async def test_a_label_that_a_person_set_stays_when_the_tree_goes(client: Client) -> None:
    await set_label(client, "true")
    await client.post(TREES, TREE)
    await asyncio.sleep(5)
    await client.delete(f"{TREES}/elasticquotatree")
    await asyncio.sleep(30)
    assert await label(client) == "true"


async def test_policy_overrules_a_label_that_says_no(client: Client) -> None:
    await set_label(client, "false")
    await client.post(TREES, TREE)
    await becomes(client, "policy")


async def test_a_label_that_was_taken_away_by_hand_comes_back(client: Client) -> None:
    await client.post(TREES, TREE)
    await becomes(client, "policy")
    await set_label(client, None)
    await becomes(client, "policy")


async def test_a_namespace_stays_gated_for_as_long_as_a_job_waits_by_it_alone(client: Client) -> None:
    """Otherwise nobody would ever start it, or say why."""
    await client.post(TREES, TREE)
    await becomes(client, "policy")
    await client.post(JOBS, oversized_job())
    await asyncio.sleep(2)
    await client.delete(f"{TREES}/elasticquotatree")
    await asyncio.sleep(30)
    assert await label(client) == "policy"
    await client.delete(f"{JOBS}/train")
    await becomes(client, None)


async def test_a_job_with_a_queue_of_its_own_does_not_keep_the_label(client: Client) -> None:
    await client.post(TREES, TREE)
    await becomes(client, "policy")
    job = oversized_job()
    job["metadata"]["labels"] = {"tutti.dev/queue-name": "other"}
    await client.post(JOBS, job)
    await client.delete(f"{TREES}/elasticquotatree")
    await becomes(client, None)
