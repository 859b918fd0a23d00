"""Objects of all dialects compile to the policy that the cases name, and to all of its problems."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.dialects.reading import cases, quotas, summary
from webhook.core.model.policy import Policy
from webhook.core.quota.tree import QuotaTree
from webhook.dialects.cohort_graph import MOST_LEVELS
from webhook.dialects.compiler import PolicyCompiler, compile_policy

CASES = cases("policies.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_policy(case: dict[str, Any]) -> None:
    policy = compile_policy(case["objects"])
    assert sorted(summary(problem) for problem in policy.problems) == sorted(case.get("problems", []))
    for name, expected in case.get("queues", {}).items():
        _check_queue(policy, name, expected)
    for name, expected in case.get("cohorts", {}).items():
        cohort = policy.cohorts[name]
        assert cohort.parent == expected["parent"]
        assert cohort.weight_millis == expected.get("weight", 1000)
        _check_quotas(quotas(cohort.resource_groups), expected.get("quotas", {}))
    for name, expected in case.get("flavors", {}).items():
        assert list(policy.flavors[name].levels) == expected["levels"]
    assert dict(policy.namespace_queues) == case.get("namespaces", dict(policy.namespace_queues))


def _check_queue(policy: Policy, name: str, expected: dict[str, Any]) -> None:
    queue = policy.queues[name]
    if "cohort" in expected:
        assert queue.cohort == expected["cohort"]
    if "stop" in expected:
        assert queue.stop_policy == expected["stop"]
    if "inactive" in expected:
        wanted = expected["inactive"]
        assert (queue.inactive is None) if wanted is None else (wanted in (queue.inactive or ""))
    if "inactive_reason" in expected:
        assert queue.inactive_reason == expected["inactive_reason"]
    _check_quotas(quotas(queue.resource_groups), expected.get("quotas", {}))


def _check_quotas(found: dict[str, list[float | None]], expected: dict[str, list[float | None]]) -> None:
    assert {resource: found[resource] for resource in expected} == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_no_policy_has_a_cycle_or_an_unnamed_cohort(case: dict[str, Any]) -> None:
    policy = compile_policy(case["objects"])
    for name in [*policy.cohorts, *(queue.cohort for queue in policy.queues.values() if queue.cohort)]:
        seen: list[str] = []
        at: str | None = name
        while at is not None:
            assert at not in seen
            seen.append(at)
            at = policy.cohorts[at].parent


def test_the_thirds_of_the_walkthrough_are_exact() -> None:
    policy = compile_policy(CASES[0]["objects"])
    nominal = [
        flavor.quotas["nvidia.com/gpu"].nominal
        for queue in policy.queues.values()
        for group in queue.resource_groups
        for flavor in group.flavors
    ]
    assert sum(nominal) == 8000


def test_what_did_not_change_is_not_read_again() -> None:
    compiler, objects = PolicyCompiler(), CASES[0]["objects"]
    first = compiler.compile(objects)
    renewed = [*objects[:-1], {**objects[-1], "metadata": {"name": "demo", "resourceVersion": "2"}}]
    second = compiler.compile(renewed)
    assert second == first == compile_policy(objects)
    assert second.queues["research"] is first.queues["research"]
    assert second.queues["demo"] is not first.queues["demo"]
    assert "demo" not in compiler.compile(objects[:-1]).queues


def test_in_a_hub_a_check_that_is_not_there_is_said_not_to_be() -> None:
    (case,) = (each for each in CASES if each["case"] == "a queue with admission checks admits nothing")
    policy = PolicyCompiler(hub=True).compile(case["objects"])
    assert policy.queues["checked"].inactive == "there is no AdmissionCheck provision"
    assert "there is no AdmissionCheck provision" in str(policy.problems)


def _kueue_chain(length: int) -> list[dict[str, Any]]:
    cohorts: list[dict[str, Any]] = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": f"level-{level}"},
            "spec": {"parentName": f"level-{level - 1}"} if level else {},
        }
        for level in range(length)
    ]
    return [
        *cohorts,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "deepest"},
            "spec": {"cohortName": f"level-{length - 1}"},
        },
    ]


def _volcano_chain(length: int) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": f"level-{level}" if level < length else "deepest"},
            "spec": {"parent": f"level-{level - 1}", "capability": {"cpu": 1}} if level else {},
        }
        for level in range(length + 1)
    ]


@pytest.mark.parametrize("chain", [_kueue_chain, _volcano_chain])
def test_a_tree_deeper_than_a_stack_is_read_and_says_where_it_ends(
    chain: Callable[[int], list[dict[str, Any]]],
) -> None:
    policy = compile_policy(chain(2_000))
    QuotaTree(policy)
    assert "levels deep" in (policy.queues["deepest"].inactive or "")


@pytest.mark.parametrize("chain", [_kueue_chain, _volcano_chain])
def test_a_tree_as_deep_as_it_may_be_is_whole(chain: Callable[[int], list[dict[str, Any]]]) -> None:
    policy = compile_policy(chain(MOST_LEVELS - 2))
    assert policy.queues["deepest"].inactive is None
    assert policy.problems == ()


def test_fields_that_nobody_knows_cost_no_more_than_are_told_of() -> None:
    """An object may have as many as it has bytes, and it is read in one turn of the loop."""

    def calls(fields: int) -> int:
        found = 0

        def note(_frame: object, what: str, _argument: object) -> None:
            nonlocal found
            found += what in ("call", "c_call")

        spec = {str(number): "x" for number in range(fields)}
        sys.setprofile(note)
        try:
            policy = compile_policy(
                [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"}, "spec": spec}]
            )
        finally:
            sys.setprofile(None)
        assert len(policy.problems) == 100
        return found

    assert calls(60_000) < 2 * calls(200)
