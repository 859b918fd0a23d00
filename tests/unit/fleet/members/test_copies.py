"""The copy that a member gets of a hub's job: of what its owner wrote, all that is the same job there."""

from typing import Any, Final

import pytest

from webhook.core.fleet.dispatch import NOWHERE
from webhook.core.fleet.permit import permit_text
from webhook.core.notation import names
from webhook.fleet.members.copies import collected_with, copy_made, made_for_a_copy
from webhook.jobs.kinds.registry import KINDS
from webhook.untyped import paths

OFFERED: Final = NOWHERE.offered(1, "a", "cluster-a")
BY_HUB: Final = {"controller-uid": "1", "job-name": "train", "batch.kubernetes.io/controller-uid": "1"}
MINE: Final = {"controller-uid": "mine", "job-name": "mine", "app": "train"}
OURS: Final = {names.GANG_LABEL: "1", names.POD_SET_LABEL: "main"}
KEPT_SECONDS: Final = "workload.codeflare.dev.appwrapper/successTTLDuration"


def copy_of(key: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the copy of a job of this kind."""
    kind = KINDS[key]
    metadata = {"name": "train", "namespace": "team-a", "uid": "1", "annotations": annotations or {}}
    job = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": metadata, "spec": spec}
    return copy_made(kind, job, "hub", OFFERED)


def template(labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {}}


def test_a_job_gets_its_selector_and_labels_from_its_members_server() -> None:
    made = copy_of(
        "Job.batch", {"selector": {"matchLabels": BY_HUB}, "template": template({**BY_HUB, **OURS, "app": "x"})}
    )
    assert "selector" not in made["spec"]
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "x"}


def test_a_job_whose_owner_made_its_selector_keeps_it_with_the_labels_that_it_selects() -> None:
    selector = {"matchLabels": {"controller-uid": "mine"}}
    made = copy_of("Job.batch", {"manualSelector": True, "selector": selector, "template": template(MINE | OURS)})
    assert made["spec"]["selector"] == selector
    assert made["spec"]["template"]["metadata"]["labels"] == MINE


def test_pods_of_other_kinds_keep_labels_that_no_server_has_written() -> None:
    replicas = {"Worker": {"replicas": 1, "template": template(MINE | OURS)}}
    made = copy_of("PyTorchJob.kubeflow.org", {"runPolicy": {}, "pytorchReplicaSpecs": replicas})
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert worker["metadata"]["labels"] == MINE


def test_a_kind_that_keeps_the_labels_of_its_pods_without_metadata_takes_none_of_ours_along() -> None:
    """They name the hub's object, and a member without a gate would refuse them."""
    made = copy_of("SparkApplication.sparkoperator.k8s.io", {"driver": {"labels": OURS | {"app": "x"}}})
    assert made["spec"]["driver"]["labels"] == {"app": "x"}


def test_a_copy_is_left_to_its_ordinary_controller_whichever_way_its_kind_names_the_hub() -> None:
    made = copy_of("SparkApplication.sparkoperator.k8s.io", {}, {names.MANAGED_BY: names.HUB_MANAGER})
    assert made["metadata"]["annotations"] == {names.OFFER: "1 1.1"}
    assert made["spec"] == {"suspend": True}
    assert copy_of("Job.batch", {"managedBy": names.HUB_MANAGER})["spec"] == {"suspend": True}


@pytest.mark.parametrize(
    ("key", "spec"),
    [
        ("RayJob.ray.io", {"deletionPolicy": "DeleteSelf"}),
        ("RayJob.ray.io", {"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}}}),
        ("RayJob.ray.io", {"ttlSecondsAfterFinished": 5}),
        ("SparkApplication.sparkoperator.k8s.io", {"timeToLiveSeconds": 5}),
        ("AppWrapper.workload.codeflare.dev", {}),
    ],
    ids=str,
)
def test_no_controller_deletes_a_copy_that_has_ended(key: str, spec: dict[str, Any]) -> None:
    """The hub would not see that it has ended, and have it run again."""
    made = copy_of(key, {"entrypoint": "train", **spec}, {KEPT_SECONDS: "5s", "example.com/note": "mine"})
    assert {*made["spec"]} == {"entrypoint", "suspend"}
    kept = KEPT_SECONDS in paths.find_mapping(made, ("metadata", "annotations"))
    assert kept is not key.startswith("AppWrapper")
    assert made["metadata"]["annotations"]["example.com/note"] == "mine"


OFFER: Final = "1 1.1"
PERMITTED: Final = {names.OFFER: OFFER, names.PERMIT: permit_text(OFFER, "copy")}


@pytest.mark.parametrize(
    ("owner", "uid", "annotations", "made"),
    [
        ("RayJob", "copy", PERMITTED, True),
        ("RayJob", "another", PERMITTED, False),
        ("RayJob", "copy", {names.OFFER: OFFER}, False),
        ("RayJob", "", {names.OFFER: OFFER}, False),
        ("RayService", "copy", PERMITTED, False),
        ("", "", PERMITTED, False),
    ],
    ids=str,
)
def test_what_the_controller_of_a_copy_makes_of_it_is_no_copy(
    owner: str, uid: str, annotations: dict[str, str], made: bool
) -> None:
    """KubeRay writes all labels and annotations of a RayJob on its RayCluster."""
    references = [{"apiVersion": "ray.io/v1", "kind": owner, "name": "train", "uid": uid, "controller": True}]
    metadata = {"name": "train-x7k2p", "namespace": "team-a", "uid": "child", "annotations": annotations}
    child = {"metadata": metadata | ({"ownerReferences": references} if owner else {})}
    assert made_for_a_copy(KINDS["RayCluster.ray.io"], child, KINDS) is made


JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
TRAINING: Final = "training.kubeflow.org/job-name"
GOES: Final = "2026-01-01T00:00:00Z"


def pod_of(owner: str, name: str, labels: dict[str, str], gang: str = "copy") -> dict[str, Any]:
    """Return a pod that is being deleted."""
    api_version, _, kind = owner.rpartition(" ")
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "owner", "controller": True}
    told = {names.GANG_LABEL: gang, **labels}
    return {"metadata": {"deletionTimestamp": GOES, "labels": told, "ownerReferences": [reference]}}


MADE: Final = {
    "JobSet": pod_of("batch/v1 Job", "train-w-0", {JOB_SET: "train"}),
    "TrainJob": pod_of("batch/v1 Job", "train-node-0", {JOB_SET: "train"}),
    "MPIJob": pod_of("batch/v1 Job", "train-launcher", {TRAINING: "train"}),
    "SparkApplication": pod_of("v1 Pod", "train-driver", {"sparkoperator.k8s.io/app-name": "train"}),
    "AppWrapper": pod_of(
        "kubeflow.org/v1 PyTorchJob",
        "mine",
        {"workload.codeflare.dev/appwrapper": "train", TRAINING: "mine"},
    ),
    "RayJob": pod_of("ray.io/v1 RayCluster", "train-x7k2p", {"ray.io/cluster": "train-x7k2p"}),
}
"""Of each kind one whose job is gone, and perhaps what that had made."""


@pytest.mark.parametrize("kind", MADE)
def test_a_pod_that_goes_with_what_a_controller_made_for_a_job_is_of_that_job(kind: str) -> None:
    assert (kind, "train") in collected_with(MADE[kind], KINDS.values())
    staying = {"metadata": {**MADE[kind]["metadata"], "deletionTimestamp": None}}
    assert collected_with(staying, KINDS.values()) == set()


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("other", ["train-w", "trai", "train-2", "train-raycluster", "launcher"])
def test_a_pod_is_of_no_job_with_a_similar_name(kind: str, other: str) -> None:
    assert (kind, other) not in collected_with(MADE[kind], KINDS.values())


def test_of_two_jobs_of_which_one_is_named_as_what_the_other_could_make_the_label_says_whose_a_pod_is() -> None:
    pod = pod_of("batch/v1 Job", "train-2-w-0", {JOB_SET: "train-2"})
    assert {name for kind, name in collected_with(pod, KINDS.values()) if kind == "JobSet"} == {"train-2"}


@pytest.mark.parametrize("name", ["train-large", "train-00002"])
def test_what_submits_a_ray_job_is_called_as_that_job(name: str) -> None:
    pod = pod_of("batch/v1 Job", name, {})
    assert ("RayJob", name) in collected_with(pod, KINDS.values())
    assert ("RayJob", "train") not in collected_with(pod, KINDS.values())


@pytest.mark.parametrize("name", ["train-x7k2p", "train-raycluster-x7k2p"])
def test_pods_of_a_ray_job_are_told_by_the_name_that_kuberay_gives_its_cluster(name: str) -> None:
    pod = pod_of("ray.io/v1 RayCluster", name, {"ray.io/cluster": name})
    assert ("RayJob", "train") in collected_with(pod, KINDS.values())
    alone = pod_of("ray.io/v1 RayCluster", name, {"ray.io/cluster": name}, gang="owner")
    assert collected_with(alone, KINDS.values()) == {("RayCluster", name)}, "it is a gang of its own"


def test_a_kind_whose_pods_nothing_stands_between_has_none_by_a_label_that_another_kind_writes_too() -> None:
    found = collected_with(MADE["MPIJob"], KINDS.values())
    assert not [kind for kind, _ in found if kind in ("PyTorchJob", "TFJob")]


@pytest.mark.parametrize("owners", [None, 5, [5], [{"apiVersion": 5, "kind": [], "name": {}, "uid": {}}]])
@pytest.mark.parametrize("labels", [None, 5, {JOB_SET: 5}, {names.GANG_LABEL: []}])
def test_whatever_a_member_says_of_a_pod_ends_nothing(owners: Any, labels: Any) -> None:
    pod = {"metadata": {"deletionTimestamp": GOES, "labels": labels, "ownerReferences": owners}}
    assert collected_with(pod, KINDS.values()) <= {("", "")}
