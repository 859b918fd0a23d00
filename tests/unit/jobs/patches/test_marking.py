"""Holding a job at creation, and taking everything of ours off again."""

import copy
import json

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import NAMES, apply, kind_of, load, record_of
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches import marking
from webhook.jobs.patches.marking import gate_pod, marked
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.untyped import paths

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text("ab~/", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", min_size=1, max_size=3), inner),
    max_leaves=6,
)
LABELS = st.none() | st.dictionaries(
    st.sampled_from(["app", "a/b~c", names.GANG_LABEL, names.POD_SET_LABEL]), st.sampled_from(["x", "pending"])
)
ANNOTATIONS = st.none() | st.dictionaries(st.sampled_from(["note", "a/b~c", *sorted(OWN_ANNOTATIONS)]), st.just("y"))


@st.composite
def pod_templates(draw):
    metadata = {key: value for key, value in (("labels", draw(LABELS)), ("annotations", draw(ANNOTATIONS))) if value}
    template = {"spec": {"containers": [{"name": "main", "resources": draw(st.just({}) | st.just({"limits": {}}))}]}}
    if draw(st.booleans()):
        template["metadata"] = metadata
    return template


@st.composite
def jobs(draw):
    metadata = {"name": "j", "namespace": "n", "annotations": draw(ANNOTATIONS), "labels": {"app": "x"}}
    spec = {"template": draw(pod_templates())}
    if draw(st.booleans()):
        spec["suspend"] = draw(st.none() | st.booleans())
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@st.composite
def pytorchjobs(draw):
    roles = draw(st.lists(st.sampled_from(["Master", "Worker"]), min_size=1, unique=True))
    spec = {"pytorchReplicaSpecs": {role: {"replicas": 2, "template": draw(pod_templates())} for role in roles}}
    if draw(st.booleans()):
        spec["runPolicy"] = draw(
            st.none() | st.just({}) | st.just({"suspend": True}) | st.just({"cleanPodPolicy": "All"})
        )
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize("name", NAMES)
def test_mark_holds_each_kind_and_labels_every_pod_template(name):
    obj = load(name)
    kind = kind_of(obj)
    held = apply(obj, marking.mark(kind, obj))
    record = record_of(held)
    assert record.suspended
    assert record.marked
    assert record.templates
    for template in record.templates:
        assert template.marks[names.GANG_LABEL] == names.GANG_PENDING
        assert template.marks[names.POD_SET_LABEL] == template.pod_set


@pytest.mark.parametrize("name", NAMES)
def test_marking_what_is_marked_changes_nothing(name):
    obj = load(name)
    kind = kind_of(obj)
    assert marking.mark(kind, apply(obj, marking.mark(kind, obj))) == []


def test_mark_makes_missing_parents_and_nothing_more():
    obj = load("pytorchjob")
    pending = {names.GANG_LABEL: "pending"}
    assert marking.mark(kind_of(obj), obj) == [
        {
            "op": "add",
            "path": "/spec/pytorchReplicaSpecs/Worker/template/metadata",
            "value": {"labels": {**pending, names.POD_SET_LABEL: "worker"}},
        },
        {
            "op": "add",
            "path": "/spec/pytorchReplicaSpecs/Master/template/metadata",
            "value": {"labels": {**pending, names.POD_SET_LABEL: "master"}},
        },
        {"op": "add", "path": "/spec/runPolicy", "value": {"suspend": True}},
    ]


def test_mark_overwrites_a_forged_gang_label_and_drops_forged_annotations():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.ADMISSION: "forged", names.HOLD: "forged", "keep": "me"}
    obj["spec"]["template"]["metadata"] = {
        "labels": {names.GANG_LABEL: "another-uid"},
        "annotations": {names.LEDGER_VERSION: "9.9"},
    }
    held = apply(obj, marking.mark(kind_of(obj), obj))
    assert held["metadata"]["annotations"] == {"keep": "me"}
    assert held["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING
    assert names.LEDGER_VERSION not in held["spec"]["template"]["metadata"]["annotations"]


def test_mark_escapes_json_pointers():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.ADMISSION: "forged"}
    paths_written = [operation["path"] for operation in marking.mark(kind_of(obj), obj)]
    assert "/metadata/annotations/tutti.dev~1admission" in paths_written


@given(jobs() | pytorchjobs())
def test_mark_is_idempotent_and_its_patch_does_what_it_says(obj):
    kind = KINDS["Job.batch"] if obj["kind"] == "Job" else KINDS["PyTorchJob.kubeflow.org"]
    before = copy.deepcopy(obj)
    patch = marking.mark(kind, obj)
    assert obj == before
    held = jsonpatch.apply_patch(obj, patch)
    assert held == marked(kind, obj)
    assert marking.mark(kind, held) == []
    assert paths.find(held, kind.suspend) is True


@given(jobs() | pytorchjobs())
def test_strip_after_mark_leaves_the_job_as_its_owner_wrote_it(obj):
    kind = KINDS["Job.batch"] if obj["kind"] == "Job" else KINDS["PyTorchJob.kubeflow.org"]
    held = marked(kind, obj)
    suspended = paths.find(obj, kind.suspend) is True
    restored = jsonpatch.apply_patch(held, marking.strip(kind, held, NO_CONTEXT, suspend=suspended))
    assert (paths.find(restored, kind.suspend) is True) is suspended
    assert owners_part(without_suspend(restored, kind.suspend)) == owners_part(without_suspend(obj, kind.suspend))
    assert "tutti.dev" not in json.dumps(restored)


def owners_part(node):
    """What is left without anything of ours and without empty maps, which the API server drops."""
    if isinstance(node, dict):
        cleaned = {key: owners_part(value) for key, value in node.items() if not key.startswith("tutti.dev/")}
        return {key: value for key, value in cleaned.items() if value not in (None, {}, [])}
    return [owners_part(item) for item in node] if isinstance(node, list) else node


def without_suspend(obj, path):
    changed = copy.deepcopy(obj)
    parent = changed
    for key in path[:-1]:
        parent = parent.get(key) or {}
    parent.pop(path[-1], None)
    return changed


@given(JSON)
def test_mark_never_raises_and_always_applies(odd):
    template = {"metadata": odd, "spec": {}}
    wholes = (odd, {"spec": odd}, {"metadata": odd, "spec": {"template": odd}}, {"spec": {"template": template}})
    for obj in wholes:
        if isinstance(obj, dict):
            patch = marking.mark(KINDS["Job.batch"], obj)
            jsonpatch.apply_patch(json.loads(json.dumps(obj)), patch)


def test_a_plain_pod_is_gated_once():
    pod = {"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "other"}]}}
    held = jsonpatch.apply_patch(pod, gate_pod(pod, "gang-1"))
    assert held["spec"]["schedulingGates"] == [{"name": "other"}, {"name": names.SCHEDULING_GATE}]
    assert held["metadata"]["labels"] == {names.GANG_LABEL: "gang-1"}
    assert gate_pod(held, "gang-1") == []


def test_a_plain_pod_brings_nothing_of_ours_along():
    own = {"labels": {names.GANG_LABEL: "forged", names.POD_SET_LABEL: "main"}, "annotations": {names.REQUEUE: "{}"}}
    held = jsonpatch.apply_patch({"metadata": own, "spec": {}}, gate_pod({"metadata": own, "spec": {}}, "gang-1"))
    assert held["metadata"] == {"labels": {names.GANG_LABEL: "gang-1"}, "annotations": {}}


def test_a_pod_that_names_its_node_is_labelled_and_not_gated():
    pod = {"metadata": {}, "spec": {"nodeName": "node-7"}}
    held = jsonpatch.apply_patch(pod, gate_pod(pod, "gang-1"))
    assert "schedulingGates" not in held["spec"]
    assert held["metadata"]["labels"] == {names.GANG_LABEL: "gang-1"}
