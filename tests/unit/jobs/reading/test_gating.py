"""Which objects wait for Tutti."""

import copy

import pytest

from tests.unit.jobs.objects_of_kinds import kind_of, load, record_of, special
from webhook.core.notation import names
from webhook.jobs.pricing.context import context_from
from webhook.jobs.reading.gating import GateRule, gated_by, queue_label

CONTROLLER = "system:serviceaccount:jobset-system:jobset-controller-manager"


def gate(obj, namespace_labels=None, mapped=(), username=None):
    return gated_by(kind_of(obj), obj, namespace_labels or {}, mapped, username=username)


def unlabelled(name="job"):
    obj = load(name)
    del obj["metadata"]["labels"]
    return obj


@pytest.mark.parametrize("label", names.QUEUE_LABELS)
def test_a_queue_label_gates(label):
    obj = unlabelled()
    obj["metadata"]["labels"] = {label: "q"}
    assert gate(obj) == GateRule.QUEUE_LABEL
    obj["metadata"]["labels"] = {label: ""}
    assert gate(obj) is None


def test_our_own_queue_label_wins_over_kueues():
    assert queue_label({"metadata": {"labels": dict(zip(names.QUEUE_LABELS, "ab", strict=True))}}) == "a"


@pytest.mark.parametrize("name", ["job", "jobset", "pytorchjob", "tfjob"])
@pytest.mark.parametrize("label", names.POD_GROUP_LABELS)
def test_a_pod_group_label_on_a_pod_template_gates_without_a_queue(name, label):
    obj = unlabelled(name)
    spec = obj["spec"]
    template = {
        "job": lambda: spec["template"],
        "jobset": lambda: spec["replicatedJobs"][1]["template"]["spec"]["template"],
        "pytorchjob": lambda: spec["pytorchReplicaSpecs"]["Worker"]["template"],
        "tfjob": lambda: spec["tfReplicaSpecs"]["PS"]["template"],
    }[name]()
    template.setdefault("metadata", {}).setdefault("labels", {})[label] = "group"
    assert gate(obj) == GateRule.POD_GROUP


@pytest.mark.parametrize("label", names.POD_GROUP_LABELS)
def test_a_pod_group_label_that_a_train_job_patches_into_its_runtime_gates(label):
    obj = special("trainjob")
    del obj["metadata"]["labels"]
    assert gate(obj) is None
    template = {"metadata": {"labels": {label: "group"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    patch = {"manager": "users/own", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    obj["spec"]["runtimePatches"].append(patch)
    assert gate(obj) == GateRule.POD_GROUP
    context = context_from(training_runtimes=[special("runtime")])
    assert record_of(obj, context).gang.pod_group == "group"


def test_a_marked_or_mapped_namespace_gates_everything_in_it():
    assert gate(unlabelled()) is None
    assert gate(unlabelled(), {names.GATED_NAMESPACE: "true"}) == GateRule.NAMESPACE
    assert gate(unlabelled(), {names.GATED_NAMESPACE: "false"}) is None
    assert gate(unlabelled(), mapped={"research": "leaf"}) == GateRule.NAMESPACE


def test_a_child_belongs_to_its_owners_gang_only_if_the_owners_controller_writes_it():
    obj = load("job")
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    assert gate(obj) is None
    assert gate(obj, username=CONTROLLER) is None
    assert gate(obj, username="alice") is not None
    owner["controller"] = False
    assert gate(obj) is not None
    owner |= {"controller": True, "kind": "CronJob", "apiVersion": "batch/v1"}
    assert gate(obj) is not None


FOREIGN = (
    ("batch/v1", "CronJob", load("job")),
    ("kubeflow.org/v1beta1", "Trial", load("job")),
    ("kubeflow.org/v1beta1", "Trial", load("pytorchjob")),
    ("batch/v1", "Job", load("job")),
    ("keda.sh/v1", "ScaledJob", load("job")),
    ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", load("sparkapplication")),
    ("argoproj.io/v1alpha1", "CronWorkflow", special("workflow")),
)
"""Controllers that are no gang of ours, and what they make."""


@pytest.mark.parametrize(
    ("api_version", "kind", "made"), FOREIGN, ids=[f"{kind} makes {made['kind']}" for _, kind, made in FOREIGN]
)
def test_what_a_foreign_controller_makes_is_a_gang_of_its_own(api_version, kind, made):
    obj = copy.deepcopy(made)
    controller = {"apiVersion": api_version, "kind": kind, "name": "nightly", "uid": "u", "controller": True}
    obj["metadata"]["ownerReferences"] = [controller]
    assert gate(obj) is not None
    assert record_of(obj).owner is None
    assert record_of(obj).is_ours


def test_a_job_of_a_foreign_manager_is_left_alone():
    obj = load("job")
    obj["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert gate(obj) is None


def test_a_malformed_object_is_still_gated_by_its_label():
    obj = load("job")
    obj["spec"] = {"template": 5}
    assert gate(obj) is not None
