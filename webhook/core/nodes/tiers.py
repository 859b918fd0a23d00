"""Volcano's HyperNodes as labels of nodes: for each tier, the HyperNode that a node is in, directly or below another.

So everything that works for racks and blocks works for tiers. The labels are made up: kube-scheduler is given the names
of the nodes. If two HyperNodes of one tier have the same node, the first by name counts. A HyperNode that is below
itself gains no nodes by that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from webhook.core.model.policy import HyperNode
from webhook.core.nodes.node import NodeRecord
from webhook.core.notation import names


def tier_label(tier: int) -> str:
    """Return the label that the nodes of HyperNodes of one tier are given."""
    return f"{names.HYPER_NODE_TIER}{tier}"


def is_tier(label: str) -> bool:
    """Return whether no node bears a label, because it stands for a tier."""
    return label.startswith(names.HYPER_NODE_TIER)


@dataclass(slots=True)
class _Seen:
    """What is known of one node."""

    labels: Mapping[str, str]
    """Its own."""
    untried: frozenset[str]
    """HyperNodes of which it is not known yet whether they find it by a rule."""
    found_by: frozenset[str] = frozenset()
    """HyperNodes that do."""
    tiers: Mapping[str, str] = field(default_factory=dict)
    """The labels that it was given."""


class Tiers:
    """All HyperNodes of one cluster, and which nodes are in them.

    A rule is tried once on each node, and again where the rule or the node's labels have changed: hundreds of rules
    on thousands of nodes are millions of trials.
    """

    def __init__(self, hyper_nodes: Iterable[HyperNode] = ()) -> None:
        self.hyper_nodes: tuple[HyperNode, ...] = ()
        self._by_name: dict[str, HyperNode] = {}
        self._naming: dict[str, list[str]] = {}
        """Node to the HyperNodes that name it."""
        self._above: dict[str, list[str]] = {}
        """HyperNode to those that it is below."""
        self._rules: dict[str, HyperNode] = {}
        """Those that find nodes by patterns or labels."""
        self._labels: dict[tuple[str, ...], Mapping[str, str]] = {}
        """HyperNodes that have the same nodes to the labels of these: one for all of them."""
        self._seen: dict[str, _Seen] = {}
        """By node; empty where there are no HyperNodes."""
        self._nodes: dict[tuple[str, str], set[str]] = {}
        """Label of a tier and its value to the nodes that were given it."""
        self.replace(hyper_nodes)

    def replace(self, hyper_nodes: Iterable[HyperNode]) -> None:
        """Make these all HyperNodes that there are. Nodes have to be labelled again after it."""
        self.hyper_nodes = tuple(hyper_nodes)
        self._by_name = {each.name: each for each in self.hyper_nodes}
        self._naming, self._above, self._labels = {}, {}, {}
        for each in self.hyper_nodes:
            for node in each.nodes:
                self._naming.setdefault(node, []).append(each.name)
            for below in each.below:
                self._above.setdefault(below, []).append(each.name)
        before, self._rules = self._rules, {e.name: e for e in self.hyper_nodes if e.patterns or e.selectors}
        changed = frozenset(name for name, each in self._rules.items() if not _same_rules(before.get(name), each))
        gone = before.keys() - self._rules.keys()
        for seen in self._seen.values():
            seen.untried, seen.found_by = seen.untried - gone | changed, seen.found_by - gone - changed

    def trials(self, node: str) -> int:
        """Return how many rules have to be tried to label a node."""
        return len(self._seen[node].untried if node in self._seen else self._rules)

    def labelled(self, node: NodeRecord) -> NodeRecord:
        """Return ``node`` with a label for each tier, in place of those that it was given before."""
        own = {key: value for key, value in node.labels.items() if not is_tier(key)}
        labels = self._tiers_of(node.name, own)
        return node if not labels and len(own) == len(node.labels) else replace(node, labels={**own, **labels})

    def forget(self, node: str) -> None:
        """Drop what is known of a node."""
        if (seen := self._seen.pop(node, None)) is not None:
            self._move(node, seen.tiers, {})

    def nodes_in(self, domain: Mapping[str, str]) -> list[str]:
        """Return the nodes that were given all labels of ``domain``, of which there is one at least."""
        return sorted(set.intersection(*(self._nodes.get(label, set()) for label in domain.items())))

    def _tiers_of(self, node: str, own: Mapping[str, str]) -> Mapping[str, str]:
        seen = self._seen.get(node)
        if seen is None and not self.hyper_nodes:
            return {}
        if seen is None or seen.labels != own:
            tiers = {} if seen is None else seen.tiers
            seen = self._seen[node] = _Seen(own, frozenset(self._rules), tiers=tiers)
        seen.found_by |= {name for name in seen.untried if _has(self._rules[name], node, own)}
        seen.untried = frozenset()
        direct = tuple(sorted({*self._naming.get(node, ()), *seen.found_by}))
        labels = self._labels_of(direct) if direct else {}
        self._move(node, seen.tiers, labels)
        seen.tiers = labels
        return labels

    def _move(self, node: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        for label in before.items() - now.items():
            self._nodes[label].discard(node)
            if not self._nodes[label]:
                # Names of HyperNodes come and go.
                del self._nodes[label]
        for label in now.items() - before.items():
            self._nodes.setdefault(label, set()).add(node)

    def _labels_of(self, direct: tuple[str, ...]) -> Mapping[str, str]:
        if direct not in self._labels:
            found, due = set[str](), list(direct)
            while due:
                name = due.pop()
                if name not in found:
                    found.add(name)
                    due += self._above.get(name, ())
            # Of equal tiers the first by name is written last.
            ordered = sorted(found, reverse=True)
            self._labels[direct] = {tier_label(self._by_name[name].tier): name for name in ordered}
        return self._labels[direct]


def _same_rules(one: HyperNode | None, other: HyperNode) -> bool:
    return one is not None and (one.patterns, one.selectors) == (other.patterns, other.selectors)


def _has(hyper_node: HyperNode, node: str, labels: Mapping[str, str]) -> bool:
    return any(pattern.search(node) for pattern in hyper_node.patterns) or any(
        selector.matches(labels) for selector in hyper_node.selectors
    )
