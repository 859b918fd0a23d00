"""What a write to the simulated API server keeps, refuses and counts."""

import asyncio

import pytest

from tests.unit.laboratory.simulated.clients import CONFIGMAPS, JOBS, PODS, Client, config_map, job, pod
from webhook import errors

pytestmark = pytest.mark.virtual_time


async def test_a_new_object_gets_uid_version_and_creation_time(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a", x="1"))
    assert len(made["metadata"]["uid"]) == 36
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert int(made["metadata"]["resourceVersion"]) > 1
    assert (await client.get(f"{CONFIGMAPS}/a")) == made


async def test_each_write_takes_the_next_revision_of_the_whole_cluster(client: Client) -> None:
    first = await client.post(CONFIGMAPS, config_map("a"))
    second = await client.post(CONFIGMAPS, config_map("b"))
    assert int(second["metadata"]["resourceVersion"]) == int(first["metadata"]["resourceVersion"]) + 1


async def test_a_taken_name_is_a_conflict_that_says_so(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    with pytest.raises(errors.Conflict, match='configmaps "a" already exists') as caught:
        await client.post(CONFIGMAPS, config_map("a"))
    assert caught.value.reason == "AlreadyExists"


async def test_generated_names_start_with_their_prefix_and_differ(client: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "log-"}}
    names = {(await client.post(CONFIGMAPS, body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("log-") and len(name) == 9 for name in names)


async def test_put_with_an_old_version_is_refused_and_changes_nothing(client: Client) -> None:
    old = await client.post(CONFIGMAPS, config_map("a", x="1"))
    await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "2"}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.put(f"{CONFIGMAPS}/a", {**old, "data": {"x": "3"}})
    assert (await client.get(f"{CONFIGMAPS}/a"))["data"] == {"x": "2"}


async def test_a_patch_that_names_an_old_version_is_a_conflict(client: Client) -> None:
    old = await client.post(CONFIGMAPS, config_map("a", x="1"))
    await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "2"}})
    version = old["metadata"]["resourceVersion"]
    with pytest.raises(errors.Conflict):
        await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"resourceVersion": version}, "data": {"x": "3"}})


async def test_put_for_another_uid_is_a_conflict_and_a_patch_for_another_uid_is_invalid(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a"))
    made["metadata"]["uid"] = "0" * 36
    with pytest.raises(errors.Conflict, match="Precondition failed: UID in precondition"):
        await client.put(f"{CONFIGMAPS}/a", made)
    with pytest.raises(errors.Invalid, match="field is immutable"):
        await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"uid": "0" * 36}})


async def test_delete_with_another_uid_or_version_is_a_conflict(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a"))
    with pytest.raises(errors.Conflict, match="does not match the UID in record"):
        await client.delete(f"{CONFIGMAPS}/a", {"preconditions": {"uid": "0" * 36}})
    with pytest.raises(errors.Conflict, match="does not match the ResourceVersion in record"):
        await client.delete(f"{CONFIGMAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    await client.delete(f"{CONFIGMAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    with pytest.raises(errors.NotFound, match='configmaps "a" not found'):
        await client.get(f"{CONFIGMAPS}/a")


async def test_a_write_that_changes_nothing_takes_no_revision(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a", x="1"))
    again = await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "1"}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_generation_counts_changes_of_the_spec_only(client: Client) -> None:
    made = await client.post(JOBS, job("a", suspend=True))
    assert made["metadata"]["generation"] == 1
    labelled = await client.merge(f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["generation"] == 1
    grown = await client.merge(f"{JOBS}/a", {"spec": {"parallelism": 1}})
    assert grown["metadata"]["generation"] == 2


async def test_status_changes_only_through_its_subresource(client: Client) -> None:
    made = await client.post(JOBS, {**job("a", suspend=True), "status": {"active": 7}})
    assert "active" not in made["status"]
    ignored = await client.merge(f"{JOBS}/a", {"status": {"failed": 5}})
    assert "failed" not in ignored["status"]
    told = await client.merge(f"{JOBS}/a/status", {"status": {"failed": 5}, "spec": {"parallelism": 9}})
    assert told["status"]["failed"] == 5
    assert told["spec"]["parallelism"] == 2


async def test_an_object_with_a_finalizer_waits_until_it_is_taken_off(client: Client) -> None:
    await client.post(CONFIGMAPS, {**config_map("a"), "metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    waiting = await client.delete(f"{CONFIGMAPS}/a")
    assert waiting["metadata"]["deletionTimestamp"]
    with pytest.raises(errors.Invalid, match="no new finalizers"):
        await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": None}})
    with pytest.raises(errors.NotFound):
        await client.get(f"{CONFIGMAPS}/a")


async def test_dry_run_answers_as_if_and_stores_nothing(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a"), dryRun="All")
    assert made["metadata"]["uid"]
    assert await client.names(CONFIGMAPS) == []


async def test_bad_names_labels_and_sizes_are_invalid(client: Client) -> None:
    with pytest.raises(errors.Invalid, match="RFC 1123"):
        await client.post(CONFIGMAPS, config_map("Upper"))
    labelled = {**config_map("a"), "metadata": {"name": "a", "labels": {"x": "y" * 64}}}
    with pytest.raises(errors.Invalid, match=r"metadata\.labels"):
        await client.post(CONFIGMAPS, labelled)
    with pytest.raises(errors.Invalid, match="may not be more than 1048576 bytes"):
        await client.post(CONFIGMAPS, config_map("a", x="y" * 1_048_577))
    with pytest.raises(errors.Invalid, match="may not be more than 262144 bytes"):
        await client.post(
            CONFIGMAPS, {**config_map("a"), "metadata": {"name": "a", "annotations": {"x": "y" * 262_144}}}
        )


async def test_only_what_a_stopped_job_may_change_in_its_template_changes(client: Client) -> None:
    await client.post(JOBS, job("waits", suspend=True))
    await client.post(JOBS, job("runs"))
    await asyncio.sleep(1)
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}
    changed = await client.merge(f"{JOBS}/waits", selector)
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    with pytest.raises(errors.Invalid, match=r"spec\.template.*field is immutable"):
        await client.merge(f"{JOBS}/runs", selector)
    with pytest.raises(errors.Invalid, match="field is immutable"):
        await client.merge(f"{JOBS}/waits", {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    with pytest.raises(errors.Invalid, match=r"spec\.completions"):
        await client.merge(f"{JOBS}/waits", {"spec": {"completions": 5}})


async def test_scheduling_gates_of_a_pod_can_only_be_taken_away(client: Client) -> None:
    await client.post(PODS, pod("a", schedulingGates=[{"name": "example.com/hold"}]))
    more = [{"name": "example.com/hold"}, {"name": "example.com/more"}]
    with pytest.raises(errors.Invalid, match="only deletion is allowed"):
        await client.merge(f"{PODS}/a", {"spec": {"schedulingGates": more}})
    freed = await client.merge(f"{PODS}/a", {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in freed["spec"]
    with pytest.raises(errors.Invalid, match="pod updates may not change fields"):
        await client.merge(f"{PODS}/a", {"spec": {"nodeName": "n1"}})


async def test_a_namespace_must_exist(client: Client) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        await client.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))


async def test_a_json_patch_whose_test_fails_is_refused_whole(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a", x="1"))
    operations = [
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "test", "path": "/data/x", "value": "1"},
    ]
    with pytest.raises(errors.Invalid):
        await client.json_patch(f"{CONFIGMAPS}/a", operations)
    assert (await client.get(f"{CONFIGMAPS}/a"))["data"] == {"x": "1"}


async def test_scale_writes_one_path_of_the_scaled_object(client: Client) -> None:
    deployments = "/apis/apps/v1/namespaces/team-a/deployments"
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}}
    await client.post(deployments, body)
    scale = await client.merge(f"{deployments}/web/scale", {"spec": {"replicas": 5}})
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 5)
    scaled = await client.get(f"{deployments}/web")
    assert (scaled["spec"]["replicas"], scaled["metadata"]["generation"]) == (5, 2)
