"""Jobs on simulated nodes: they run, suspend, resume, finish and fail as Kubernetes' do."""

import asyncio
from random import Random

import pytest

from tests.unit.laboratory.simulated.clients import JOBS, PODS, Client, condition, eventually, job, quota
from webhook import errors
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.indexes import parse_indexes, render_indexes

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
async def nodes(cluster: SimulatedCluster) -> None:
    await cluster.add_node("n1", gpu="4")
    await cluster.add_node("n2", gpu="4")


async def status_reaches(client: Client, name: str, **expected: object) -> None:
    async def holds() -> bool:
        status = (await client.get(f"{JOBS}/{name}"))["status"]
        return all(status.get(key) == value for key, value in expected.items())

    await eventually(holds)


async def finished(client: Client, name: str, kind: str) -> None:
    async def holds() -> bool:
        return condition(await client.get(f"{JOBS}/{name}"), kind) == "True"

    await eventually(holds, 1200)


async def test_a_job_creates_its_pods_and_they_run_on_nodes_with_room(client: Client) -> None:
    await client.post(JOBS, job("a", pods=6))
    await status_reaches(client, "a", active=6, ready=6)
    pods = await client.items(PODS)
    nodes = [pod["spec"]["nodeName"] for pod in pods]
    assert sorted(nodes) == ["n1"] * 4 + ["n2"] * 2
    assert {pod["metadata"]["ownerReferences"][0]["name"] for pod in pods} == {"a"}
    assert all(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a" for pod in pods)


async def test_pods_without_room_wait_and_run_when_others_end(client: Client) -> None:
    await client.post(JOBS, job("first", pods=8, runtime="30s"))
    await status_reaches(client, "first", ready=8)
    await client.post(JOBS, job("second", pods=2))
    await asyncio.sleep(5)
    waiting = await client.items(PODS, labelSelector="job-name=second")
    assert {condition(pod, "PodScheduled") for pod in waiting} == {"False"}
    await status_reaches(client, "second", ready=2)


async def test_a_job_completes_when_its_pods_have_succeeded(client: Client) -> None:
    await client.post(JOBS, job("a", runtime="5s"))
    await finished(client, "a", "Complete")
    status = (await client.get(f"{JOBS}/a"))["status"]
    assert status["succeeded"] == 2
    assert status["completionTime"]
    assert "active" not in status
    pods = await client.items(PODS)
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert not any(pod["metadata"].get("finalizers") for pod in pods)


async def test_completions_beyond_parallelism_run_one_after_the_other(client: Client) -> None:
    await client.post(JOBS, job("a", runtime="3s", parallelism=2, completions=5))
    await finished(client, "a", "Complete")
    assert len(await client.names(PODS)) == 5


async def test_a_job_created_suspended_has_no_pods_and_says_so(client: Client) -> None:
    await client.post(JOBS, job("a", suspend=True))
    await asyncio.sleep(5)
    made = await client.get(f"{JOBS}/a")
    assert condition(made, "Suspended") == "True"
    assert "startTime" not in made["status"]
    assert await client.names(PODS) == []


async def test_suspending_deletes_active_pods_and_resuming_starts_anew(client: Client) -> None:
    await client.post(JOBS, job("a"))
    await status_reaches(client, "a", ready=2)
    started = (await client.get(f"{JOBS}/a"))["status"]["startTime"]
    await client.merge(f"{JOBS}/a", {"spec": {"suspend": True}})
    await status_reaches(client, "a", active=None, startTime=None)
    await asyncio.sleep(5)
    stopped = await client.get(f"{JOBS}/a")
    assert condition(stopped, "Suspended") == "True"
    assert "failed" not in stopped["status"]
    assert await client.names(PODS) == []
    await client.merge(f"{JOBS}/a", {"spec": {"suspend": False}})
    await status_reaches(client, "a", ready=2)
    resumed = await client.get(f"{JOBS}/a")
    assert condition(resumed, "Suspended") == "False"
    assert resumed["status"]["startTime"] > started


async def test_before_1_36_a_stopped_job_keeps_its_start_time_and_its_template_stays_frozen_until_that_is_cleared() -> (
    None
):
    async with SimulatedCluster(Random(1), namespaces=["team-a"], release=34) as older:
        await older.add_node("n1", labels={"pool": "b"}, gpu="4")
        client = Client(older.api())
        await client.post(JOBS, job("a"))
        await status_reaches(client, "a", ready=2)
        cleared = {"status": {"startTime": None}}
        with pytest.raises(errors.Invalid, match="cannot be removed for unsuspended job"):
            await client.merge(f"{JOBS}/a/status", cleared)
        await client.merge(f"{JOBS}/a", {"spec": {"suspend": True}})
        await status_reaches(client, "a", active=None)
        assert condition(await client.get(f"{JOBS}/a"), "Suspended") == "True"
        elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "b"}}}}}
        with pytest.raises(errors.Invalid, match="field is immutable"):
            await client.merge(f"{JOBS}/a", elsewhere)
        await client.merge(f"{JOBS}/a/status", cleared)
        await client.merge(f"{JOBS}/a", elsewhere)
        await client.merge(f"{JOBS}/a", {"spec": {"suspend": False}})
        await status_reaches(client, "a", ready=2)


async def test_terminating_pods_are_seen_until_their_node_lets_them_go(client: Client) -> None:
    await client.post(JOBS, job("a"))
    await status_reaches(client, "a", ready=2)
    await client.merge(f"{JOBS}/a", {"spec": {"suspend": True}})
    await asyncio.sleep(0.1)
    pods = await client.items(PODS)
    assert pods
    assert all("deletionTimestamp" in pod["metadata"] for pod in pods)
    assert {pod["metadata"]["deletionGracePeriodSeconds"] for pod in pods} == {30}


async def test_a_quota_stops_a_job_half_way_and_lets_it_go_on_when_it_goes(client: Client) -> None:
    quotas = "/api/v1/namespaces/team-a/resourcequotas"
    await client.post(quotas, quota("two", pods="2"))
    await client.post(JOBS, job("a", pods=4))
    await status_reaches(client, "a", active=2)
    await asyncio.sleep(10)
    assert len(await client.names(PODS)) == 2
    await client.delete(f"{quotas}/two")
    await status_reaches(client, "a", active=4)


async def test_failed_pods_are_replaced_with_a_back_off_until_the_limit(client: Client) -> None:
    await client.post(JOBS, job("a", pods=1, runtime="1s", fate="fails", backoffLimit=2))
    await finished(client, "a", "Failed")
    failed = await client.get(f"{JOBS}/a")
    assert failed["status"]["failed"] == 3
    reasons = {c["reason"] for c in failed["status"]["conditions"] if c["type"] in ("Failed", "FailureTarget")}
    assert reasons == {"BackoffLimitExceeded"}


async def test_a_deadline_fails_the_job_and_stops_its_pods(client: Client) -> None:
    await client.post(JOBS, job("a", activeDeadlineSeconds=10))
    await finished(client, "a", "Failed")
    await asyncio.sleep(5)
    assert {pod["status"]["phase"] for pod in await client.items(PODS)} <= {"Failed"}


async def test_an_indexed_job_has_one_pod_for_each_index(client: Client) -> None:
    await client.post(JOBS, job("a", pods=3, runtime="5s", completionMode="Indexed"))
    await status_reaches(client, "a", active=3)
    key = "batch.kubernetes.io/job-completion-index"
    indexes = {pod["metadata"]["labels"][key] for pod in await client.items(PODS)}
    assert indexes == {"0", "1", "2"}
    await finished(client, "a", "Complete")
    assert (await client.get(f"{JOBS}/a"))["status"]["completedIndexes"] == "0-2"


async def test_a_pod_that_is_deleted_is_counted_as_failed_and_replaced(client: Client) -> None:
    await client.post(JOBS, job("a"))
    await status_reaches(client, "a", ready=2)
    (gone, _) = await client.names(PODS)
    await client.delete(f"{PODS}/{gone}")
    await status_reaches(client, "a", failed=1)
    await asyncio.sleep(20)
    await status_reaches(client, "a", ready=2)
    assert gone not in await client.names(PODS)


async def test_a_pod_that_is_given_to_another_job_goes_back_to_its_own_which_then_has_one_too_many(
    client: Client,
) -> None:
    """As upstream's ClaimPods: a pod that a Job controls and its selector does not match is none of its."""
    await client.post(JOBS, job("a", pods=1))
    await client.post(JOBS, job("b", pods=1))
    await status_reaches(client, "a", ready=1)
    await status_reaches(client, "b", ready=1)
    (given,) = await client.items(PODS, labelSelector="job-name=b")
    owner = (await client.items(PODS, labelSelector="job-name=a"))[0]["metadata"]["ownerReferences"]
    await client.merge(f"{PODS}/{given['metadata']['name']}", {"metadata": {"ownerReferences": owner}})
    await asyncio.sleep(20)
    await status_reaches(client, "a", ready=1, failed=None)
    owners = [pod["metadata"]["ownerReferences"][0]["name"] for pod in await client.items(PODS)]
    assert sorted(owners) == ["a", "b"]
    await status_reaches(client, "b", ready=1)


async def test_deleting_a_job_without_a_policy_orphans_its_pods_and_background_collects_them(client: Client) -> None:
    await client.post(JOBS, job("kept", pods=1))
    await client.post(JOBS, job("swept", pods=1))
    await status_reaches(client, "kept", ready=1)
    await status_reaches(client, "swept", ready=1)
    await client.delete(f"{JOBS}/kept")
    await client.delete(f"{JOBS}/swept", {"propagationPolicy": "Background"})
    await asyncio.sleep(10)
    assert await client.names(JOBS) == []
    (left,) = await client.items(PODS)
    assert left["metadata"]["labels"]["job-name"] == "kept"
    assert "ownerReferences" not in left["metadata"]
    assert "finalizers" not in left["metadata"]


async def test_a_foreground_deletion_keeps_the_job_until_its_pods_are_gone(client: Client) -> None:
    await client.post(JOBS, job("a"))
    await status_reaches(client, "a", ready=2)
    await client.delete(f"{JOBS}/a", {"propagationPolicy": "Foreground"})
    assert (await client.get(f"{JOBS}/a"))["metadata"]["deletionTimestamp"]
    await asyncio.sleep(10)
    assert await client.names(PODS) == []
    with pytest.raises(errors.NotFound):
        await client.get(f"{JOBS}/a")


async def test_a_job_managed_by_somebody_else_is_left_alone(client: Client) -> None:
    await client.post(JOBS, job("a", managedBy="example.com/other"))
    await asyncio.sleep(5)
    assert await client.names(PODS) == []
    assert (await client.get(f"{JOBS}/a"))["status"] == {}


async def test_a_gated_pod_is_not_scheduled_until_its_gate_is_lifted(client: Client) -> None:
    gated = job("a", pods=1)
    gated["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
    await client.post(JOBS, gated)
    await asyncio.sleep(5)
    (pod,) = await client.items(PODS)
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    await client.merge(f"{PODS}/{pod['metadata']['name']}", {"spec": {"schedulingGates": None}})
    await status_reaches(client, "a", ready=1)


async def test_a_finished_job_with_a_time_to_live_goes_with_its_pods(client: Client) -> None:
    await client.post(JOBS, job("a", runtime="1s", ttlSecondsAfterFinished=30))
    await finished(client, "a", "Complete")
    await asyncio.sleep(40)
    assert await client.names(JOBS) == []
    assert await client.names(PODS) == []


async def test_an_index_fails_by_itself_and_the_job_with_it_once_the_others_have_ended(client: Client) -> None:
    failing = job("a", pods=3, runtime="2s", fate="odd-indexes-fail", completionMode="Indexed", backoffLimitPerIndex=1)
    await client.post(JOBS, failing)
    await finished(client, "a", "Failed")
    ended = await client.get(f"{JOBS}/a")
    status = ended["status"]
    assert (status["completedIndexes"], status["failedIndexes"], status["succeeded"], status["failed"]) == (
        "0,2",
        "1",
        2,
        2,
    )
    assert {each["reason"] for each in status["conditions"] if each["type"] == "Failed"} == {"FailedIndexes"}


async def test_pods_of_a_job_run_for_as_long_as_their_indexes_say(client: Client) -> None:
    await client.post(JOBS, job("a", pods=3, runtime="2s 60s", completionMode="Indexed"))
    await asyncio.sleep(20)
    await status_reaches(client, "a", completedIndexes="0,2", active=1)
    await finished(client, "a", "Complete")


@pytest.mark.parametrize("named", [False, True], ids=["of nobody", "that names the Job as an owner"])
async def test_a_pod_without_controller_that_the_selector_matches_is_adopted_and_counted(
    client: Client, named: bool
) -> None:
    await client.post(JOBS, job("a", pods=2, runtime="60s"))
    await status_reaches(client, "a", ready=2)
    one = (await client.items(PODS))[0]
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    annotations = {"tutti.dev/simulated-runtime": "2s"}
    metadata = {"name": "lent", "annotations": annotations}
    if named:
        metadata["ownerReferences"] = [{**one["metadata"]["ownerReferences"][0], "controller": False}]
    await client.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await asyncio.sleep(10)
    await client.merge(f"{PODS}/lent", {"metadata": {"labels": one["metadata"]["labels"]}})
    # It has succeeded already: one less runs on.
    await status_reaches(client, "a", succeeded=1, active=1)
    (owner,) = (await client.get(f"{PODS}/lent"))["metadata"]["ownerReferences"]
    assert owner == one["metadata"]["ownerReferences"][0]


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "1,3-5,9"])
def test_index_text_reads_back_as_written(text: str) -> None:
    assert render_indexes(parse_indexes(text)) == text
