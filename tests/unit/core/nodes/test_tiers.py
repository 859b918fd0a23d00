"""HyperNodes as labels of nodes: by name, by rule, below each other, whatever their order, and without end."""

import re
from itertools import permutations

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
