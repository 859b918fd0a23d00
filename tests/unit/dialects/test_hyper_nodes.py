"""HyperNode objects: what they come to, and what is wrong with one is told and leaves the others as they are."""

from typing import Any

import pytest

from webhook.core.model.policy import HyperNode, LabelSelector
from webhook.dialects.compiler import compile_policy


def hyper_node(name: str, *members: Any, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name}
    body = {"tier": 1, "members": list(members), **spec}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": metadata, "spec": body}


def member(kind: str = "Node", **selector: Any) -> dict[str, Any]:
    return {"type": kind, "selector": selector}


def test_members_are_named_found_in_names_found_by_labels_or_hyper_nodes() -> None:
    leaf = hyper_node(
        "s0",
        member(exactMatch={"name": "n0"}),
        member(regexMatch={"pattern": "^gpu-[0-9]+$"}),
        member(labelMatch={"matchLabels": {"rack": "r"}}),
        member(labelMatch={}),
    )
    above = hyper_node("a", member("HyperNode", exactMatch={"name": "s0"}), tier=2, tierName="spine")
    policy = compile_policy([leaf, above])
    assert policy.problems == ()
    assert policy.hyper_nodes == (
        HyperNode("a", 2, "spine", below=frozenset({"s0"})),
        HyperNode("s0", 1, "", frozenset({"n0"}), policy.hyper_nodes[1].patterns, (LabelSelector({"rack": "r"}),)),
    )
    assert [bool(each.search("gpu-7")) for each in policy.hyper_nodes[1].patterns] == [True]
    assert policy.hyper_nodes == compile_policy([above, leaf]).hyper_nodes


@pytest.mark.parametrize(
    ("pattern", "node", "found"),
    [
        (r"(?i)^RACK[[:digit:]]+\z", "rack12", True),
        (r"(?i)^RACK[[:digit:]]+\z", "rack12\n", False),
        ("rack", "in-rack-7", True),
        # It takes an engine that goes back and tries again some thousand years.
        ("^(r+)+$", "r" * 100 + "-", False),
    ],
)
def test_a_pattern_is_one_of_gos_and_takes_no_longer_than_a_name_is_long(pattern: str, node: str, found: bool) -> None:
    policy = compile_policy([hyper_node("s0", member(regexMatch={"pattern": pattern}))])
    assert [bool(each.search(node)) for each in policy.hyper_nodes[0].patterns] == [found]


@pytest.mark.parametrize(
    ("wrong", "path", "why"),
    [
        (hyper_node("s", member(exactMatch={"name": "n"}), tier=None), "/spec/tier", "is missing"),
        (hyper_node("s", member(exactMatch={"name": "n"}), tier=-1), "/spec/tier", "-1"),
        (hyper_node("s", member(exactMatch={})), "/spec/members/0/selector/exactMatch/name", "is missing"),
        (hyper_node("s", member(exactMatch="n")), "/spec/members/0/selector/exactMatch", "is not an object"),
        (hyper_node("s"), "/spec/members", "0"),
        (hyper_node("s", member("Rack", exactMatch={"name": "n"})), "/spec/members/0/type", "is not a type of member"),
        (hyper_node("s", member()), "/spec/members/0/selector", "names 0 of"),
        (
            hyper_node("s", member(exactMatch={"name": "n"}, labelMatch={})),
            "/spec/members/0/selector",
            "names 2 of",
        ),
        (hyper_node("s", member(regexMatch={"pattern": "("})), "/spec/members/0/selector/regexMatch/pattern", "("),
        (
            hyper_node("s", member(regexMatch={"pattern": "\ud800"})),
            "/spec/members/0/selector/regexMatch/pattern",
            "it is not text",
        ),
        (
            hyper_node("s", member(regexMatch={"pattern": "n" * 257})),
            "/spec/members/0/selector/regexMatch/pattern",
            "has 257 characters",
        ),
        (
            hyper_node("s", member("HyperNode", regexMatch={"pattern": "s"})),
            "/spec/members/0/selector/regexMatch",
            "does not find HyperNodes",
        ),
    ],
)
def test_a_mistake_is_told_where_it_is_and_leaves_one_out(wrong: dict[str, Any], path: str, why: str) -> None:
    right = hyper_node("t", member(exactMatch={"name": "n"}))
    policy = compile_policy([wrong, right])
    assert [each.name for each in policy.hyper_nodes] == ["t"]
    assert any(found.path == f"HyperNode s#{path}" and why in str(found) for found in policy.problems), policy.problems
