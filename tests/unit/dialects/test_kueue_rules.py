"""Each rule of Kueue's schemas and webhooks refuses exactly what it forbids, with path, value and fix."""

from typing import Any

import pytest

from tests.unit.dialects.reading import cases, changed
from webhook.dialects.kueue import compile_object
from webhook.dialects.merge import validate

RULES = cases("kueue_rules.yaml")


@pytest.mark.parametrize("kind", RULES["base"])
def test_a_sound_object_has_no_problems(kind: str) -> None:
    fragment = compile_object(RULES["base"][kind])
    assert fragment.problems == []
    assert fragment.broken is None


@pytest.mark.parametrize("case", RULES["cases"], ids=lambda case: case["rule"])
def test_rule(case: dict[str, Any]) -> None:
    fragment = compile_object(changed(RULES["base"][case["kind"]], case["set"]))
    found = [problem for problem in fragment.problems if problem.path == case["at"]]
    assert [case["says"] in problem.message for problem in found] == [True]
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


def test_a_flavor_with_a_topology_stays_as_it_is() -> None:
    stored = changed(RULES["base"]["ResourceFlavor"], {"spec.topologyName": "racks"})
    moved = changed(stored, {"spec.nodeLabels": {"pool": "other"}})
    problems = [problem for problem in validate(moved, [stored]) if not problem.warning]
    assert [problem.path for problem in problems] == ["/spec"]
    assert [problem for problem in validate(stored, [stored]) if not problem.warning] == []
    assert [p for p in validate(stored, [RULES["base"]["ResourceFlavor"]]) if not p.warning] == []
