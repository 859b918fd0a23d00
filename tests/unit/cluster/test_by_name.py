"""Pods without our label, by the name of the gang that their controller wrote on them."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger, Reservation, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.plain_pods.pod import decode
from webhook.jobs.reading.job import bystander
from webhook.jobs.reading.record import Bystander

BY_NAME = [kind for kind in KINDS.values() if kind.name_label]


def entry(kind: str, name: str = "old", **changes: Any) -> Reservation:
    gang = Gang("uid", kind, "ns", name, "q", (PodSet("main", 2, PodPrice()),))
    return replace(reserve(gang, "q", gang.counts, {}, epoch=1, now_seconds=1.0), **{"adopted": True, **changes})


def pod(name: str, labels: dict[str, str], owner: str = "", namespace: str = "ns") -> bytes:
    metadata: dict[str, Any] = {"name": name, "uid": name, "namespace": namespace, "resourceVersion": "1"}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "kind": "Any", "name": "any", "controller": True}]
    return orjson.dumps({"metadata": {**metadata, "labels": labels}, "spec": {"containers": []}})


def view_of(*entries: Reservation) -> View:
    view = View()
    view.set_ledger(Ledger(1, 1, {each.uid: each for each in entries}))
    return view


def test_only_what_makes_jobs_alone_or_writes_uids_needs_no_name() -> None:
    assert {kind.key for kind in KINDS.values()} - {kind.key for kind in BY_NAME} == {"Job.batch"}


@pytest.mark.parametrize("kind", BY_NAME, ids=lambda kind: kind.key)
def test_orphans_hold_the_charge_of_the_gang_that_they_name_until_they_are_gone(kind: Any) -> None:
    view, label = view_of(entry(kind.key)), kind.name_label
    view.put_pod(decode(pod("orphan", {label: "old"})))
    view.put_pod(decode(pod("of something that nobody knows", {label: "old"}, owner="replica-set")))
    view.put_pod(decode(pod("of another name", {label: "other"})))
    view.put_pod(decode(pod("elsewhere", {label: "old"}, namespace="other")))
    view.put_controller("successor", "ns", "")
    view.put_pod(decode(pod("of a successor", {label: "old"}, owner="successor")))
    assert view.present("ns", "uid") == 2
    for each in ("orphan", "of something that nobody knows"):
        view.drop_pod("ns", each)
    assert view.present("ns", "uid") == 0


@pytest.mark.parametrize("first", ["the Job", "its pods"])
def test_orphans_of_a_job_hold_its_charge_though_it_was_seen_to_go(first: str) -> None:
    """Who reads both just before the Job is gone never saw what owned the pods: only their label tells."""
    view, label = view_of(entry("Job.batch")), "batch.kubernetes.io/controller-uid"
    if first == "the Job":
        view.put_controller("uid", "ns", "", alone=True)
    view.put_pod(decode(pod("orphan", {label: "uid"})))
    view.put_pod(decode(pod("another's", {label: "other"})))
    view.put_pod(decode(pod("elsewhere", {label: "uid"}, namespace="other")))
    view.put_controller("uid", "ns", "", alone=True)
    view.drop_controller("uid")
    assert view.present("ns", "uid") == 1
    view.drop_pod("ns", "orphan")
    assert view.present("ns", "uid") == 0


def test_pods_of_gangs_that_bear_our_label_are_not_told_by_names() -> None:
    view = view_of(entry("PyTorchJob.kubeflow.org", adopted=False))
    view.put_pod(decode(pod("liar", {"training.kubeflow.org/job-name": "old"})))
    assert view.present("ns", "uid") == 0


def test_pods_of_a_workflow_hold_its_charge_though_none_bears_our_label() -> None:
    view = view_of(entry("Workflow.argoproj.io", adopted=False, loose_pods=True))
    view.put_controller("uid", "ns", "")
    view.put_pod(decode(pod("step", {"workflows.argoproj.io/workflow": "old"}, owner="uid")))
    assert view.present("ns", "uid") == 1
    view.drop_controller("uid")
    assert view.present("ns", "uid") == 1


@pytest.mark.parametrize(
    ("parent", "child", "name", "labels"),
    [
        ("RayJob.ray.io", "RayCluster.ray.io", "old-x7k2p", {"ray.io/originated-from-cr-name": "old"}),
        ("TrainJob.trainer.kubeflow.org", "JobSet.jobset.x-k8s.io", "old", {}),
    ],
)
def test_what_stands_between_a_gang_and_its_pods_holds_its_charge(
    parent: str, child: str, name: str, labels: dict[str, str]
) -> None:
    view = view_of(entry(parent))
    document = {"metadata": {"name": name, "uid": "child", "namespace": "ns", "labels": labels}, "spec": {}}
    found: Bystander = bystander(KINDS[child], document)
    view.put_controller(found.uid, found.namespace, "", made_for=found.made_for)
    view.note_made(found.uid, found.named, running=found.running)
    view.put_pod(decode(pod("worker", {}, owner="child")))
    assert view.present("ns", "uid") == 2, "its pod, and it may get others"
    view.drop_pod("ns", "worker")
    assert view.present("ns", "uid") == 1
    view.drop_controller("child")
    assert view.present("ns", "uid") == 0


def test_pods_of_a_ray_job_that_name_its_ray_cluster_alone_are_told_by_who_owned_them() -> None:
    """Its name may begin that of another's cluster as well: it proves nothing."""
    view, cluster, other = view_of(entry("RayJob.ray.io")), {"ray.io/cluster": "old-x7k2p"}, {"ray.io/cluster": "old-b"}
    view.put_controller("uid", "ns", "")
    view.put_controller("child", "ns", "uid")
    view.put_controller("alone", "ns", "")
    view.put_pod(decode(pod("worker", cluster, owner="child")))
    view.put_pod(decode(pod("another's", other, owner="alone")))
    view.drop_controller("child")
    view.put_pod(decode(pod("worker", cluster)))
    view.drop_controller("alone")
    view.put_pod(decode(pod("another's", other)))
    assert view.present("ns", "uid") == 1
    view.drop_controller("uid")
    assert view.present("ns", "uid") == 1
    view.drop_pod("ns", "worker")
    assert view.present("ns", "uid") == 0


def test_what_is_remembered_is_forgotten() -> None:
    view = view_of(entry("PyTorchJob.kubeflow.org"))
    view.put_pod(decode(pod("orphan", {"training.kubeflow.org/job-name": "old"})))
    assert list(view.by_name.gangs(("training.kubeflow.org/job-name=ns/old",))) == ["uid"]
    view.drop_pod("ns", "orphan")
    view.set_ledger(Ledger(1, 2))
    assert vars(view.by_name) == vars(View().by_name)
