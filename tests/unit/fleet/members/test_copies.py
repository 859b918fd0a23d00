"""The copy that a member gets of a hub's job: of what its owner wrote, all that is the same job there."""

from typing import Any, Final

import pytest

from webhook.core.fleet.dispatch import NOWHERE
from webhook.core.fleet.permit import permit_text
from webhook.core.notation import names
from webhook.fleet.members.copies import copy_made, made_for_a_copy
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
