"""JobSets: child Jobs that are created, suspended, resumed and judged together."""

import asyncio

import pytest

from tests.unit.laboratory.simulated.clients import JOBS, JOBSETS, PODS, Client, condition, eventually, jobset, template
from webhook import errors
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
async def nodes(cluster: SimulatedCluster) -> None:
    await cluster.add_node("n1", gpu="16")


async def pods_become(client: Client, count: int) -> None:
    async def holds() -> bool:
        pods = await client.items(PODS)
        return len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in pods)

    await eventually(holds)


async def holds_condition(client: Client, name: str, kind: str, value: str = "True") -> None:
    async def holds() -> bool:
        return condition(await client.get(f"{JOBSETS}/{name}"), kind) == value

    await eventually(holds, 300)


async def test_a_jobset_runs_all_pods_of_all_its_jobs(client: Client) -> None:
    await client.post(JOBSETS, jobset("train"))
    await pods_become(client, 4)
    assert await client.names(JOBS) == ["train-workers-0", "train-workers-1"]
    status = (await client.get(f"{JOBSETS}/train"))["status"]
    expected = {"name": "workers", "ready": 2, "active": 2, "succeeded": 0, "failed": 0, "suspended": 0}
    assert status["replicatedJobsStatus"] == [expected]
    labels = (await client.items(PODS))[0]["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/jobset-name"] == "train"
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"


async def test_a_suspended_jobset_has_suspended_children_without_pods(client: Client) -> None:
    await client.post(JOBSETS, jobset("train", suspend=True))
    await holds_condition(client, "train", "Suspended")
    await asyncio.sleep(2)
    assert [item["spec"]["suspend"] for item in await client.items(JOBS)] == [True, True]
    assert await client.names(PODS) == []
    assert (await client.get(f"{JOBSETS}/train"))["status"]["replicatedJobsStatus"][0]["suspended"] == 2


async def test_resuming_merges_the_template_and_keeps_what_was_there(client: Client) -> None:
    await client.post(JOBSETS, jobset("train", suspend=True))
    await holds_condition(client, "train", "Suspended")
    path = "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector"
    for value in ({"pool": "a", "old": "1"}, {"pool": "b"}):
        operation = {"op": "add", "path": path, "value": value}
        await client.json_patch(
            f"{JOBSETS}/train", [operation, {"op": "replace", "path": "/spec/suspend", "value": False}]
        )
        await holds_condition(client, "train", "Suspended", "False")
        await client.merge(f"{JOBSETS}/train", {"spec": {"suspend": True}})
        await holds_condition(client, "train", "Suspended")
        await asyncio.sleep(5)
    selectors = [item["spec"]["template"]["spec"]["nodeSelector"] for item in await client.items(JOBS)]
    assert selectors == [{"pool": "b", "old": "1"}] * 2


async def test_suspending_a_running_jobset_removes_its_pods_and_resuming_brings_them_back(client: Client) -> None:
    await client.post(JOBSETS, jobset("train"))
    await pods_become(client, 4)
    await client.merge(f"{JOBSETS}/train", {"spec": {"suspend": True}})
    await pods_become(client, 0)
    await client.merge(f"{JOBSETS}/train", {"spec": {"suspend": False}})
    await pods_become(client, 4)


async def test_a_jobset_completes_when_all_its_jobs_have(client: Client) -> None:
    body = jobset("train")
    annotations = {"tutti.dev/simulated-runtime": "3s"}
    body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"] = annotations
    await client.post(JOBSETS, body)
    await holds_condition(client, "train", "Completed")
    status = (await client.get(f"{JOBSETS}/train"))["status"]
    assert status["terminalState"] == "Completed"
    assert status["replicatedJobsStatus"][0]["succeeded"] == 2


async def test_a_failed_job_restarts_the_set_until_the_limit(client: Client) -> None:
    body = jobset("train", failurePolicy={"maxRestarts": 1})
    annotations = {"tutti.dev/simulated-runtime": "1s", "tutti.dev/simulated-fate": "fails"}
    job_spec = body["spec"]["replicatedJobs"][0]["template"]["spec"]
    job_spec["backoffLimit"] = 0
    job_spec["template"]["metadata"]["annotations"] = annotations
    await client.post(JOBSETS, body)
    await holds_condition(client, "train", "Failed")
    status = (await client.get(f"{JOBSETS}/train"))["status"]
    assert (status["restarts"], status["terminalState"]) == (1, "Failed")


async def test_start_up_in_order_waits_for_the_first_jobs_to_be_ready(client: Client) -> None:
    body = jobset("train", startupPolicy={"startupPolicyOrder": "InOrder"})
    driver = {
        "name": "driver",
        "replicas": 1,
        "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}},
    }
    body["spec"]["replicatedJobs"].insert(0, driver)
    await client.post(JOBSETS, body)

    async def driver_exists() -> bool:
        return await client.names(JOBS) != []

    await eventually(driver_exists)
    assert await client.names(JOBS) == ["train-driver-0"]
    await pods_become(client, 5)
    await holds_condition(client, "train", "StartupPolicyCompleted")


async def test_the_jobs_of_a_running_jobset_cannot_be_changed(client: Client) -> None:
    await client.post(JOBSETS, jobset("train"))
    operation = {"op": "replace", "path": "/spec/replicatedJobs/0/replicas", "value": 5}
    with pytest.raises(errors.Invalid, match=r"spec\.replicatedJobs"):
        await client.json_patch(f"{JOBSETS}/train", [operation])


async def test_deleting_a_jobset_takes_its_jobs_and_pods_along(client: Client) -> None:
    await client.post(JOBSETS, jobset("train"))
    await pods_become(client, 4)
    await client.delete(f"{JOBSETS}/train")
    await asyncio.sleep(10)
    assert await client.names(JOBS) == []
    assert await client.names(PODS) == []
