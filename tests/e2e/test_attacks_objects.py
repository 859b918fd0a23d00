"""Objects that the API server stores and that are hard to read: whoever writes one stops nobody, not even themself.

| what a tenant stores | what holds |
|---|---|
| a PodGroup nested 1,100 and 5,000 deep | our CRD drops it; where another keeps it all go on |
| a Job and a ConfigMap with what is nested 1,100 and 200,000 deep | the one is dropped, the other not read |
| annotations of 200 kB, or of JSON in JSON | they are believed by nobody and cost nobody anything |
| a kind that nobody can list | its jobs wait, all others start, and an event says so |
| a kind whose conversion webhook dies while all runs | the same, and what runs of it keeps what it holds |
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import Team
from tests.e2e.controlplane.install import NAMESPACE, Installation
from tests.e2e.kubectl import Kubectl, KubectlError, stays, wait_until
from tests.e2e.objects import job, jobset, pod_template
from tests.e2e.queues import QUEUE, give_queue, reservations
from tests.e2e.test_metrics import value

GROUPS = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
ROLES = ("tutti-read", "tutti-reconciler")
JOBSETS = "JobSet.jobset.x-k8s.io/v1alpha2"


def nested(levels: int) -> str:
    return '{"x":' * levels + "1" + "}" * levels


def deep_pod_group(group: str, levels: int) -> str:
    """Return a PodGroup as JSON text: no YAML writer of ours goes so deep."""
    return (
        f'{{"apiVersion":"{group}/v1alpha1","kind":"PodGroup","metadata":{{"name":"deep-{levels}"}},'
        f'"spec":{{"minMember":1,"x":{nested(levels)}}}}}'
    )


def levels_stored(owner: Kubectl, group: str, levels: int) -> int:
    path = f"/apis/{group}/v1alpha1/namespaces/{owner.namespace}/podgroups/deep-{levels}"
    return owner("get", "--raw", path).count('{"x":')


@contextmanager
def unknown_fields_kept(admin: Kubectl) -> Iterator[None]:
    """Let PodGroups keep what their schema does not name, as the CRDs of other projects do."""
    before = {group: admin.get("crd", f"podgroups.{group}")["spec"] for group in GROUPS}
    for group, spec in before.items():
        changed = copy.deepcopy(spec)
        schema = changed["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
        admin.patch("crd", f"podgroups.{group}", {"spec": changed})
        probe = deep_pod_group(group, 3)
        wait_until(lambda probe=probe, group=group: kept(admin, group, probe), what="the API server takes the schema")
    try:
        yield
    finally:
        for group, spec in before.items():
            admin.patch("crd", f"podgroups.{group}", {"spec": spec})


def kept(admin: Kubectl, group: str, probe: str) -> bool:
    admin.create(probe, "--validate=false")
    found = levels_stored(admin, group, 3)
    admin("delete", f"podgroups.{group}", "deep-3")
    return found == 3


def start_again(tutti: Installation) -> None:
    """End every process of ours and start it again; they must all become ready."""
    for replica in tutti.replicas:
        replica.component.kill()
    for replica in tutti.replicas:
        replica.component.start()
    tutti.wait_ready()


def starts_whole(owner: Kubectl, name: str) -> None:
    owner.create(job(name, 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(f"job-name={name}", phase="Running")) == 2, what=f"{name} starts")


@pytest.mark.own_cluster
def test_an_object_nested_thousands_deep_ends_no_process_and_hides_no_other(
    breakable: Installation, team: Team
) -> None:
    give_queue(team.admin, 8)
    for group in GROUPS:
        team.owner.create(deep_pod_group(group, 100), "--validate=false")
        assert levels_stored(team.owner, group, 100) == 0, "our CRD keeps what it does not know"
    with unknown_fields_kept(team.admin):
        for group in GROUPS:
            for levels in (1_100, 5_000):
                team.owner.create(deep_pod_group(group, levels), "--validate=false")
                assert levels_stored(team.owner, group, levels) == levels
        starts_whole(team.owner, "beside")
        start_again(breakable)
        starts_whole(team.owner, "after")
    assert all(replica.component.running for replica in breakable.replicas)
    team.admin("delete", "namespace", team.admin.namespace, "--wait=true", timeout_seconds=120)


@pytest.mark.own_cluster
def test_annotations_of_any_size_and_depth_are_nobodys_business(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 8)
    crowded = job("crowded", 2, pod_template(), QUEUE)
    crowded["metadata"]["annotations"] = {"example.com/large": "x" * 190_000, "example.com/deep": nested(9_000)}
    team.owner.create(crowded)
    wait_until(lambda: len(team.owner.pods("job-name=crowded", phase="Running")) == 2, what="it starts")
    forged = job("forged", 2, pod_template(), QUEUE)
    forged["metadata"]["annotations"] = {"tutti.dev/admission": nested(9_000), "tutti.dev/requeue": nested(9_000)}
    team.owner.create(forged)
    wait_until(lambda: len(team.owner.pods("job-name=forged", phase="Running")) == 2, what="it waits, and starts")
    start_again(breakable)
    starts_whole(team.owner, "after")


@pytest.mark.own_cluster
def test_a_deep_job_and_a_deep_config_map_are_nobodys_business(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 8)
    deep = json.dumps(job("deep", 2, pod_template(), QUEUE)).replace('"spec": {', f'"spec": {{"x": {nested(1_100)},', 1)
    team.owner.create(deep, "--validate=false")
    wait_until(lambda: len(team.owner.pods("job-name=deep", phase="Running")) == 2, what="it starts")
    text = {"policy.yaml": nested(9_000), "deep.json": "[" * 200_000}
    for where in (team.owner, team.admin.in_namespace(NAMESPACE)):
        where.create(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep"}, "data": text}))
    start_again(breakable)
    starts_whole(team.owner, "after")
    team.admin.in_namespace(NAMESPACE)("delete", "configmap", "deep")


@contextmanager
def unlistable(admin: Kubectl, group: str) -> Iterator[None]:
    """Take from our accounts what they may do in an API group."""
    before = {role: admin.get("clusterrole", role) for role in ROLES}
    for role, found in before.items():
        rules = [rule for rule in found["rules"] if group not in rule.get("apiGroups", ())]
        admin.patch("clusterrole", role, {"rules": rules})
    try:
        yield
    finally:
        for role, found in before.items():
            admin.patch("clusterrole", role, {"rules": found["rules"]})


@pytest.mark.own_cluster
def test_a_kind_that_nobody_lets_us_list_stops_its_own_jobs_alone(breakable: Installation, team: Team) -> None:
    give_queue(team.admin, 8)
    with unlistable(team.admin, "jobset.x-k8s.io"):
        start_again(breakable)
        starts_whole(team.owner, "beside")
        said = team.owner.refused("create", "-f", "-", stdin=json.dumps(jobset("unread", 2, pod_template(), QUEUE)))
        assert "Tutti cannot read JobSet.jobset.x-k8s.io" in said
        system = team.admin.in_namespace(NAMESPACE)
        wait_until(
            lambda: "JobSet" in system("get", "events", "--field-selector=reason=KindUnread", "-o", "json"),
            what="an event names the kind",
        )
    wait_until(lambda: created(team.owner), timeout_seconds=60, what="the kind is read again")
    wait_until(lambda: len(team.owner.pods("jobset.sigs.k8s.io/jobset-name=read", phase="Running")) == 2)


@contextmanager
def unconvertible(admin: Kubectl, crd: str) -> Iterator[None]:
    """Let the conversion webhook of a kind be dead, while all of it is stored in another version than is read."""
    dead = admin.get("crd", crd)["spec"]["conversion"]
    assert dead["strategy"] == "Webhook", "that of its project, which is not installed here"
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    older = {"name": "v1alpha1", "served": True, "storage": True, "schema": anything, "subresources": {"status": {}}}
    stored_in_it = [
        {"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}},
        {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
        {"op": "add", "path": "/spec/versions/-", "value": older},
    ]
    admin("patch", "crd", crd, "--type=json", "-p", json.dumps(stored_in_it))
    group = f"/apis/{crd.partition('.')[2]}"
    wait_until(lambda: "v1alpha1" in admin("get", "--raw", group), what="both are served")
    wait_until(lambda: stored_again(admin, crd), what="all of it is stored in that version")
    admin("patch", "crd", crd, "--type=json", "-p", json.dumps([{**stored_in_it[0], "value": dead}]))
    wait_until(lambda: "conversion webhook" in admin.refused("get", crd), what="nobody can list it")
    try:
        yield
    finally:
        admin("patch", "crd", crd, "--type=json", "-p", json.dumps(stored_in_it[:1]))


def stored_again(admin: Kubectl, crd: str) -> bool:
    try:
        admin("label", crd, "--all", "--overwrite", "stored=again")
    except KubectlError:
        return False
    return True


@pytest.mark.own_cluster
def test_a_kind_that_nobody_can_list_any_more_keeps_what_runs_of_it_and_gets_nothing_else(
    breakable: Installation, team: Team
) -> None:
    """Its conversion webhook dies while all runs: what was read may be old, and nothing of it could be written."""
    owner, of = team.owner, "jobset.sigs.k8s.io/jobset-name="
    give_queue(team.admin, 4)
    owner.create(jobset("runs", 2, pod_template(), QUEUE))
    starts_whole(owner, "filler")
    wait_until(lambda: len(owner.pods(f"{of}runs", phase="Running")) == 2, what="the JobSet runs")
    owner.create(jobset("waits", 2, pod_template(), QUEUE))
    wait_until(lambda: "waits" in owner("get", "workloads"), what="another waits for room")
    with unconvertible(team.admin, "jobsets.jobset.x-k8s.io"):
        # Who answers for the workloads may know before who decides.
        wait_until(lambda: unread_by(breakable, JOBSETS) == len(breakable.replicas), what="every process says so")
        wait_until(lambda: "KindUnread" in why(owner, "waits"), timeout_seconds=60, what="its workload says why")
        owner.delete("job", "filler")
        stays(
            lambda: set(reservations(team.admin)) <= {"runs", "filler"}, 10, "it is given no room, the other keeps its"
        )
        starts_whole(owner, "beside")
        assert set(reservations(team.admin)) == {"runs", "beside"}
        assert len(owner.pods(f"{of}runs", phase="Running")) == 2
        owner.delete("job", "beside")
        wait_until(lambda: set(reservations(team.admin)) == {"runs"}, what="what ends gives its room back")
    wait_until(lambda: len(owner.pods(f"{of}waits", phase="Running")) == 2, timeout_seconds=60, what="it starts")
    assert set(reservations(team.admin)) == {"runs", "waits"}
    assert all(replica.component.running for replica in breakable.replicas)


def unread_by(tutti: Installation, feed: str) -> float:
    """Return how many processes say that nobody lets them list a kind."""
    return sum(value(tutti, "tutti_unread_kinds", kind=feed))


def why(owner: Kubectl, name: str) -> str:
    """Return the code of the reason for which a JobSet waits, by its workload."""
    found = [each for each in owner.items("workloads") if each["metadata"]["name"].startswith(f"jobset-{name}")]
    return str(found[0]["status"].get("reason", {}).get("code", "")) if found else ""


def created(owner: Kubectl) -> bool:
    try:
        owner.create(jobset("read", 2, pod_template(), QUEUE))
    except KubectlError:
        return False
    return True
