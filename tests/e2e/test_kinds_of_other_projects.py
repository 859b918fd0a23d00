"""Jobs of other projects against their real definitions, without their controllers: whatever a controller would do, the
test does in its name.

What is tried is Tutti's part: the object is stored held, shown, started by a patch that the real schema keeps whole,
guarded while it runs, and forgotten when its status says that it has ended.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import AnyCluster
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, wait_until
from tests.e2e.objects import CONTAINER_SECURITY, GPU, POD_SECURITY, job, pod, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of, reservations
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")

Object = dict[str, Any]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
FLAVOR: Final = "reserved-pool"
POOL: Final = {"e2e.example/pool": "reserved"}
TOLERATION: Final = {"key": "e2e.example/reserved", "operator": "Exists", "effect": "NoSchedule"}
LATER: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind: an object of a gang that asks two GPUs, and what its controller would do."""

    project: str
    kind: str
    """As kubectl takes it."""
    api_version: str
    spec: Callable[[int], Object]
    """The spec for so many GPUs."""
    pod_sets: dict[str, int]
    placed: tuple[tuple[str | int, ...], ...]
    """Where the started object holds labels, node selector and tolerations of its pods: the map that has them, each."""
    growth: tuple[tuple[str, Any], ...]
    """JSON pointers and values that ask more than two GPUs."""
    refusal: str
    """What is said to whoever tries."""
    controller: str
    """The service account that makes its pods, as namespace:name; nobody's where they are not told apart."""
    ended: Object
    """Its status once it has succeeded."""
    status_is_apart: bool = True
    annotations: Callable[[int], dict[str, str]] = field(default=lambda gpus: {})

    @property
    def name(self) -> str:
        """Its kind, for people."""
        return self.kind.partition(".")[0]


def ray(gpus: int) -> Object:
    """Return a RayJob's spec: a head and a worker a GPU."""
    group = {"groupName": "gpu", "replicas": gpus, "minReplicas": gpus, "maxReplicas": gpus}
    workers = group | {"rayStartParams": {}, "template": pod_template(container="ray-worker")}
    head = {"rayStartParams": {}, "template": pod_template(gpus=0, container="ray-head")}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [workers]}
    mode = {"submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
    return mode | {"entrypoint": "python train.py", "rayClusterSpec": cluster}


def spark(gpus: int) -> Object:
    """Return a SparkApplication's spec: a driver and an executor a GPU."""
    security = {"podSecurityContext": POD_SECURITY, "securityContext": CONTAINER_SECURITY}
    one = {"cores": 1, "coreRequest": "100m", "memory": "512m"} | security
    executor = one | {"instances": gpus, "gpu": {"name": GPU, "quantity": 1}}
    program = {"type": "Python", "mode": "cluster", "sparkVersion": "4.0.0", "image": "registry.example/spark:1"}
    return program | {"mainApplicationFile": "local:///train.py", "driver": one, "executor": executor}


def app_wrapper(gpus: int) -> Object:
    """Return an AppWrapper's spec: one Job of a pod a GPU."""
    sets = [{"replicas": gpus, "path": "template.spec.template"}]
    return {"components": [{"podSets": sets, "template": job("inner", gpus, pod_template())}]}


def workflow(gpus: int) -> Object:
    """Return a Workflow's spec; what it asks is said by an annotation."""
    step = {"name": "main", "container": {"image": "registry.example/step:1"}}
    return {"entrypoint": "main", "templates": [step]}


def train_job(gpus: int) -> Object:
    """Return a TrainJob's spec: a node a GPU."""
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}
    return {"runtimeRef": runtime, "trainer": {"numNodes": gpus}}


RUNTIME_JOB: Final = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod_template(container="node")},
    },
}
RUNTIME: Final[Object] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [RUNTIME_JOB]}}},
}
_RAY_CLUSTER: Final = ("spec", "rayClusterSpec")
_TRAINED: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template")

CASES: Final = {
    case.name: case
    for case in (
        Case(
            "ray",
            "rayjob.ray.io",
            "ray.io/v1",
            ray,
            {"head": 1, "gpu": 2},
            (
                (*_RAY_CLUSTER, "headGroupSpec", "template"),
                (*_RAY_CLUSTER, "workerGroupSpecs", 0, "template"),
            ),
            (
                ("/spec/rayClusterSpec/workerGroupSpecs/0/maxReplicas", 3),
                ("/spec/rayClusterSpec/workerGroupSpecs/0/replicas", 3),
            ),
            "pod set gpu would have 3 pods, 2 are reserved",
            "kuberay-system:kuberay-operator",
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
        ),
        Case(
            "spark",
            "sparkapplication.sparkoperator.k8s.io",
            "sparkoperator.k8s.io/v1beta2",
            spark,
            {"driver": 1, "executor": 2},
            (("spec", "driver"), ("spec", "executor")),
            (("/spec/executor/instances", 3),),
            "pod set executor would have 3 pods, 2 are reserved",
            "spark-operator:spark-operator-controller",
            {"applicationState": {"state": "COMPLETED"}, "driverInfo": {}},
        ),
        Case(
            "appwrapper",
            "appwrapper.workload.codeflare.dev",
            "workload.codeflare.dev/v1beta2",
            app_wrapper,
            {"train-0": 2},
            (("spec", "components", 0, "podSetInfos", 0),),
            (("/spec/components/0/podSets/0/replicas", 3), ("/spec/components/0/template/spec/parallelism", 3)),
            "pod set train-0 would have 3 pods, 2 are reserved",
            "appwrapper-system:appwrapper-controller-manager",
            {"phase": "Succeeded"},
        ),
        Case(
            "argo",
            "workflow.argoproj.io",
            "argoproj.io/v1alpha1",
            workflow,
            {"main": 1},
            (),
            (("/metadata/annotations/kube-queue~1min-resources", f"cpu: 1\n{GPU}: 3"),),
            "3 nvidia.com/gpu, 2 is reserved",
            "",
            {"phase": "Succeeded"},
            status_is_apart=False,
            annotations=lambda gpus: {"kube-queue/min-resources": f"cpu: 1\n{GPU}: {gpus}"},
        ),
        Case(
            "trainer",
            "trainjob.trainer.kubeflow.org",
            "trainer.kubeflow.org/v1alpha1",
            train_job,
            {"node": 2},
            (("spec", "runtimePatches", 0, *_TRAINED),),
            (("/spec/trainer/numNodes", 3),),
            "field is immutable",  # said of spec.trainer by its own definition
            "kubeflow-system:kubeflow-trainer-controller-manager",
            {
                "conditions": [
                    {"type": "Complete", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": LATER}
                ]
            },
        ),
    )
}


def manifest(case: Case, gpus: int) -> Object:
    """Return an object of the kind as its owner writes it."""
    kind = {"rayjob": "RayJob", "sparkapplication": "SparkApplication", "appwrapper": "AppWrapper"}
    kind |= {"workflow": "Workflow", "trainjob": "TrainJob"}
    metadata = {"name": "train", "labels": {names.QUEUE_LABELS[0]: QUEUE}, "annotations": case.annotations(gpus)}
    return {"apiVersion": case.api_version, "kind": kind[case.name], "metadata": metadata, "spec": case.spec(gpus)}


@pytest.fixture
def case(request: pytest.FixtureRequest, cluster: AnyCluster, admin: Kubectl) -> Case:
    """The kind, defined on the cluster and seen by Tutti; its queue has room for one GPU on labelled nodes."""
    chosen = CASES[request.param]
    cluster.install_kinds(chosen.project)
    flavor = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    admin.apply(flavor | {"spec": {"nodeLabels": POOL, "tolerations": [TOLERATION]}})
    set_quota(admin, 1)
    local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": QUEUE}}
    admin.apply(local | {"spec": {"clusterQueue": f"{admin.namespace}-{QUEUE}"}})
    if chosen.project == "trainer":
        wait_until(lambda: admin.apply(RUNTIME), what="training runtimes are served")
    return chosen


def set_quota(admin: Kubectl, gpus: int) -> None:
    """Give the queue so many GPUs, and cores and memory for all."""
    queue = cluster_queue_of(f"{admin.namespace}-{QUEUE}", gpus)
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"].append("memory")
    group["flavors"][0]["name"] = FLAVOR
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "100Gi"})
    admin.apply(queue)


def at(obj: Any, path: tuple[str | int, ...]) -> Any:
    """Return what lies at a path; nothing where it does not lead."""
    for key in path:
        try:
            obj = obj[key]
        except (KeyError, IndexError, TypeError):
            return None
    return obj


def workload_of(owner: Kubectl, case: Case) -> Object:
    """Return the object's workload."""
    uid = owner.get(case.kind, "train")["metadata"]["uid"]
    return wait_until(lambda: owner.items("workloads", f"kueue.x-k8s.io/job-uid={uid}"), what="it is shown")[0]


def row_of(owner: Kubectl, case: Case) -> list[str]:
    """Return the object's queue, cluster queue and whether it is admitted, as the table has them."""
    lines = owner("get", "workloads").splitlines()
    return next((line.split()[1:4] for line in lines if line.startswith(case.name)), [])


def refused_patch(owner: Kubectl, case: Case, patch: Object) -> str:
    """Send a merge patch that must be refused, and return what its user reads."""
    return owner.refused("patch", case.kind, "train", "--type=merge", f"--patch={json.dumps(patch)}")


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_a_job_of_another_project_is_held_started_and_guarded_through_its_real_definition(
    case: Case, cluster: AnyCluster, owner: Kubectl, admin: Kubectl
) -> None:
    wanted = manifest(case, gpus=2)
    wait_until(lambda: owner.apply(wanted), what="its kind is served")
    held = applied_again(owner, case, wanted)
    assert held["spec"]["suspend"] is True, "it is stored suspended"
    message = refused_patch(owner, case, {"spec": {"suspend": False}})
    assert f"waits in queue {QUEUE}, and only Tutti un-suspends it" in message
    refused_patch(owner, case, {"metadata": {"labels": {names.QUEUE_LABELS[0]: None}}, "spec": {"suspend": False}})
    asks = f"asks for 2 {GPU}"
    wait_until(lambda: any(asks in each for each in told(owner, "train", "Queued")), what="it says why it waits")
    waiting = workload_of(owner, case)
    assert {s["name"]: s["count"] for s in waiting["spec"]["podSets"]} == case.pod_sets
    assert condition(waiting, "Admitted") == "False"

    set_quota(admin, 2)
    wait_until(lambda: owner.get(case.kind, "train")["spec"]["suspend"] is False, what="it is started")
    started = applied_again(owner, case, wanted)
    uid = started["metadata"]["uid"]
    for path in case.placed:
        place = at(started, path)
        assert place is not None, f"the real definition keeps {path}"
        labels = place.get("labels") or at(place, ("metadata", "labels"))
        scheduling = place if "nodeSelector" in place else place["spec"]
        assert labels[names.GANG_LABEL] == uid
        assert scheduling["nodeSelector"] == POOL
        assert TOLERATION in scheduling["tolerations"]
    # Any reconciler answers, also one that follows.
    wait_until(lambda: condition(workload_of(owner, case), "Admitted") == "True", what="it is shown as admitted")
    wait_until(lambda: row_of(owner, case) == [QUEUE, f"{admin.namespace}-{QUEUE}", "True"], what="and in the table")
    assert list(reservations(admin)) == ["train"]

    growth = json.dumps([{"op": "replace", "path": path, "value": value} for path, value in case.growth])
    refused = owner.refused("patch", case.kind, "train", "--type=json", f"--patch={growth}")
    assert case.refusal in refused
    if case.controller:
        only_its_controller_makes_its_pods(case, cluster, owner, admin, started)

    status = json.dumps({"status": case.ended})
    apart = ["--subresource=status"] if case.status_is_apart else []
    admin("patch", case.kind, "train", "--type=merge", f"--patch={status}", *apart)
    wait_until(lambda: not reservations(admin), what="its quota is returned")
    wait_until(lambda: condition(workload_of(owner, case), "Finished") == "True", what="it is shown as finished")


def applied_again(owner: Kubectl, case: Case, wanted: Object) -> Object:
    """Return the stored object, which stays as it is when its owner applies it again, also where lists are replaced."""
    before = owner.get(case.kind, "train")
    owner.apply(wanted)
    after = owner.get(case.kind, "train")
    assert after["spec"] == before["spec"]
    return after


def only_its_controller_makes_its_pods(
    case: Case, cluster: AnyCluster, owner: Kubectl, admin: Kubectl, started: Object
) -> None:
    """Make a pod of the gang in the name of the kind's controller; nobody else may."""
    labels = at(started, case.placed[0]).get("labels") or at(started, (*case.placed[0], "metadata", "labels"))
    member = pod("train-0", pod_template(gpus=0 if "head" in case.pod_sets or "driver" in case.pod_sets else 1))
    reference = {"apiVersion": case.api_version, "kind": started["kind"], "name": "train", "controller": True}
    member["metadata"] |= {
        "labels": {key: labels[key] for key in (names.GANG_LABEL, names.POD_SET_LABEL)},
        "ownerReferences": [reference | {"uid": started["metadata"]["uid"]}],
    }
    forged = owner.refused("create", "-f", "-", stdin=yaml.safe_dump(member))
    assert "only its controller creates its pods" in forged
    namespace, _, account = case.controller.partition(":")
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    admin.in_namespace(namespace).apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}
    )
    admin("create", "rolebinding", "controller", "--clusterrole=edit", f"--serviceaccount={case.controller}")
    config = cluster.kubeconfig_for_service_account(namespace, account)
    controller = Kubectl(owner.program, config, owner.namespace)
    wait_until(lambda: controller.create(member), what="its rights are in force")
    wait_until(lambda: workload_of(owner, case)["status"]["pods"] is not None, what="it is counted")
    second = member | {"metadata": member["metadata"] | {"name": "train-1"}}
    if case.pod_sets[labels[names.POD_SET_LABEL]] == 1:
        with pytest.raises(KubectlError, match="reservation for 1 pod"):
            controller.create(second)
    controller.delete("pod", "train-0")


@pytest.mark.parametrize("case", ["appwrapper"], indirect=True)
def test_an_app_wrapper_of_thousands_of_pod_sets_is_refused(case: Case, owner: Kubectl) -> None:
    """Each process took a second and a gigabyte to read it."""
    wide = manifest(case, gpus=1)
    wide["spec"]["components"][0]["podSets"] *= 4_000
    told = "are more than 512 pod sets"
    said = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(wide))
    wait_until(lambda: told in said(), what="it is refused")


@pytest.mark.parametrize("case", ["appwrapper"], indirect=True)
def test_an_app_wrapper_that_asks_nodes_for_a_list_is_refused(case: Case, owner: Kubectl) -> None:
    """Its definition lets any value in, and the engine could not take the gang: it waited, and no reason was given."""
    wrong = manifest(case, gpus=1)
    wrong["spec"]["components"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": []}
    told = "spec.nodeSelector.pool: []: is not the value of a label"
    said = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(wrong))
    wait_until(lambda: told in said(), what="it is refused")
