"""Kinds of other projects in a fleet of real control planes, without their controllers: what those do, the tests do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import objects, queues
from tests.e2e.controlplane import operators
from tests.e2e.controlplane.fleet import FleetClusters
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.test_kinds_of_other_projects import LATER, RUNTIME, ray, train_job
from webhook.core.notation import names

pytestmark = pytest.mark.own_cluster
KUBERAY = "system:serviceaccount:kuberay-system:kuberay-operator"
DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": LATER}


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters() as started:
        for name, cluster in started.clusters.items():
            cluster.install_kinds("ray")
            cluster.install_kinds("trainer")
            kubectl = started.kubectl[name]
            for runtime in (RUNTIME, RUNTIME | {"kind": "ClusterTrainingRuntime"}):
                wait_until(lambda to=kubectl, what=runtime: to.apply(what), what="training runtimes are served")
        yield started


def made(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "train", "labels": {names.QUEUE_LABELS[0]: queues.QUEUE}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def started_in(world: FleetClusters, kind: str) -> Kubectl:
    """Return the member in which the job runs."""

    def found() -> list[Kubectl]:
        return [
            member
            for member in world.members.values()
            if any(each["spec"].get("suspend") is False for each in member.items(kind))
        ]

    (member,) = wait_until(found, 90, what="it starts in a member")
    return member


def ends(world: FleetClusters, member: Kubectl, kind: str, status: dict[str, Any]) -> None:
    """Have its controller say that the job has ended, and wait until the hub shows that and nothing is left."""
    member("patch", kind, "train", "--type=merge", "--subresource=status", f"--patch={json.dumps({'status': status})}")
    wait_until(lambda: not world.hub.get(kind, "train")["metadata"].get("finalizers"), 60, what="let go")
    assert status.items() <= world.hub.get(kind, "train")["status"].items()
    assert not [each for kubectl in world.members.values() for each in kubectl.items(kind)]
    world.hub.delete(kind, "train")


def test_a_train_job_whose_definition_names_its_controller_runs_in_a_member(world: FleetClusters) -> None:
    wait_until(lambda: world.hub.create(made("trainer.kubeflow.org/v1alpha1", "TrainJob", train_job(1))), what="served")
    member = started_in(world, "trainjobs")
    ends(world, member, "trainjobs", {"conditions": [DONE]})


def test_a_train_job_goes_where_no_other_job_set_has_its_name(world: FleetClusters) -> None:
    """The Trainer of a member would take that one for its own, and show its end as the TrainJob's."""
    operators.define_kinds(world.clusters["left"])
    taken = objects.jobset("train", 1, objects.pod_template(gpus=0), suspend=True)
    of_the_cluster = train_job(1) | {"runtimeRef": {"name": RUNTIME["metadata"]["name"]}}
    goes_right(world, made("trainer.kubeflow.org/v1alpha1", "TrainJob", of_the_cluster), "trainjobs", taken)
    ends(world, world.members["right"], "trainjobs", {"conditions": [DONE]})


def test_a_ray_job_goes_where_no_other_job_has_its_name(world: FleetClusters) -> None:
    """KubeRay could not make its submitter there."""
    taken = objects.job("train", 1, objects.pod_template(gpus=0), suspend=True)
    goes_right(world, made("ray.io/v1", "RayJob", ray_job()), "rayjobs", taken)
    ends(world, world.members["right"], "rayjobs", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})


def goes_right(world: FleetClusters, job: dict[str, Any], kind: str, taken: dict[str, Any]) -> None:
    """Have a tenant of the left member take the name, and see that the job runs in the other one and says why."""
    left = world.members["left"]
    wait_until(lambda: left.create(taken), what="the kind is served")
    # A kind just defined can be written before it can be read (429), which kubectl waits out and the hub does not.
    left.get(taken["kind"].lower(), "train")
    world.hub.create(job)
    assert started_in(world, kind) is world.kubectl["right"]
    assert not left.items(kind)
    why = json.loads(world.hub.get(kind, "train")["metadata"]["annotations"][names.DISPATCH])["elsewhere"]
    assert f"left has another {taken['kind']} with this name" in why
    left.delete(taken["kind"].lower(), "train")


def ray_job() -> dict[str, Any]:
    """Return a RayJob's spec that asks no GPUs."""
    spec = ray(1)
    for group in (spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]):
        group["template"] = objects.pod_template(gpus=0, container="ray")
    return spec


def test_the_cluster_that_kuberay_makes_of_a_ray_job_is_left_alone_by_the_hub(world: FleetClusters) -> None:
    world.hub.create(made("ray.io/v1", "RayJob", ray_job()))
    member = started_in(world, "rayjobs")
    copy = member.get("rayjobs", "train")
    metadata = {key: copy["metadata"][key] for key in ("labels", "annotations")}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": copy["metadata"]["uid"]}
    metadata |= {"name": "train-x7k2p", "ownerReferences": [owner | {"controller": True}]}
    child = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata}
    member("create", "clusterrolebinding", "kuberay", "--clusterrole=cluster-admin", f"--user={KUBERAY}")
    making = {"stdin": json.dumps(child | {"spec": copy["spec"]["rayClusterSpec"]})}
    wait_until(lambda: member("create", "-f", "-", f"--as={KUBERAY}", **making), what="its rights are in force")
    stays(lambda: member.get("rayclusters", "train-x7k2p"), 20, what="its cluster is there")
    ends(world, member, "rayjobs", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})
