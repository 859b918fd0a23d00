"""What a job refers to comes with it into its member, on a hub and two members as real control planes."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.e2e import objects, queues
from tests.e2e.controlplane.fleet import MEMBERS, NAMESPACE, FleetClusters
from tests.e2e.controlplane.install import NAMESPACE as SYSTEM
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from webhook.core.notation import names
from webhook.fleet.credentials.account import ACCOUNT
from webhook.fleet.jobs.dependencies.dependency import OWNERS_MAX, TOKEN

pytestmark = pytest.mark.own_cluster
AS_HUB: Final = f"--as=system:serviceaccount:{SYSTEM}:{ACCOUNT}"
OPENED: Final = "kubectl --kubeconfig $CLUSTERS/{} create rolebinding tutti-hub-secrets -n {} "
OPENED_TO: Final = "--clusterrole=tutti-hub-secrets --serviceaccount=tutti-system:tutti-hub"
POLICY: Final[dict[str, Any]] = {
    "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "with-all-it-needs"},
    "spec": {"propagateDeps": True, "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}]},
}
OWNER: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "00000000-0000-0000-0000-000000000000"}


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters() as started:
        started.hub.create(POLICY)
        yield started


def held(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def needy(name: str, runtime: str = "20s", secret: str = "") -> dict[str, Any]:
    template = objects.pod_template(gpus=1, runtime=runtime)
    volumes: list[dict[str, Any]] = [{"name": "settings", "configMap": {"name": f"{name}-settings"}}]
    if secret:
        volumes.append({"name": "key", "secret": {"secretName": secret}})
    template["spec"] |= {"volumes": volumes, "serviceAccountName": f"{name}-account"}
    return objects.job(name, 2, template, queues.QUEUE)


def submit(world: FleetClusters, name: str, runtime: str = "20s", secret: str = "") -> None:
    world.hub.create(held("ConfigMap", f"{name}-settings", data={"rate": "0.1"}))
    world.hub.create(held("ServiceAccount", f"{name}-account", automountServiceAccountToken=False))
    world.hub.create(needy(name, runtime, secret))


def runs(world: FleetClusters, name: str) -> list[str]:
    """Return the member in which both pods of a job run."""
    found = {member: kubectl.pods(f"job-name={name}", "Running") for member, kubectl in world.members.items()}
    return [member for member, pods in found.items() if len(pods) == 2]


def has(kubectl: Kubectl, kind: str, name: str) -> bool:
    return name in {each["metadata"]["name"] for each in kubectl.items(kind)}


def ends(world: FleetClusters, name: str) -> None:
    wait_until(lambda: condition(world.hub.get("job", name), "Complete") == "True", 90, what="it ends")


def test_a_config_map_and_a_service_account_of_the_hub_come_with_their_job_and_go_with_it(world: FleetClusters) -> None:
    submit(world, "both")
    (member,) = wait_until(lambda: runs(world, "both"), 90, what="it runs")
    kubectl = world.members[member]
    found, account = kubectl.get("configmap", "both-settings"), kubectl.get("serviceaccount", "both-account")
    assert found["data"] == {"rate": "0.1"}
    assert account["automountServiceAccountToken"] is False
    copy = kubectl.get("job", "both")["metadata"]
    for each in (found, account):
        assert [owner["uid"] for owner in each["metadata"]["ownerReferences"]] == [copy["uid"]]
        assert each["metadata"]["labels"][names.ORIGIN_LABEL] == copy["labels"][names.ORIGIN_LABEL]
    (other,) = set(MEMBERS) - {member}
    assert not has(world.members[other], "configmap", "both-settings")
    ends(world, "both")
    wait_until(lambda: not has(kubectl, "configmap", "both-settings"), 60, what="its ConfigMap is gone")
    wait_until(lambda: not has(kubectl, "serviceaccount", "both-account"), 60, what="its ServiceAccount is gone")


def test_what_a_member_has_of_its_own_by_that_name_stays_as_it_is(world: FleetClusters) -> None:
    for kubectl in world.members.values():
        kubectl.create(held("ConfigMap", "own-settings", data={"rate": "of the member"}))
    before = {member: kubectl.get("configmap", "own-settings") for member, kubectl in world.members.items()}
    submit(world, "own", "3s")
    ends(world, "own")
    assert {member: kubectl.get("configmap", "own-settings") for member, kubectl in world.members.items()} == before


def test_jobs_that_share_what_they_need_own_it_together(world: FleetClusters) -> None:
    world.hub.create(held("ConfigMap", "shared", data={"a": "1"}))
    for name, runtime in (("one", "10s"), ("two", "60s")):
        job = objects.job(name, 2, objects.pod_template(gpus=1, runtime=runtime), queues.QUEUE)
        job["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "shared"}}]
        world.hub.create(job)
    (member,) = wait_until(lambda: runs(world, "two"), 90, what="it runs")
    kubectl = world.members[member]
    ends(world, "one")
    wait_until(lambda: not has(kubectl, "job", "one"), 60, what="the first is gone")
    assert kubectl.get("configmap", "shared")["data"] == {"a": "1"}
    world.hub("delete", "job", "two", "--wait=false")
    wait_until(lambda: not has(kubectl, "configmap", "shared"), 90, what="it goes with the last")


def test_a_secret_comes_along_once_a_role_binding_says_so_in_both_clusters(world: FleetClusters) -> None:
    world.hub.create(held("Secret", "key", data={"key": "c2VjcmV0"}))
    submit(world, "closed", "3s", secret="key")
    why = wait_until(lambda: told(world.hub, "closed", "DependencyMissing"), 90, what="its owner is told")
    assert "tutti-hub-secrets" in str(why)
    assert not any(has(kubectl, "secret", "key") for kubectl in world.members.values())
    world.hub("delete", "job", "closed", "--wait=false")
    for cluster in world.clusters:
        world.shell(OPENED.format(cluster, NAMESPACE) + OPENED_TO)
    submit(world, "open", secret="key")
    (member,) = wait_until(lambda: runs(world, "open"), 90, what="it runs")
    assert world.members[member].get("secret", "key")["data"] == {"key": "c2VjcmV0"}
    ends(world, "open")
    wait_until(lambda: not has(world.members[member], "secret", "key"), 60, what="it is gone")


def made(kind: str, name: str, owners: int = 1, **fields: Any) -> dict[str, Any]:
    """Return what a hub makes; of a hub and of jobs that nobody has."""
    refs = [OWNER | {"uid": OWNER["uid"][:-6] + f"{number:06}"} for number in range(owners)]
    marks = {"name": name, "labels": {names.ORIGIN_LABEL: "no-hub"}, "ownerReferences": refs}
    return held(kind, name, **fields) | {"metadata": {**marks, **fields.pop("metadata", {})}}


def refused(kubectl: Kubectl, item: dict[str, Any]) -> str:
    return kubectl.refused("create", "-f", "-", AS_HUB, "--dry-run=server", stdin=yaml.safe_dump(item))


def merged(change: dict[str, Any]) -> tuple[str, ...]:
    return "--type=merge", f"--patch={json.dumps(change)}", AS_HUB


def test_a_stolen_token_makes_nothing_in_a_member_but_what_belongs_to_a_copy(world: FleetClusters) -> None:
    member = world.members["left"]
    bare = held("ConfigMap", "bare", data={})
    wait_until(lambda: "marked as brought" in refused(member, bare), 20, what="the policy is in force")
    member("create", "-f", "-", AS_HUB, "--dry-run=server", stdin=yaml.safe_dump(made("ConfigMap", "fine", OWNERS_MAX)))
    for kind in ("ConfigMap", "ServiceAccount"):
        assert "marked as brought" in refused(member, held(kind, "bare"))
        assert "belongs to copies" in refused(member, made(kind, "nobodys", owners=0))
        for odd in (
            {"kind": "Deployment", "apiVersion": "apps/v1"},
            {"controller": True},
            {"blockOwnerDeletion": True},
            {"uid": f"{OWNER['uid']} batch/v1 Job two u2"},
        ):
            item = made(kind, "odd", metadata={"ownerReferences": [OWNER | odd]})
            assert "belongs to copies" in refused(member, item), odd
        assert "no finalizer" in refused(member, made(kind, "kept", metadata={"finalizers": ["a.io/b"]}))
        for system in (SYSTEM, "kube-system", "kube-public"):
            assert "namespace of the system" in refused(member.in_namespace(system), made(kind, "x"))
    # By the role that an administrator has bound in the test before, or binds here.
    bound = ("create", "rolebinding", "secrets", "--clusterrole=tutti-hub-secrets")
    member(*bound, f"--serviceaccount={SYSTEM}:{ACCOUNT}")
    notes = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    token = made("Secret", "token", metadata=notes, type=TOKEN)
    wait_until(lambda: "no token" in refused(member, token), 20, what="it is judged")
    assert "marked as brought" in refused(member, held("Secret", "bare"))


def test_a_stolen_token_changes_nothing_in_a_member_but_what_a_hub_has_made(world: FleetClusters) -> None:
    member = world.members["left"]
    lasting = objects.job("lasts", 1, objects.pod_template(gpus=1), queues.QUEUE)
    member.create(lasting | {"spec": lasting["spec"] | {"suspend": True}})
    member.create(held("ConfigMap", "theirs", data={"a": "1"}))
    # With an owner that stays the garbage collector leaves it alone.
    lasts = OWNER | {"name": "lasts", "uid": member.get("job", "lasts")["metadata"]["uid"]}
    member.create(made("ConfigMap", "brought", metadata={"ownerReferences": [lasts]}))
    label = {"metadata": {"labels": {names.ORIGIN_LABEL: "no-hub"}}}
    wait_until(
        lambda: "marked as brought" in member.refused("patch", "configmap", "theirs", *merged({"data": {"a": "2"}})),
        20,
        what="the policy is in force",
    )
    assert "marked as brought" in member.refused("patch", "configmap", "theirs", *merged(label))
    assert "marked as brought" in member.refused("patch", "serviceaccount", "default", *merged(label))
    for change in ({"labels": None}, {"labels": {names.ORIGIN_LABEL: "mine"}}):
        assert "marked as brought" in member.refused("patch", "configmap", "brought", *merged({"metadata": change}))
    for owners, why in (([], "belongs to copies"), ([OWNER], "from no copy"), ([OWNER, lasts], "from no copy")):
        assert why in member.refused(
            "patch", "configmap", "brought", *merged({"metadata": {"ownerReferences": owners}})
        )
    many = made("ConfigMap", "brought", OWNERS_MAX)["metadata"]["ownerReferences"]
    fine = {"metadata": {"ownerReferences": [lasts, *many[1:]]}, "data": {"a": "2"}}
    member("patch", "configmap", "brought", *merged(fine), "--dry-run=server")
    system = member.in_namespace(SYSTEM)
    for change in ({"data": {"index": "stolen"}}, label):
        assert "namespace of the system" in system.refused("patch", "configmap", names.LEDGER_NAME, *merged(change))
    for act in (
        ("delete", "configmap", "brought", "--wait=false"),
        ("get", "configmaps"),
        ("get", "serviceaccounts"),
        ("create", "token", "default"),
    ):
        with pytest.raises(KubectlError):
            member(*act, AS_HUB)
    with pytest.raises(KubectlError):
        member.in_namespace("default")("get", "secret", "any", AS_HUB)
    assert member.get("configmap", "theirs")["data"] == {"a": "1"}
    member.delete("configmap", "theirs", "brought")
    member.delete("job", "lasts")
