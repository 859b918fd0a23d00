"""Policy is deleted while gangs use it: one by one, as a collection, and with its namespace."""

import uuid
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.e2e.conftest import AnyCluster, create_namespace, member
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import cluster_queue_of, reservations

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
