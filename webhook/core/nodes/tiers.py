"""Volcano's HyperNodes as labels of nodes: of each tier, the one that a node is in, by itself or below another.

So all that is done with racks and blocks is done with tiers. The labels are made up: kube-scheduler is told the nodes.
Of two HyperNodes of one tier that have the same node, the first by name counts. One that is below itself has no more
nodes for that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from webhook.core.model.policy import HyperNode
from webhook.core.nodes.node import NodeRecord
from webhook.core.notation import names


def tier_label(tier: int) -> str:
    """Return the label that the nodes of HyperNodes of one tier are given."""
    return f"{names.HYPER_NODE_TIER}{tier}"


def is_tier(label: str) -> bool:
    """Return whether no node bears a label, because it stands for a tier."""
    return label.startswith(names.HYPER_NODE_TIER)


class Tiers:
    """All HyperNodes of one cluster."""

    def __init__(self, hyper_nodes: Iterable[HyperNode] = ()) -> None:
        self.hyper_nodes = tuple(hyper_nodes)
        self._by_name = {each.name: each for each in self.hyper_nodes}
        self._naming: dict[str, list[str]] = {}
        """Node to the HyperNodes that name it."""
        self._above: dict[str, list[str]] = {}
        """HyperNode to those that it is below."""
        for each in self.hyper_nodes:
            for node in each.nodes:
                self._naming.setdefault(node, []).append(each.name)
            for below in each.below:
                self._above.setdefault(below, []).append(each.name)
        self._by_rule = [each for each in self.hyper_nodes if each.patterns or each.selectors]
        self._labels: dict[tuple[str, ...], Mapping[str, str]] = {}
        """HyperNodes that have the same nodes to the labels of these: one for all of them."""

    def labelled(self, node: NodeRecord) -> NodeRecord:
        """Return ``node`` with a label for each tier, in place of those that it was given before."""
        own = {key: value for key, value in node.labels.items() if not is_tier(key)}
        by_rule = (each.name for each in self._by_rule if _has(each, node.name, own))
        direct = tuple(sorted({*self._naming.get(node.name, ()), *by_rule}))
        labels = self._labels_of(direct) if direct else {}
        return node if not labels and len(own) == len(node.labels) else replace(node, labels={**own, **labels})

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


def _has(hyper_node: HyperNode, node: str, labels: Mapping[str, str]) -> bool:
    return any(pattern.search(node) for pattern in hyper_node.patterns) or any(
        selector.matches(labels) for selector in hyper_node.selectors
    )
