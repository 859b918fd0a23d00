"""ElasticQuotaTree: its documented rules hold, and its leaves are found by namespace, name and kubectl."""

import copy
import re
from typing import Any

import pytest

from tests.unit.dialects.reading import cases, changed, quotas
from webhook.core.model.policy import Policy
from webhook.dialects import elastic_quota_tree
from webhook.dialects.compiler import compile_policy

RULES = cases("elastic_quota_tree_rules.yaml")
TREE: dict[str, Any] = RULES["base"]


def test_a_sound_tree_has_no_problems() -> None:
    assert elastic_quota_tree.compile_object(TREE).problems == []


@pytest.mark.parametrize("case", RULES["cases"], ids=lambda case: case["rule"])
def test_rule(case: dict[str, Any]) -> None:
    fragment = elastic_quota_tree.compile_object(changed(TREE, case["set"]))
    found = [problem for problem in fragment.problems if problem.path == case["at"]]
    assert [case["says"] in problem.why for problem in found] == [True]
    assert found[0].warning == case.get("warning", False)
    assert found[0].fix
    assert (fragment.broken is None) == case.get("warning", False)


@pytest.mark.parametrize("case", [c for c in RULES["cases"] if c["at"].startswith("/spec/root/")],
                         ids=lambda case: case["rule"])  # fmt: skip
def test_a_broken_tree_still_governs_its_namespaces(case: dict[str, Any]) -> None:
    policy = compile_policy([changed(TREE, case["set"])])
    broken = not case.get("warning", False)
    assert "b" not in policy.namespace_queues or policy.queue_of("b", None) in policy.queues
    for namespace in policy.namespace_queues:
        queue = policy.queues[policy.namespace_queues[namespace]]
        assert (queue.inactive is not None) == broken


def test_minimums_and_maximums_become_nominal_and_limits() -> None:
    policy = compile_policy([TREE])
    assert quotas(policy.queues["root/eng/eng-a"].resource_groups)["cpu"] == [10, 10, None]
    assert quotas(policy.queues["root/eng/eng-b"].resource_groups)["cpu"] == [5, 10, 2]
    assert quotas(policy.cohorts["root/eng"].resource_groups)["cpu"] == [5, 10, None]
    assert quotas(policy.cohorts["root"].resource_groups)["cpu"] == [20, None, None]
    assert quotas(policy.queues["root/ops"].resource_groups) == {
        "cpu": [0, None, None],
        "memory": [0, None, None],
        "tutti.dev/max-jobs": [0, 2, None],
    }


def test_a_leaf_that_nothing_limits_does_not_declare_the_resource() -> None:
    tree = changed(TREE, {"spec.root.min": {}, "spec.root.max": {}})
    policy = compile_policy([tree])
    assert quotas(policy.queues["root/ops"].resource_groups) == {"tutti.dev/max-jobs": [0, 2, None]}
    assert quotas(policy.queues["root/eng/eng-a"].resource_groups) == {"cpu": [10, 10, None]}
    assert policy.queues["root/ops"].ignores_undeclared


def test_fractions_written_as_numbers_are_exact() -> None:
    tree = changed(TREE, {"spec.root.children.1.max": {"nvidia.com/gpu": 4.8}})
    assert quotas(compile_policy([tree]).queues["root/ops"].resource_groups)["nvidia.com/gpu"] == [0, 4.8, None]


def test_a_limit_beyond_32_bits_is_a_limit() -> None:
    tree = changed(TREE, {"spec.root.children.1.max": {"memory": "2Gi"}})
    assert quotas(compile_policy([tree]).queues["root/ops"].resource_groups)["memory"] == [0, 2**31, None]


def test_the_root_alone_is_a_queue() -> None:
    tree = changed(TREE, {"spec.root": {"max": {"cpu": 4}, "min": {"cpu": 4}, "namespaces": ["a"]}})
    policy = compile_policy([tree])
    assert quotas(policy.queues["root"].resource_groups) == {"cpu": [4, None, None]}
    assert (policy.queues["root"].cohort, policy.queue_of("a", None), dict(policy.cohorts)) == (None, "root", {})


def test_a_leaf_is_found_by_namespace_and_by_its_names_but_not_by_strangers() -> None:
    policy = compile_policy([TREE])
    name = elastic_quota_tree.queue_object_name("root/eng/eng-a")
    assert policy.queue_of("aa", None) == "root/eng/eng-a"
    assert policy.queue_of("a", "eng-a") == "root/eng/eng-a"
    assert policy.queue_of("a", name) == "root/eng/eng-a"
    assert policy.queue_of("b", "eng-a") is None
    assert policy.queue_of("elsewhere", None) is None


def test_a_leaf_without_namespaces_is_open_to_those_who_name_it() -> None:
    tree: dict[str, Any] = copy.deepcopy(TREE)
    tree["spec"]["root"]["children"].append({"name": "open", "max": {"cpu": 1}})
    assert compile_policy([tree]).queue_of("anywhere", "open") == "root/open"


@pytest.mark.parametrize("path", ["root", "root/child-2", "root/Team_A/überlang", "root/" + "x" * 100, "root/a.b"])
def test_a_queue_object_has_a_dns_name_that_never_changes(path: str) -> None:
    name = elastic_quota_tree.queue_object_name(path)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert name == elastic_quota_tree.queue_object_name(path)
    assert name != elastic_quota_tree.queue_object_name(path + "x")


def test_the_walkthrough_s_queue_is_called_as_there_but_for_its_last_letters() -> None:
    assert elastic_quota_tree.queue_object_name("root/child-2").startswith("root-child-2-")
    assert isinstance(compile_policy([TREE]), Policy)


def test_a_kueue_flavor_of_the_trees_flavor_name_is_warned_of() -> None:
    pinned = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "default"},
        "spec": {"nodeLabels": {"pool": "a"}},
    }
    policy = compile_policy([TREE, pinned])
    assert policy.flavors["default"].node_labels == {"pool": "a"}
    assert [problem.warning for problem in policy.problems] == [True]
    assert "ties its gangs to nodes" in policy.problems[0].why


def test_a_tree_with_a_flavor_waits_for_it() -> None:
    tree = changed(TREE, {"spec.root.attributes": {"resourceflavors": "spot"}})
    policy = compile_policy([tree])
    assert policy.queues["root/ops"].inactive == "there is no ResourceFlavor 'spot'"
