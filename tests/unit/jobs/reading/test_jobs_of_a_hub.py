"""In a hub a job belongs to a member from its creation, and its record says whether one may run it."""

from typing import Any

import pytest

from webhook.core.fleet.dispatch import NOWHERE, DispatchPhase
from webhook.core.fleet.text import encode
from webhook.core.notation import names
from webhook.fleet.members.copies import placed_by_hub
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, of_hub
from webhook.jobs.patches.marking import marked, stripped
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.gating import for_a_member, managed_by_other
from webhook.jobs.reading.job import read
from webhook.untyped.editing import put
from webhook.untyped.paths import find

IN_HUB = of_hub(KINDS)
OFFERED = NOWHERE.offered(1, "a", "cluster-a")


def pytorch_job(record: str | None = None, **run_policy: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    metadata = {"name": "train", "namespace": "team-a", "uid": "1"}
    notes = {} if record is None else {"annotations": {names.DISPATCH: record}}
    replicas = {"Master": {"replicas": 1, "template": template}}
    return {"metadata": metadata | notes, "spec": {"runPolicy": run_policy, "pytorchReplicaSpecs": replicas}}


@pytest.mark.parametrize(
    ("record", "phase"),
    [
        (None, DispatchPhase.NOWHERE),
        (encode(NOWHERE), DispatchPhase.NOWHERE),
        (encode(OFFERED), DispatchPhase.OFFERED),
        (encode(OFFERED.granted("copy", "7")), DispatchPhase.GRANTED),
        (encode(OFFERED.granted("copy", "7").recalled("over")), DispatchPhase.RECALLED),
        ("edited by hand", DispatchPhase.GRANTED),
    ],
)
def test_a_record_says_whether_a_member_may_run_it_and_one_that_says_nothing_that_it_may(
    record: str | None, phase: DispatchPhase
) -> None:
    job = pytorch_job(record)
    assert read(IN_HUB["PyTorchJob.kubeflow.org"], job, NO_CONTEXT, IN_HUB).dispatch is phase
    assert read(KINDS["PyTorchJob.kubeflow.org"], job, NO_CONTEXT).dispatch is DispatchPhase.NOWHERE, "not in a hub"


@pytest.mark.parametrize(("written", "stored"), [({}, names.HUB_MANAGER), ({"managedBy": "me"}, "me")])
def test_a_job_that_names_no_manager_gets_the_hub(written: dict[str, str], stored: str) -> None:
    made = marked(IN_HUB["PyTorchJob.kubeflow.org"], pytorch_job(**written))
    assert made["spec"]["runPolicy"]["managedBy"] == stored
    assert "managedBy" not in marked(KINDS["PyTorchJob.kubeflow.org"], pytorch_job())["spec"]["runPolicy"]


PLACED = [kind for kind in IN_HUB.values() if kind.given_manager]


def plain(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    notes = {} if annotations is None else {"annotations": annotations}
    return {"metadata": {"name": "train", "namespace": "team-a", "uid": "1"} | notes, "spec": {}}


@pytest.mark.parametrize("kind", PLACED, ids=lambda kind: kind.kind)
def test_whatever_a_job_names_is_read_as_it_was_marked(kind: JobKind) -> None:
    made = marked(kind, plain())
    assert for_a_member(kind, made)
    assert placed_by_hub(kind, made)
    assert read(kind, made, NO_CONTEXT, IN_HUB).for_a_member
    assert not read(KINDS[kind.key], made, NO_CONTEXT).for_a_member, "not in a hub"
    for before in (plain(), marked(KINDS[kind.key], plain())):
        assert not for_a_member(kind, before), "it was stored before"
        assert not placed_by_hub(kind, before)


SPARK = "SparkApplication.sparkoperator.k8s.io"


@pytest.mark.parametrize("written", [names.HUB_MANAGER, "me", ""])
def test_a_kind_without_managed_by_is_given_to_the_hub_by_an_annotation_that_nobody_else_writes(written: str) -> None:
    theirs = plain({names.MANAGED_BY: written})
    assert marked(IN_HUB[SPARK], theirs)["metadata"]["annotations"] == {names.MANAGED_BY: names.HUB_MANAGER}
    assert marked(KINDS[SPARK], theirs)["metadata"]["annotations"] == {}, "not in a hub"
    for kind in (IN_HUB[SPARK], KINDS[SPARK]):
        assert not managed_by_other(kind, theirs), "it would lead past the gate"


def test_it_stays_when_tutti_is_taken_off_for_a_member_may_have_the_job() -> None:
    made = marked(IN_HUB[SPARK], plain())
    assert stripped(IN_HUB[SPARK], made, NO_CONTEXT, suspend=False) == made | {"spec": {"suspend": False}}


def test_a_kind_whose_suspension_leaves_its_pods_or_that_has_none_is_placed_by_no_hub() -> None:
    left = {kind.kind for kind in KINDS.values() if not kind.dispatchable}
    assert {kind.kind for kind in KINDS.values()} - {kind.kind for kind in PLACED} == left - {"Job"}
    assert left == {"Workflow", "Job"}, "Volcano's"


@pytest.mark.parametrize("kind", [each for each in PLACED if each.managed_by], ids=lambda kind: kind.kind)
def test_a_job_that_names_its_ordinary_controller_gets_the_hub_too(kind: JobKind) -> None:
    """The definition of a TrainJob writes its controller into each that names none, before any webhook is asked."""
    assert kind.managed_by is not None
    for manager in kind.managers:
        written = put({"metadata": {"name": "train", "namespace": "team-a"}, "spec": {}}, kind.managed_by, manager)
        assert find(marked(kind, written), kind.managed_by) == names.HUB_MANAGER
        assert find(marked(KINDS[kind.key], written), kind.managed_by) == manager, "not in a hub"


@pytest.mark.parametrize(
    ("record", "finished"),
    [
        (None, "Failed"),
        (encode(OFFERED), None),
        (encode(OFFERED.granted("copy", "7")), "Failed"),
        (encode(OFFERED.granted("copy", "7").recalled("over")), "Failed"),
        (encode(OFFERED.withdrawn("stopped")), "Failed"),
    ],
)
def test_a_status_that_an_operator_in_the_hub_writes_ends_no_job_that_is_offered(
    record: str | None, finished: str | None
) -> None:
    notes = {names.MANAGED_BY: names.HUB_MANAGER} | ({} if record is None else {names.DISPATCH: record})
    job = {
        "metadata": {"name": "train", "namespace": "team-a", "uid": "1", "annotations": notes},
        "status": {"applicationState": {"state": "FAILED"}},
    }
    kind = "SparkApplication.sparkoperator.k8s.io"
    assert read(IN_HUB[kind], job, NO_CONTEXT, IN_HUB).finished == finished
    assert read(KINDS[kind], job, NO_CONTEXT).finished == "Failed", "not in a hub"
