"""Policy is deleted while gangs use it: one by one, as a collection, and with its namespace."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.controlplane.install import NAMESPACE
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, reservations
from webhook.dialects.registry import COMPILED

pytestmark = pytest.mark.usefixtures("tutti")
KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def policy_of(name: str) -> list[dict[str, Any]]:
    """Return a flavor, a cohort, two queues in it and their LocalQueues, all of one label."""

    def made(kind: str, called: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": called, "labels": {"of": name}}
        return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}

    found = [made("ResourceFlavor", name, {}), made("Cohort", name, {})]
    for each in ("used", "idle"):
        spec = cluster_queue_of(f"{name}-{each}", 4)["spec"]
        spec["resourceGroups"][0]["flavors"][0]["name"] = name
        found.append(made("ClusterQueue", f"{name}-{each}", {**spec, "cohortName": name}))
        found.append(made("LocalQueue", each, {"clusterQueue": f"{name}-{each}"}))
    return found


def left(kubectl: Kubectl, kind: str, name: str) -> list[str]:
    """Return what there is of a kind with that label."""
    return sorted(item["metadata"]["name"] for item in kubectl.items(kind, f"of={name}"))


def delete_all(kubectl: Kubectl, path: str, name: str) -> str:
    """Delete a collection in one request, as no kubectl command does, and return the refusal, if it was refused."""
    try:
        kubectl("delete", "--raw", f"/apis/{KUEUE}/{path}?labelSelector={quote(f'of={name}', safe='')}")
    except KubectlError as error:
        return error.stderr
    return ""


def test_what_holds_a_gang_stays_when_all_are_deleted_at_once_and_goes_with_its_namespace(
    cluster: AnyCluster, kubectl: Kubectl
) -> None:
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, name)
    admin, owner = kubectl.in_namespace(name), member(cluster, kubectl, name, f"{name}-owner")
    admin.apply({"apiVersion": "v1", "kind": "List", "items": policy_of(name)})
    owner.create(job("train", 2, pod_template(), "used"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, what="it runs")
    for path, kind in (
        (f"namespaces/{name}/localqueues", "LocalQueue"),
        ("clusterqueues", "ClusterQueue"),
        ("cohorts", "Cohort"),
        ("resourceflavors", "ResourceFlavor"),
    ):
        refused = delete_all(admin, path, name)
        assert f"{kind} " in refused
        assert f"holds a gang ({name}/train): wait until it has ended, or delete it; or " in refused
    assert "used" in left(admin, "localqueues", name)
    assert f"{name}-used" in left(admin, "clusterqueues", name)
    assert left(admin, "cohorts", name) == left(admin, "resourceflavors", name) == [name]
    assert list(reservations(admin)) == ["train"]
    kubectl.delete("namespace", name)
    wait_until(lambda: not kubectl("get", "namespace", name, "--ignore-not-found"), 60, "the namespace is gone")
    wait_until(lambda: not reservations(admin), what="what it held is free")
    for path in ("clusterqueues", "cohorts", "resourceflavors"):
        wait_until(partial(_may_go, kubectl, path, name), what=f"{path} may go: nobody uses them")


def _may_go(kubectl: Kubectl, path: str, name: str) -> bool:
    return not delete_all(kubectl, path, name)


# -- each kind by itself ----------------------------------------------------------------------------------------------

Kept = Callable[[Kubectl, str], None]
TREE: Final = ("elasticquotatree", "elasticquotatree")
VOLCANO: Final = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
POLICY_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tutti-policy"}}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of policy: what is deleted, what the refusal calls it and advises, and what lets it go."""

    kind: str
    name: str
    """``{}`` stands for the namespace."""
    called: str
    advice: str
    free: Kept | None = None
    """Does what is advised; where that is to wait, the job is deleted."""


def drained(kind: str, name: str) -> Kept:
    """Return what stops all that a queue holds."""

    def stop(admin: Kubectl, namespace: str) -> None:
        admin.patch(kind, name.format(namespace), {"spec": {"stopPolicy": "HoldAndDrain"}})
        wait_until(lambda: not reservations(admin), what=f"all that the {kind} holds is stopped")

    return stop


def moved(admin: Kubectl, namespace: str) -> None:
    """Move both queues to another cohort."""
    for each in ("used", "idle"):
        admin.patch("clusterqueue", f"{namespace}-{each}", {"spec": {"cohortName": f"{namespace}-other"}})


STOP: Final = "or set spec.stopPolicy: HoldAndDrain"
OF_KUEUE: Final = (
    Case("clusterqueue", "{}-used", "ClusterQueue {}-used", STOP, drained("clusterqueue", "{}-used")),
    Case("localqueue", "used", "LocalQueue {}/used", STOP, drained("localqueue", "used")),
    Case("cohort", "{}", "Cohort {}", "or move its queues to another cohort first", moved),
    Case("resourceflavor", "{}", "ResourceFlavor {}", STOP, drained("clusterqueue", "{}-used")),
)
ELSEWHERE: Final = {
    "Topology": "test_room_on_nodes.py: its flavor needs nodes in rows",
    "HyperNode": "holds nothing: Volcano makes and deletes them as nodes come and go",
    "WorkloadPriorityClass": "holds nothing: what it was worth is kept by who runs",
    "ElasticQuotaTree": "below: there is one in a cluster",
    "Queue": "below: as an object of Volcano's, and in a ConfigMap",
}


def test_each_kind_of_policy_has_a_row_or_a_test_of_its_own() -> None:
    rows = {case.kind for case in OF_KUEUE} | {kind.lower() for kind in ELSEWHERE}
    assert rows == {resource.kind.lower() for resource in COMPILED}


@pytest.mark.parametrize("case", OF_KUEUE, ids=lambda case: case.kind)
def test_what_holds_a_gang_says_who_and_what_to_do_and_goes_once_that_is_done(
    case: Case, owner: Kubectl, admin: Kubectl
) -> None:
    namespace = admin.namespace
    admin.apply({"apiVersion": "v1", "kind": "List", "items": policy_of(namespace)})
    try:
        _kept(case, owner, admin)
    finally:
        _sweep(admin)


def _kept(case: Case, owner: Kubectl, admin: Kubectl) -> None:
    namespace, name = admin.namespace, case.name.format(admin.namespace)
    owner.apply(job("train", 2, pod_template(), "used"))
    _runs(owner, 2)
    for how in ((), ("--cascade=foreground",), ("--grace-period=0", "--force"), ("--dry-run=server",)):
        refused = admin.refused("delete", case.kind, name, "--wait=false", *how)
        assert f"{case.called.format(namespace)} holds a gang ({namespace}/train): wait until it has ended" in refused
        assert case.advice in refused
    if case.free is not None:
        case.free(admin, namespace)
    wait_until(lambda: admin.delete(case.kind, name), what="it may go")
    gone = partial(admin, "get", case.kind, name, "--ignore-not-found")
    wait_until(lambda: not gone(), what="and is gone")


def _runs(owner: Kubectl, pods: int) -> None:
    """Wait until the job runs. Webhooks, which keep its policy, read what is reserved a moment after it is stored."""
    wait_until(lambda: len(owner.pods("job-name=train", "Running")) == pods, what="it runs")


def _sweep(admin: Kubectl) -> None:
    admin.delete("job", "train")
    wait_until(lambda: not reservations(admin), what="nothing is held")
    for each in ("localqueues", "clusterqueues", "cohorts", "resourceflavors"):
        there = left(admin, each, admin.namespace)
        wait_until(lambda e=each, n=there: not n or admin.delete(e, *n), what=f"{each} are gone")


def test_a_tree_and_each_of_its_leaves_say_who_runs_there(
    cluster: AnyCluster, kubectl: Kubectl, owner: Kubectl, admin: Kubectl
) -> None:
    namespace, system = admin.namespace, kubectl.in_namespace("kube-system")

    def tree(*leaves: str) -> dict[str, Any]:
        amounts = {key: {"cpu": 10, GPU: 4} for key in ("min", "max")}
        children = [{"name": leaf, "namespaces": [f"{namespace}{leaf[4:]}"], **amounts} for leaf in leaves]
        root = {"name": "root", "min": {"cpu": 20, GPU: 8}, "max": {"cpu": 20, GPU: 8}, "children": children}
        metadata = {"name": TREE[1], "namespace": "kube-system"}
        api_version = "scheduling.sigs.k8s.io/v1beta1"
        return {"apiVersion": api_version, "kind": "ElasticQuotaTree", "metadata": metadata, "spec": {"root": root}}

    system.apply(tree("leaf", "leaf-idle"))
    try:
        probe = job("probe", 1, pod_template(gpus=0))
        wait_until(lambda: '"suspend": true' in owner.create(probe, "--dry-run=server", "-o", "json"), what="gated")
        owner.apply(job("train", 2, pod_template()))
        _runs(owner, 2)
        held = f"holds a gang ({namespace}/train): wait until it has ended, or delete it"
        assert f"ElasticQuotaTree kube-system/{TREE[1]} {held}" in system.refused("delete", *TREE, "--wait=false")
        for without in (tree("leaf-idle"), tree()):
            assert f"leaf root/leaf of ElasticQuotaTree kube-system/{TREE[1]} {held}" in system.refused(
                "apply", "-f", "-", stdin=json.dumps(without)
            )
        system.apply(tree("leaf"))
        owner.delete("job", "train")
        wait_until(lambda: system.apply(tree("leaf-idle")), what="the leaf may go when the job has gone")
    finally:
        owner.delete("job", "train")
        wait_until(lambda: system.delete(*TREE), what="the tree may go")


@pytest.mark.parametrize("as_object", [True, False], ids=["an object", "in the ConfigMap"])
def test_a_queue_of_volcano_says_who_runs_there(
    cluster: AnyCluster, owner: Kubectl, admin: Kubectl, as_object: bool
) -> None:
    name, system = f"{admin.namespace}-volcano", admin.in_namespace(NAMESPACE)
    queue = VOLCANO | {"metadata": {"name": name}, "spec": {"capability": {GPU: 4}, "deserved": {GPU: 4}}}
    if as_object:
        cluster.install_kinds("volcano-queues")
        wait_until(lambda: admin.apply(queue), what="the API server serves them")
    else:
        system.apply(POLICY_MAP | {"data": {"volcano": json.dumps(queue)}})
    try:
        _volcano_kept(owner, admin, name, as_object)
    finally:
        owner.delete("job", "train")
        if as_object:
            admin.delete("crd", "queues.scheduling.volcano.sh")


def _volcano_kept(owner: Kubectl, admin: Kubectl, name: str, as_object: bool) -> None:
    system = admin.in_namespace(NAMESPACE)
    deleted = ("queues.scheduling.volcano.sh", name) if as_object else ("configmap", "tutti-policy")
    probe = job("probe", 1, pod_template(), name)
    wait_until(lambda: admin.create(probe, "--dry-run=server") and not admin.warnings, 60, "the queue is known")
    owner.apply(job("train", 4, pod_template(), name))
    _runs(owner, 4)
    refused = system.refused("delete", *deleted, "--wait=false")
    assert f"Queue {name} holds a gang ({admin.namespace}/train): wait until it has ended, or delete it; or " in refused
    assert "close it first, so that nothing new starts" in refused
    if not as_object:
        assert f"Queue {name} holds" in system.refused("apply", "-f", "-", stdin=json.dumps(POLICY_MAP | {"data": {}}))
    owner.delete("job", "train")
    wait_until(lambda: system.delete(*deleted), what="the queue may go")


def test_tests_clear_nothing_without_kubectl_that_tutti_keeps(admin: Kubectl) -> None:
    queue = give_queue(admin, gpus=1)
    admin.apply(job("steady", 1, pod_template(), QUEUE))
    wait_until(lambda: admin.pods(phase="Running"), what="it runs")
    refused = wait_until(partial(admin.refused, "delete", "clusterqueue", queue, "--dry-run=server"), what="kept")
    with pytest.raises(KubectlError) as error:
        admin.clear("clusterqueue", queue)
    assert refused.strip().endswith(error.value.stderr)  # kubectl warns that it is no object of the namespace
