"""Compute-class rules and the catalog they come from."""

from importlib import resources

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import load
from webhook.core.notation import names
from webhook.errors import WrongInput
from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.jobs.compute_class.catalog import Mode, Rule, parse, shipped
from webhook.jobs.compute_class.rules import check
from webhook.jobs.kinds.registry import KINDS

CATALOG = shipped()
MUTATING = CATALOG.model_copy(
    update={"rules": {**CATALOG.rules, Rule.SHAPE: Mode.MUTATE, Rule.GUARANTEED: Mode.MUTATE}}
)
SERIES = CATALOG.labels.model


def template(compute_class, cpu="2", memory="4Gi", gpus=None, labels=None, **spec):
    limits = {key: value for key, value in (("cpu", cpu), ("memory", memory), ("nvidia.com/gpu", gpus)) if value}
    labels = {CATALOG.labels.compute_class: compute_class, **(labels or {})} if compute_class else labels
    containers = [{"name": "main", "resources": {"requests": dict(limits), "limits": limits}}]
    return {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}


def broken(*templates, pod_group=False, catalog=CATALOG):
    named = [(f"spec.templates[{index}]", item) for index, item in enumerate(templates)]
    return {finding.rule: finding for finding in check(named, catalog, pod_group)}


def test_the_walkthroughs_gpu_hpn_gang_passes():
    labels = {SERIES: "example-model", names.POD_GROUP_LABELS[0]: "demo-job-podgroup"}
    assert broken(template("gpu-hpn", "1", "1Gi", "1", labels), pod_group=True) == {}


def test_nothing_is_said_about_pods_without_the_label():
    assert broken(template(None, gpus="3", hostNetwork=True), pod_group=True) == {}


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (template("gpu-max"), Rule.KNOWN_CLASS),
        (template("performance", labels={CATALOG.labels.qos: "spot"}), Rule.KNOWN_QOS),
        (template("gpu-hpn", gpus="1", labels={CATALOG.labels.qos: "best-effort", SERIES: "x"}), Rule.CLASS_QOS),
        (template("gpu", gpus="1"), Rule.GPU_MODEL),
        (template("gpu-hpn", gpus="1"), Rule.GPU_MODEL),
        (template("gpu", gpus="1", labels={SERIES: "H9000"}), Rule.KNOWN_MODEL),
        (template("gpu", gpus="3", labels={SERIES: "A10"}), Rule.GPU_COUNT),
        (template("gpu-hpn", gpus="5", labels={SERIES: "any"}), Rule.GPU_COUNT),
        (template("general-purpose", gpus="1"), Rule.GPU_IN_CPU_CLASS),
        (template("general-purpose", "3", "2Gi"), Rule.SHAPE),
        (template("gpu", "2", "9Gi", "1", {SERIES: "T4"}), Rule.SHAPE),
        (template("performance", "99", "1Gi"), Rule.SHAPE),
        (template("general-purpose", hostPID=True), Rule.HOST_NAMESPACES),
    ],
)
def test_each_rule_finds_what_breaks_it(item, rule):
    found = broken(item)
    assert list(found) == [rule]
    assert found[rule].mode is CATALOG.rules[rule]
    assert found[rule].problem.path.startswith("spec.templates[0]")
    assert found[rule].problem.fix


def test_the_model_may_be_a_node_selector():
    assert broken(template("gpu", "2", "4Gi", "1", nodeSelector={SERIES: "A10"})) == {}


def test_a_gpu_pod_whose_requests_are_below_its_limits_is_told():
    item = template("gpu-hpn", gpus="1", labels={SERIES: "m"})
    item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    found = broken(item, catalog=MUTATING)[Rule.GUARANTEED]
    resources = found.changes["/spec/containers/0/resources"]
    assert resources["requests"] == resources["limits"]


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.DENY])
def test_only_mode_mutate_corrects_what_it_finds(mode):
    rules = {**CATALOG.rules, Rule.SHAPE: mode}
    found = broken(template("general-purpose", "3", "2Gi"), catalog=CATALOG.model_copy(update={"rules": rules}))
    assert (found[Rule.SHAPE].mode, found[Rule.SHAPE].changes) == (mode, {})
    assert broken(template("general-purpose", "3", "2Gi"), catalog=MUTATING)[Rule.SHAPE].changes


def test_cpu_annotations_do_not_belong_on_gpu_pods():
    item = template("gpu-hpn", gpus="1", labels={SERIES: "m"})
    item["metadata"]["annotations"] = {CATALOG.cpu_only_annotations[0]: "amd"}
    assert list(broken(item)) == [Rule.CPU_ANNOTATION]


def test_a_gang_has_one_class_and_an_unlabelled_pod_has_the_default_one():
    assert broken(template("performance"), template("performance")) == {}
    assert list(broken(template("performance"), template(None))) == [Rule.ONE_CLASS]
    assert broken(template("general-purpose"), template(None)) == {}


def test_only_classes_that_schedule_pod_groups_take_gangs():
    found = broken(template("performance"), pod_group=True)
    assert list(found) == [Rule.POD_GROUP_CLASS]
    assert "gpu-hpn" in found[Rule.POD_GROUP_CLASS].problem.fix


def test_pods_of_one_pod_group_share_a_priority():
    labels = {SERIES: "m"}
    pair = (template("gpu-hpn", labels=labels), template("gpu-hpn", labels=labels, priorityClassName="high"))
    assert broken(*pair) == {}
    assert list(broken(*pair, pod_group=True)) == [Rule.ONE_PRIORITY]


def test_a_rule_that_is_off_says_nothing():
    off = CATALOG.model_copy(update={"rules": {**CATALOG.rules, Rule.SHAPE: Mode.OFF}})
    assert broken(template("general-purpose", "3", "2Gi"), catalog=off) == {}


@given(st.integers(1, 64_000), st.integers(1, 300_000), st.sampled_from(["general-purpose", "gpu"]))
def test_a_raised_shape_is_a_listed_one_and_never_smaller(cpu_millis, memory_mib, compute_class):
    gpus = "1" if compute_class == "gpu" else None
    item = template(compute_class, f"{cpu_millis}m", f"{memory_mib}Mi", gpus, {SERIES: "GU8TF"})
    finding = broken(item, catalog=MUTATING).get(Rule.SHAPE)
    if finding is None or not finding.changes:
        return
    patch = [{"op": "add", "path": path, "value": value} for path, value in finding.changes.items()]
    raised = jsonpatch.apply_patch(item, patch)
    assert broken(raised, catalog=MUTATING) == {}


@pytest.mark.parametrize(
    "odd", [{}, {"metadata": 5}, {"metadata": {"labels": {CATALOG.labels.compute_class: 7}}, "spec": []}]
)
def test_odd_templates_do_not_raise(odd):
    check([("", odd)], CATALOG, True)


def test_templates_of_a_job_can_be_handed_over_as_they_are_read():
    assert check([("spec.template", load("job")["spec"]["template"])], CATALOG, False) == []
    assert "Job.batch" in KINDS


GOOD = (resources.files("webhook.jobs.compute_class") / compute_class_catalog.SHIPPED).read_text()


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("  shape: warn", "  shape: maybe", "rules.shape"),
        ("  shape: warn", "  shapes: warn", "rules.shapes"),
        ("  known-class: deny", "  known-class: mutate", ""),
        ("8: {184: 1800}", "8: {184: many}", "models.L20X.8"),
        ("8: {184: 1800}", "8: {184: 9-3}", "models.L20X.8"),
        ("8: {184: 1800}", "8: {184: 1-1000000000}", "models.L20X.8"),
        ("8: {184: 1800}", "eight: {184: 1800}", "models.L20X.eight"),
        ("default: general-purpose", "default: cheap", ""),
        ("schema: 1", "schema: 2", "schema"),
        ("schema: 1", "schema: [", ""),
        ("schema: 1", "surprise: 1\nschema: 1", "surprise"),
        ("gpu-hpn: {qos: [default]", "gpu-hpn: {qos: [spot]", ""),
    ],
)
def test_a_bad_catalog_says_where(old, new, place):
    assert old in GOOD
    with pytest.raises(WrongInput) as refusal:
        parse(GOOD.replace(old, new), "table.yaml")
    paths = [problem.path for problem in refusal.value.problems]
    assert any(path.startswith("table.yaml") and place in path for path in paths), paths
    assert all(problem.fix for problem in refusal.value.problems)


def test_a_missing_file_is_a_wrong_input(tmp_path):
    with pytest.raises(WrongInput):
        compute_class_catalog.load(tmp_path / "nowhere.yaml")
