"""Each rule of Kueue's schemas and webhooks refuses exactly what it forbids, with path, value and fix."""

from typing import Any

import pytest

from tests.unit.dialects.reading import cases, changed
from webhook.core.model.policy import NodeFit
from webhook.dialects.compiler import validate
from webhook.dialects.kueue.objects import compile_object

RULES = cases("kueue_rules.yaml")
ENFORCED = {"metadata.annotations": {"tutti.dev/node-fit": "enforce"}}


@pytest.mark.parametrize("kind", RULES["base"])
def test_a_sound_object_has_no_problems(kind: str) -> None:
    fragment = compile_object(RULES["base"][kind])
    assert fragment.problems == []
    assert fragment.broken is None


@pytest.mark.parametrize("case", RULES["cases"], ids=lambda case: case["rule"])
def test_rule(case: dict[str, Any]) -> None:
    fragment = compile_object(changed(RULES["base"][case["kind"]], case["set"]))
    found = [problem for problem in fragment.problems if problem.path == case["at"]]
    assert [case["says"] in problem.why for problem in found] == [True]
    assert found[0].warning == case.get("warning", False)
    assert found[0].fix
    assert (fragment.broken is None) == case.get("warning", False)


@pytest.mark.parametrize("case", RULES["cases"], ids=lambda case: case["rule"])
def test_the_policy_webhook_refuses_it_too(case: dict[str, Any]) -> None:
    problems = validate(changed(RULES["base"][case["kind"]], case["set"]), [])
    errors = [problem.path for problem in problems if not problem.warning]
    assert (case["at"] in errors) != case.get("warning", False)


def test_a_local_queue_keeps_its_target() -> None:
    stored = RULES["base"]["LocalQueue"]
    moved = changed(stored, {"spec.clusterQueue": "other"})
    problems = [problem for problem in validate(moved, [stored]) if not problem.warning]
    assert [(problem.path, problem.value) for problem in problems] == [("/spec/clusterQueue", "other")]
    assert [problem for problem in validate(stored, [stored]) if not problem.warning] == []


def test_a_local_queue_may_lose_its_target_and_be_given_one() -> None:
    stored = RULES["base"]["LocalQueue"]
    without = changed(stored, {"spec.clusterQueue": None})
    assert [problem for problem in validate(without, [stored]) if not problem.warning] == []
    assert [problem for problem in validate(stored, [without]) if not problem.warning] == []


def test_a_local_queue_may_weigh_less_than_nothing() -> None:
    def weight(text: str) -> int:
        (queue,) = compile_object(
            changed(RULES["base"]["LocalQueue"], {"spec.fairSharing": {"weight": text}})
        ).local_queues
        return queue.weight_millis

    assert [weight("-3"), weight("0"), weight("1n"), weight("2500m")] == [0, 0, 1, 2500]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"metadata.annotations": {"cluster-autoscaler.kubernetes.io/node-group": "cards"}}, NodeFit.OBSERVE),
        ({"metadata.annotations": {"karpenter.sh/nodepool": "cards"}}, NodeFit.OBSERVE),
        ({"spec.nodeLabels": {"karpenter.sh/nodepool": "cards"}}, NodeFit.OBSERVE),
        ({"spec.nodeLabels": {"karpenter.sh/nodepool": "a"}, **ENFORCED}, NodeFit.ENFORCE),
        ({"spec.nodeLabels": {"pool": "cards"}, "metadata.annotations": {"note": "karpenter.sh/nodepool"}}, None),
    ],
    ids=["cluster-autoscaler", "karpenter", "karpenter's label", "enforced all the same", "neither"],
)
def test_a_flavor_whose_nodes_are_made_for_pods_does_not_wait_for_them(
    written: dict[str, Any], found: NodeFit | None
) -> None:
    (flavor,) = compile_object(changed(RULES["base"]["ResourceFlavor"], written)).flavors
    assert flavor.node_fit == found


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort"])
@pytest.mark.parametrize(("groups", "flavors", "resources"), [(5, 52, 1), (5, 1, 52), (1, 9, 57)])
def test_only_a_cluster_queue_bounds_what_its_groups_have_together(
    kind: str, groups: int, flavors: int, resources: int
) -> None:
    covered = [[f"example.com/r{group}-{i}" for i in range(resources)] for group in range(groups)]
    written = [
        {
            "coveredResources": names,
            "flavors": [
                {"name": f"f{group}-{i}", "resources": [{"name": name, "nominalQuota": 1} for name in names]}
                for i in range(flavors)
            ],
        }
        for group, names in enumerate(covered)
    ]
    fragment = compile_object(changed(RULES["base"][kind], {"spec.resourceGroups": written}))
    assert (fragment.broken is None) == (kind == "Cohort")


def checked(flavors: list[str], on_flavors: list[str], check: str = "provision", **spec: Any) -> dict[str, Any]:
    """A queue with these flavors of cpu and a check on some."""
    quota = [{"name": "cpu", "nominalQuota": 1}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota} for name in flavors]}]
    checks = {"admissionChecks": [{"name": check, "onFlavors": on_flavors}]}
    queue = RULES["base"]["ClusterQueue"]
    return {**queue, "spec": {"resourceGroups": groups, "admissionChecksStrategy": checks, **spec}}


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        (checked(["a"], ["gone", "a"], stopPolicy="Hold"), False),
        (checked(["a"], ["gone"]), True),
        (checked(["a"], ["a", "gone"], check="budget"), True),
        (checked(["a", "b"], ["a", "gone"]), True),
    ],
    ids=["something else", "the list", "the check", "the flavors"],
)
def test_a_check_on_a_flavor_long_gone_is_refused_when_that_is_what_changes(
    after: dict[str, Any], refused: bool
) -> None:
    problems = validate(after, [checked(["a"], ["a", "gone"])])
    found = {problem.path: problem.warning for problem in problems if "not a flavor" in problem.why}
    assert len(found) == 1
    assert list(found.values()) == [not refused]


def test_a_flavor_with_a_topology_stays_as_it_is() -> None:
    stored = changed(RULES["base"]["ResourceFlavor"], {"spec.topologyName": "racks"})
    moved = changed(stored, {"spec.nodeLabels": {"pool": "other"}})
    problems = [problem for problem in validate(moved, [stored]) if not problem.warning]
    assert [problem.path for problem in problems] == ["/spec"]
    assert [problem for problem in validate(stored, [stored]) if not problem.warning] == []
    assert [p for p in validate(stored, [RULES["base"]["ResourceFlavor"]]) if not p.warning] == []


def levels(*labels: str) -> dict[str, Any]:
    return changed(RULES["base"]["Topology"], {"spec.levels": [{"nodeLabel": label} for label in labels]})


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (("block", "rack"), ("block",), True),
        (("block", "rack"), ("block", "rack", "kubernetes.io/hostname"), True),
        (("block", "kubernetes.io/hostname"), ("block",), True),
        (("block", "kubernetes.io/hostname"), ("block", "rack", "kubernetes.io/hostname"), False),
        (("block", "rack"), ("block", "rack"), False),
    ],
)
def test_levels_change_only_above_single_nodes(before: tuple[str, ...], after: tuple[str, ...], refused: bool) -> None:
    found = [problem.path for problem in validate(levels(*after), [levels(*before)]) if not problem.warning]
    assert found == (["/spec/levels"] if refused else [])
