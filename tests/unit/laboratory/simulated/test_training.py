"""Training jobs: pods from replica specs, suspended and resumed, judged by their master."""

import asyncio

import pytest

from tests.unit.laboratory.simulated.clients import (
    PODS,
    PYTORCHJOBS,
    Client,
    condition,
    eventually,
    pytorchjob,
    template,
)
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
async def nodes(cluster: SimulatedCluster) -> None:
    await cluster.add_node("n1", gpu="16")


async def running(client: Client, count: int) -> None:
    async def holds() -> bool:
        pods = await client.items(PODS)
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * count

    await eventually(holds)


async def holds_condition(client: Client, kind: str, value: str = "True") -> None:
    async def holds() -> bool:
        return condition(await client.get(f"{PYTORCHJOBS}/t"), kind) == value

    await eventually(holds)


async def test_each_replica_is_a_pod_with_a_fixed_name(client: Client) -> None:
    await client.post(PYTORCHJOBS, pytorchjob("t"))
    await running(client, 3)
    assert await client.names(PODS) == ["t-master-0", "t-worker-0", "t-worker-1"]
    await holds_condition(client, "Running")
    status = (await client.get(f"{PYTORCHJOBS}/t"))["status"]
    assert status["replicaStatuses"]["Worker"]["active"] == 2
    assert [c["type"] for c in status["conditions"]] == ["Created", "Running"]
    labels = (await client.get(f"{PODS}/t-master-0"))["metadata"]["labels"]
    assert labels["training.kubeflow.org/replica-type"] == "master"
    assert labels["training.kubeflow.org/job-role"] == "master"


async def test_a_suspended_job_has_no_pods_and_a_resumed_one_has_all(client: Client) -> None:
    await client.post(PYTORCHJOBS, pytorchjob("t", suspend=True))
    await holds_condition(client, "Suspended")
    await asyncio.sleep(2)
    assert await client.names(PODS) == []
    await client.merge(f"{PYTORCHJOBS}/t", {"spec": {"runPolicy": {"suspend": False}}})
    await running(client, 3)
    await holds_condition(client, "Suspended", "False")
    await client.merge(f"{PYTORCHJOBS}/t", {"spec": {"runPolicy": {"suspend": True}}})
    await running(client, 0)
    await holds_condition(client, "Running", "False")


async def test_workers_outlive_a_succeeded_master_unless_told_to_be_cleaned(client: Client) -> None:
    await client.post(PYTORCHJOBS, pytorchjob("t", master_runtime="3s"))
    await holds_condition(client, "Succeeded")
    await asyncio.sleep(5)
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in await client.items(PODS)}
    assert phases == {"t-master-0": "Succeeded", "t-worker-0": "Running", "t-worker-1": "Running"}
    assert condition(await client.get(f"{PYTORCHJOBS}/t"), "Running") == "False"
    await client.merge(f"{PYTORCHJOBS}/t", {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}})
    await running(client, 0)


async def test_fewer_replicas_take_the_highest_indexes_away(client: Client) -> None:
    await client.post(PYTORCHJOBS, pytorchjob("t", workers=3))
    await running(client, 4)
    await client.merge(f"{PYTORCHJOBS}/t/scale", {"spec": {"replicas": 1}})
    await running(client, 2)
    assert await client.names(PODS) == ["t-master-0", "t-worker-0"]


async def test_a_tfjob_without_chief_succeeds_with_its_workers(client: Client) -> None:
    shown = {"tutti.dev/simulated-runtime": "2s"}
    worker = {"replicas": 2, "restartPolicy": "Never", "template": template(**shown)}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"tfReplicaSpecs": {"PS": {"replicas": 1, "template": template()}, "Worker": worker}},
    }
    path = "/apis/kubeflow.org/v1/namespaces/team-a/tfjobs"
    await client.post(path, body)

    async def succeeded() -> bool:
        return condition(await client.get(f"{path}/t"), "Succeeded") == "True"

    await eventually(succeeded)


async def test_a_worker_that_fails_is_replaced_where_its_policy_says_so(client: Client) -> None:
    body = pytorchjob("t", workers=1)
    annotations = {"tutti.dev/simulated-runtime": "2s", "tutti.dev/simulated-fate": "fails"}
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = template(**annotations)
    await client.post(PYTORCHJOBS, body)
    await running(client, 2)
    first = (await client.get(f"{PODS}/t-worker-0"))["metadata"]["uid"]

    async def replaced() -> bool:
        names = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await client.items(PODS)}
        return names.get("t-worker-0", first) != first

    await eventually(replaced)
    body["metadata"]["name"] = "u"
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    await client.post(PYTORCHJOBS, body)

    async def failed() -> bool:
        return condition(await client.get(f"{PYTORCHJOBS}/u"), "Failed") == "True"

    await eventually(failed)
