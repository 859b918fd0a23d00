"""HyperNodes as labels of nodes: by name, by rule, below each other, whatever their order, and without end."""

import re
from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis.strategies import DataObject, data, lists, sampled_from

from webhook.core.model.policy import HyperNode, LabelSelector
from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.tiers import Tiers, is_tier, tier_label

ONE, TWO, THREE = (tier_label(tier) for tier in (1, 2, 3))
TREE = (
    HyperNode("s0", 1, nodes=frozenset({"a0", "a1"})),
    HyperNode("s1", 1, patterns=(re.compile("^b[0-9]$"),)),
    HyperNode("s2", 1, selectors=(LabelSelector({"rack": "c"}),)),
    HyperNode("s4", 2, below=frozenset({"s0", "s1"})),
    HyperNode("s5", 2, below=frozenset({"s2", "s9"})),
    HyperNode("s6", 3, nodes=frozenset({"d0"}), below=frozenset({"s4", "s5"})),
)

OTHERS = (
    HyperNode("s0", 1, patterns=(re.compile("^[ac]"),)),
    HyperNode("s1", 2, nodes=frozenset({"a0"}), patterns=(re.compile("1$"),)),
    HyperNode("s2", 1, selectors=(LabelSelector({"rack": "d"}),)),
    HyperNode("s4", 2, patterns=(re.compile("^d"),), below=frozenset({"s2"})),
)
NAMES = ("a0", "a1", "b1", "c", "d0")


def tiers_of(hyper_nodes: tuple[HyperNode, ...], name: str, **labels: str) -> dict[str, str]:
    found = Tiers(hyper_nodes).labelled(NodeRecord(name, labels=labels))
    assert labels.items() <= found.labels.items()
    return {key: value for key, value in found.labels.items() if is_tier(key)}


def test_a_node_is_in_one_hyper_node_of_each_tier_above_it() -> None:
    for hyper_nodes in permutations(TREE):
        assert tiers_of(hyper_nodes, "a1") == {ONE: "s0", TWO: "s4", THREE: "s6"}
    assert tiers_of(TREE, "b7") == {ONE: "s1", TWO: "s4", THREE: "s6"}
    assert tiers_of(TREE, "x", rack="c") == {ONE: "s2", TWO: "s5", THREE: "s6"}
    assert tiers_of(TREE, "d0") == {THREE: "s6"}
    assert tiers_of(TREE, "b77") == tiers_of(TREE, "x", rack="d") == {}


def test_of_two_of_one_tier_the_first_by_name_counts_and_who_is_below_itself_is_no_trouble() -> None:
    both = (HyperNode("t", 1, nodes=frozenset({"n"})), HyperNode("s", 1, nodes=frozenset({"n"})))
    assert tiers_of(both, "n") == tiers_of(both[::-1], "n") == {ONE: "s"}
    ring = (
        HyperNode("s", 1, nodes=frozenset({"n"}), below=frozenset({"t"})),
        HyperNode("t", 2, below=frozenset({"s", "t"})),
    )
    assert tiers_of(ring, "n") == {ONE: "s", TWO: "t"}


def test_a_node_that_is_labelled_anew_keeps_no_tier_that_it_had() -> None:
    before = Tiers(TREE).labelled(NodeRecord("a1", labels={"zone": "z"}))
    assert Tiers(TREE).labelled(before) == before
    assert Tiers(TREE[1:]).labelled(before) == NodeRecord("a1", labels={"zone": "z"})
    bare = NodeRecord("x", labels={"zone": "z"})
    assert Tiers(TREE).labelled(bare) is bare


class Counted:
    """A pattern that counts how often it is tried."""

    def __init__(self, text: str) -> None:
        self.text, self.tried = text, 0

    def search(self, text: str, /) -> object:
        self.tried += 1
        return re.search(self.text, text)


def test_a_rule_is_tried_once_on_a_node_until_one_of_them_changes() -> None:
    old, new = Counted("^a"), Counted("^b")
    tiers = Tiers((HyperNode("s0", 1, patterns=(old,)),))
    nodes = [NodeRecord(f"{letter}{number}") for letter in "ab" for number in range(5)]
    for _ in range(3):
        assert [tiers.labelled(node).labels for node in nodes] == [{ONE: "s0"}] * 5 + [{}] * 5
    assert old.tried == 10
    assert sum(tiers.trials(node.name) for node in nodes) == 0
    tiers.replace((*tiers.hyper_nodes, HyperNode("s1", 1, patterns=(new,))))
    assert sum(tiers.trials(node.name) for node in nodes) == 10
    assert [tiers.labelled(node).labels for node in nodes] == [{ONE: "s0"}] * 5 + [{ONE: "s1"}] * 5
    assert (old.tried, new.tried) == (10, 10)
    relabelled = replace(nodes[0], labels={"zone": "z"})
    assert tiers.labelled(relabelled).labels == {"zone": "z", ONE: "s0"}
    assert (old.tried, new.tried) == (11, 11)
    tiers.forget("a1")
    assert tiers.trials("a1") == 2
    tiers.replace(())
    assert tiers.labelled(relabelled) is relabelled


@given(data())
def test_nodes_labelled_by_what_changed_are_as_if_all_rules_were_tried(draw: DataObject) -> None:
    tiers, nodes = Tiers(), dict[str, NodeRecord]()
    for _ in range(8):
        what = draw.draw(sampled_from(("hyper nodes", "node", "gone")))
        if what == "hyper nodes":
            tiers.replace(draw.draw(lists(sampled_from(TREE + OTHERS), unique_by=lambda each: each.name)))
            nodes = {name: tiers.labelled(node) for name, node in nodes.items()}
        elif what == "gone":
            tiers.forget(name := draw.draw(sampled_from(NAMES)))
            nodes.pop(name, None)
        else:
            node = NodeRecord(draw.draw(sampled_from(NAMES)), labels=draw.draw(sampled_from(({}, {"rack": "c"}))))
            nodes[node.name] = tiers.labelled(node)
        fresh = Tiers(tiers.hyper_nodes)
        assert nodes == {name: fresh.labelled(node) for name, node in nodes.items()}
        for tier, name in ((ONE, "s0"), (ONE, "s1"), (TWO, "s4"), (THREE, "s6")):
            there = sorted(each.name for each in nodes.values() if each.labels.get(tier) == name)
            assert tiers.nodes_in({tier: name}) == there
            both = [each for each in there if nodes[each].labels.get(TWO) == "s4"]
            assert tiers.nodes_in({tier: name, TWO: "s4"}) == both


def test_nothing_is_kept_of_hyper_nodes_that_are_gone() -> None:
    tiers = Tiers()
    for number in range(5):
        tiers.replace([HyperNode(f"leaf-{number}", 1, nodes=frozenset({"n"}))])
        tiers.labelled(NodeRecord("n"))
    # What is kept is no part of any answer.
    assert list(tiers._nodes) == [(ONE, "leaf-4")]
    assert tiers.nodes_in({ONE: "leaf-4"}) == ["n"]
    tiers.forget("n")
    assert not tiers._nodes
