"""Kinds of other projects in a fleet of real control planes, without their controllers: what those do, the tests do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import objects, policies, queues
from tests.e2e.controlplane import operators
from tests.e2e.controlplane.fleet import FleetClusters
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.test_kinds_of_other_projects import LATER, RUNTIME, ray, spark, train_job
from webhook.core.notation import names

pytestmark = pytest.mark.own_cluster
KUBERAY = "system:serviceaccount:kuberay-system:kuberay-operator"
DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": LATER}


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters() as started:
        for name, cluster in started.clusters.items():
            cluster.install_kinds("ray")
            cluster.install_kinds("spark")
            cluster.install_kinds("trainer")
            kubectl = started.kubectl[name]
            # What a driver and executors ask is read from their memory.
            added = [
                {"op": "add", "path": "/spec/resourceGroups/0/coveredResources/-", "value": "memory"},
                {
                    "op": "add",
                    "path": "/spec/resourceGroups/0/flavors/0/resources/-",
                    "value": {"name": "memory", "nominalQuota": "100Gi"},
                },
            ]
            queue = f"{kubectl.namespace}-{queues.QUEUE}"
            kubectl("patch", "clusterqueue", queue, "--type=json", f"--patch={json.dumps(added)}")
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


# -- SparkApplication, which has no managedBy


SPARK = "sparkapplications"
SPARK_OPERATOR = "system:serviceaccount:spark-operator:spark-operator-controller"
DRIVERS = "system:serviceaccount:team-a:spark"
ENDS = {"executionAttempts": 1, "terminationTime": LATER, "driverInfo": {"podName": "train-driver"}}


def spark_application(**spec: Any) -> dict[str, Any]:
    """Return a SparkApplication of a driver and two executors that asks no GPUs."""
    described = spark(2)
    del described["executor"]["gpu"]
    return made("sparkoperator.k8s.io/v1beta2", "SparkApplication", described | spec)


def policy(**failover: Any) -> dict[str, Any]:
    """Return a policy that selects SparkApplications, and has one that failed tried elsewhere."""
    spec = {
        "resourceSelectors": [{"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}],
        "placement": {"clusterAffinity": {"clusterNames": ["left", "right"]}},
        "failover": {"application": {"decisionConditions": failover, "purgeMode": "Directly"}},
    }
    version = "policy.one.alibabacloud.com/v1alpha1"
    return {"apiVersion": version, "kind": "PropagationPolicy", "metadata": {"name": "spark"}, "spec": spec}


def may_make_pods(kubectl: Kubectl) -> None:
    """Give the operator and the drivers the rights that they have where Spark is installed."""
    for user, name in ((SPARK_OPERATOR, "spark-operator"), (DRIVERS, "spark-drivers")):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        kubectl.apply(binding)


def pod_of(application: dict[str, Any], role: str, name: str, owner: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the operator, or the driver, makes it of an application as it is stored."""
    labels = application["spec"][role]["labels"] | {
        "spark-role": role,
        "sparkoperator.k8s.io/app-name": application["metadata"]["name"],
    }
    found = objects.pod(name, objects.pod_template(gpus=0))
    found["metadata"] |= {"labels": labels, "ownerReferences": [reference(owner) | {"controller": True}]}
    return found


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {key: owner[key] for key in ("apiVersion", "kind")} | {
        key: owner["metadata"][key] for key in ("name", "uid")
    }


def runs(member: Kubectl) -> dict[str, Any]:
    """Do what the Spark operator and the driver do of a copy that was started; return the copy."""
    copy = member.get(SPARK, "train")
    may_make_pods(member)
    driver = pod_of(copy, "driver", "train-driver", copy)
    wait_until(
        lambda: member("create", "-f", "-", f"--as={SPARK_OPERATOR}", stdin=json.dumps(driver)),
        what="the operator's rights are in force",
    )
    driver = member.get("pod", "train-driver")
    for number in (1, 2):
        executor = pod_of(copy, "executor", f"train-exec-{number}", driver)
        wait_until(
            lambda made=executor: member("create", "-f", "-", f"--as={DRIVERS}", stdin=json.dumps(made)),
            what="the webhook has seen the driver",
        )
    third = pod_of(copy, "executor", "train-exec-3", driver)
    assert "reservation for 2 pods" in member.refused("create", "-f", "-", f"--as={DRIVERS}", stdin=json.dumps(third))
    executors = {f"train-exec-{number}": "RUNNING" for number in (1, 2)}
    says(member, {"applicationState": {"state": "RUNNING"}, "driverInfo": {}, "executorState": executors})
    return copy


def says(member: Kubectl, status: dict[str, Any]) -> None:
    """Have the operator write a status."""
    member("patch", SPARK, "train", "--type=merge", "--subresource=status", f"--patch={json.dumps({'status': status})}")


def shows(world: FleetClusters, state: str) -> None:
    """Wait until `kubectl get` in the hub shows this state."""
    wait_until(
        lambda: state in world.hub("get", "sparkapplication", "train").split(), 60, what=f"the hub shows {state}"
    )


def dispatch(world: FleetClusters) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.hub.get(SPARK, "train")["metadata"]["annotations"][names.DISPATCH])
    return found


def pods_of(member: Kubectl) -> list[str]:
    return [each["metadata"]["name"] for each in member.items("pods", "spark-role")]


def test_a_spark_application_runs_whole_in_a_member_and_no_pod_of_it_in_the_hub(world: FleetClusters) -> None:
    world.hub.create(spark_application(timeToLiveSeconds=1))
    assert world.hub.get(SPARK, "train")["metadata"]["annotations"][names.MANAGED_BY] == names.HUB_MANAGER
    member = started_in(world, SPARK)
    copy = runs(member)
    assert names.MANAGED_BY not in copy["metadata"]["annotations"]
    assert "timeToLiveSeconds" not in copy["spec"], "its operator would delete it before the hub has seen its end"
    assert copy["metadata"]["annotations"][names.PERMIT]
    shows(world, "RUNNING")

    ours = world.hub.get(SPARK, "train")
    assert ours["spec"]["suspend"] is False, "an operator in the hub would start it"
    may_make_pods(world.hub)
    stray = pod_of(ours, "driver", "train-driver", ours)
    stray["metadata"]["labels"][names.GANG_LABEL] = ours["metadata"]["uid"]

    def refused() -> str:
        return world.hub.refused("create", "-f", "-", f"--as={SPARK_OPERATOR}", stdin=json.dumps(stray))

    wait_until(lambda: "runs in a member" in refused(), what="an operator in the hub makes no pod of it")
    for value in ("null", '"me"'):
        patch = f'--patch={{"metadata": {{"annotations": {{"{names.MANAGED_BY}": {value}}}}}}}'
        assert "is immutable" in world.hub.refused("patch", SPARK, "train", "--type=merge", patch)

    # By what that operator writes then, the job has not ended.
    says(world.hub, {"applicationState": {"state": "FAILED", "errorMessage": "failed to run spark-submit"}})
    shows(world, "RUNNING")
    assert "OperatorInHub" in [each["reason"] for each in world.hub.items("events")]
    stays(lambda: len(pods_of(member)) == 3, 10, what="it runs on")
    says(member, ENDS | {"applicationState": {"state": "COMPLETED"}})
    shows(world, "COMPLETED")
    wait_until(lambda: not world.hub.get(SPARK, "train")["metadata"].get("finalizers"), 60, what="let go")
    assert not [each for kubectl in world.members.values() for each in (*kubectl.items(SPARK), *pods_of(kubectl))]
    world.hub.delete(SPARK, "train")


def test_a_spark_application_that_fails_is_tried_in_the_other_member_without_its_former_status(
    world: FleetClusters,
) -> None:
    """The hub has the overlay with policies about what others write, which lets its webhook write who places a job."""
    world.hub("apply", "--server-side", "-k", str(policies.overlay()))
    world.hub.create(policy(tolerationSeconds=1))
    wait_until(lambda: world.hub.create(spark_application()), what="its former one is gone")
    taken_off = f'--patch={{"metadata": {{"annotations": {{"{names.MANAGED_BY}": null}}}}}}'
    wait_until(
        lambda: (
            "the annotations of tutti.dev are written only by Tutti"
            in world.hub.refused("patch", SPARK, "train", "--type=merge", taken_off)
        ),
        what="the policies are in force",
    )
    first = started_in(world, SPARK)
    runs(first)
    shows(world, "RUNNING")
    says(first, ENDS | {"applicationState": {"state": "FAILED", "errorMessage": "driver container failed"}})
    (second,) = [each for each in world.members.values() if each is not first]
    wait_until(lambda: [each for each in second.items(SPARK) if each["spec"]["suspend"] is False], 90, what="it moves")
    assert not pods_of(first), "nothing of it is left there before it may start elsewhere"
    assert dispatch(world)["failed"]
    runs(second)
    shows(world, "RUNNING")

    # Suspended in the hub it leaves, and what its earlier copies showed is cleared: this definition requires fields of
    # any status that there is.
    world.hub("patch", SPARK, "train", "--type=merge", '--patch={"spec": {"suspend": true}}')
    wait_until(lambda: dispatch(world)["phase"] == "nowhere", 90, what="it leaves")
    wait_until(lambda: "status" not in world.hub.get(SPARK, "train"), 60, what="its status is cleared")
    assert not pods_of(second)
    world.hub.delete(SPARK, "train")
    world.hub.delete("propagationpolicies.policy.one.alibabacloud.com", "spark")
