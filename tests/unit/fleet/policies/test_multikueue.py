"""MultiKueue's objects: where the jobs of a queue may run, and what the objects say of themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.fleet.policies import multikueue
from webhook.fleet.policies.multikueue import Condition, SetUp

PAGE = list(yaml.safe_load_all((Path(__file__).parents[4] / "examples/fleet/multikueue.yaml").read_text()))
WORKER = "multikueue-test-worker1"
FIELDS = ("queues", "local_queues", "checks", "configs", "clusters")
KINDS = ("ClusterQueue", "LocalQueue", "AdmissionCheck", "MultiKueueConfig", "MultiKueueCluster")


def older(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as v1beta1 spells it."""
    spec = dict(obj["spec"])
    if obj["kind"] == "ClusterQueue":
        spec["admissionChecks"] = [each["name"] for each in spec.pop("admissionChecksStrategy")["admissionChecks"]]
    if obj["kind"] == "MultiKueueCluster":
        spec = spec["clusterSource"]
    return {**obj, "apiVersion": "kueue.x-k8s.io/v1beta1", "spec": spec}


def set_up(objects: list[dict[str, Any]]) -> SetUp:
    made: dict[str, dict[str, Any]] = {name: {} for name in FIELDS}
    for field, kind, read in zip(FIELDS, KINDS, multikueue.READERS.values(), strict=True):
        for each in (read(obj) for obj in objects if obj["kind"] == kind):
            if each is not None:
                into = made[field].setdefault(each.namespace, {}) if field == "local_queues" else made[field]
                into[each.name] = each
    return SetUp(**made)


def changed(kind: str, **spec: Any) -> list[dict[str, Any]]:
    return [{**obj, "spec": {**obj["spec"], **spec}} if obj["kind"] == kind else obj for obj in PAGE]


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_the_jobs_of_the_pages_queue_may_run_in_its_worker_alone(version: str) -> None:
    whole = set_up(PAGE if version == "v1beta2" else [older(obj) if "spec" in obj else obj for obj in PAGE])
    assert whole.members_of("default", "user-queue") == {WORKER}
    assert whole.members_of("elsewhere", "user-queue") is None, "the hub has no queues there"
    assert whole.left_out("default", "user-queue", ["m1", WORKER]) == {"m1": multikueue.NOT_NAMED}
    assert whole.clusters[WORKER].names == ("worker1-secret",)
    assert not whole.clusters[WORKER].problem


def test_a_cluster_has_the_labels_that_are_text_and_another_name_has_none() -> None:
    labels = {"zone": "east", "odd": 3}
    held = [
        {**obj, "metadata": {**obj["metadata"], "labels": labels}} if obj["kind"] == "MultiKueueCluster" else obj
        for obj in PAGE
    ]
    assert set_up(held).labels_of(WORKER) == {"zone": "east"}
    assert set_up(PAGE).labels_of(WORKER) == {}
    assert set_up(held).labels_of("from-a-file") is None


class Unwalked(dict[Any, Any]):
    """A map that may be asked, and not walked through."""

    def __iter__(self) -> Any:
        raise AssertionError("it has thousands of entries")


def test_whether_a_namespace_has_queues_is_one_lookup() -> None:
    found = set_up(PAGE)
    whole = replace(found, local_queues=Unwalked(found.local_queues))
    assert whole.has_queues("default")
    assert not whole.has_queues("other")


@pytest.mark.parametrize("kind", ["AdmissionCheck", "MultiKueueConfig"])
def test_a_queue_whose_check_leads_nowhere_has_no_member(kind: str) -> None:
    assert set_up([obj for obj in PAGE if obj["kind"] != kind]).members_of("default", "user-queue") == frozenset()


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_a_queue_that_is_gone_may_have_named_any_member_so_none_is_asked(kind: str) -> None:
    """Somebody deletes it while no webhook answers, and jobs that it had admitted are still offered."""
    other = {**PAGE[2], "metadata": {"namespace": "default", "name": "other"}}
    left = set_up([*(obj for obj in PAGE if obj["kind"] != kind), other])
    assert left.members_of("default", "user-queue") == frozenset()
    said = left.left_out("default", "user-queue", ["m1", WORKER])
    assert said == dict.fromkeys(["m1", WORKER], "is not asked: queue user-queue has no ClusterQueue now")


def test_a_queue_without_a_check_leaves_no_member_out() -> None:
    without = [{**obj, "spec": {}} if obj["kind"] == "ClusterQueue" else obj for obj in PAGE]
    assert set_up(without).left_out("default", "user-queue", ["m1", WORKER]) == {}


SOURCES = {
    "a path": ({"kubeConfig": {"locationType": "Path", "location": "/etc/passwd"}}, "would read a file of the hub"),
    "a profile": ({"clusterProfileRef": {"name": "worker"}}, "is not read"),
    "no Secret": ({"kubeConfig": {}}, "names no Secret"),
    "another Secret's path": ({"kubeConfig": {"location": "../../tutti-system/secrets/tls"}}, "names no Secret"),
    "no text": ({"kubeConfig": {"location": ["worker1-secret"]}}, "names no Secret"),
    "nothing": ({}, "names no Secret"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_cluster_that_would_be_reached_otherwise_is_refused(case: str) -> None:
    source, why = SOURCES[case]
    assert why in set_up(changed("MultiKueueCluster", clusterSource=source)).clusters[WORKER].problem


CHECKS: dict[str, tuple[list[dict[str, Any]], set[str], Condition]] = {
    "all are there": (PAGE, {WORKER}, Condition("True", "Active", "The admission check is active")),
    "some are": (
        changed("MultiKueueConfig", clusters=[WORKER, "gone"]),
        {WORKER},
        Condition("True", "SomeActiveClusters", "Missing clusters: [gone]"),
    ),
    "none is": (
        changed("MultiKueueConfig", clusters=["gone", WORKER]),
        set(),
        Condition("False", "NoUsableClusters", f"Missing clusters: [gone], Inactive clusters: [{WORKER}]"),
    ),
    "it names no config": (
        changed("AdmissionCheck", parameters={"apiGroup": "kueue.x-k8s.io", "kind": "Other", "name": "a"}),
        {WORKER},
        Condition(
            "False",
            "BadConfig",
            "Cannot load the AdmissionChecks parameters: it names no MultiKueueConfig of kueue.x-k8s.io",
        ),
    ),
    "its config is missing": (
        [obj for obj in PAGE if obj["kind"] != "MultiKueueConfig"],
        {WORKER},
        Condition(
            "False",
            "BadConfig",
            "Cannot load the AdmissionChecks parameters: there is no MultiKueueConfig multikueue-test",
        ),
    ),
}


@pytest.mark.parametrize("case", CHECKS)
def test_a_check_says_which_of_its_clusters_can_be_used(case: str) -> None:
    objects, active, said = CHECKS[case]
    whole = set_up(objects)
    assert whole.condition_of_check(whole.checks["sample-multikueue"], active) == said


def test_a_check_of_another_controller_is_left_alone() -> None:
    assert not set_up(changed("AdmissionCheck", controllerName="example.org/other")).checks
