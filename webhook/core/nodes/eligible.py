"""On which nodes pods of a shape could ever run, whatever runs there now: at a glance, or one by one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import OUTSIDE_AFFINITY, WITHOUT_LABEL, Shape
from webhook.core.notation import amounts
from webhook.core.notation.amounts import Amounts

ELIGIBLE_MAX: Final = 16
"""Shapes of which this is kept; the one asked for longest ago goes first."""


class Largest:
    """The most of each resource that any one of some nodes has to give, when nothing runs there."""

    def __init__(self, nodes: Mapping[str, NodeRecord]) -> None:
        """``nodes`` are by name; ``changed`` is to be told of each change."""
        self._nodes = nodes
        self._known: Amounts | None = None

    @property
    def amounts(self) -> Amounts:
        """By resource."""
        if self._known is None:
            self._known = {}
            for node in self._nodes.values():
                self._known = amounts.maximum(self._known, node.capacity)
        return self._known

    def changed(self, before: NodeRecord | None, now: NodeRecord | None) -> None:
        """Take note that a node came, went, or is another than it was."""
        if now is None or (before is not None and before.capacity != now.capacity):
            self._known = None
        elif before is None and self._known is not None:
            self._known = amounts.maximum(self._known, now.capacity)

    def might_take(self, shape: Shape) -> bool:
        """Return whether some node could be large enough for a pod of a shape; False is certain, and costs nothing."""
        return all(amount <= self.amounts.get(name, 0) for name, amount in shape.requests)

    def scarce(self, shape: Shape) -> str:
        """Return the resource of which one pod asks the largest share of what the largest node has."""
        return max(shape.requests, key=lambda asked: (self.share(*asked), asked[0]))[0]

    def share(self, resource: str, amount: int) -> float:
        """Return which share ``amount`` is of what the largest node has of ``resource``."""
        largest = self.amounts.get(resource, 0)
        return amount / largest if largest else float("inf")


@dataclass(slots=True)
class Eligible:
    """What the nodes' own records say to a shape."""

    admitted: dict[str, None] = field(default_factory=dict)
    """Nodes that may take its pods."""
    large: set[str] = field(default_factory=set)
    """Those of them that hold a pod when nothing else runs there."""
    empty: dict[str, int] = field(default_factory=dict)
    """How many pods each node holds when nothing else runs there, also those that keep them out for now."""
    kept_out: Counter[str] = field(default_factory=Counter)
    """What keeps its pods off all other nodes, and how many of these."""

    @property
    def no_such_node(self) -> bool:
        """No node bears the labels that it asks for, so that no room will ever do."""
        return bool(self.kept_out) and not self.admitted and all(map(is_for_good, self.kept_out))


def is_for_good(why: str) -> bool:
    """Return whether what keeps pods off a node are its labels: cordons, taints and faults may go."""
    return why.startswith((WITHOUT_LABEL, OUTSIDE_AFFINITY))


def eligible(
    shape: Shape, nodes: Mapping[str, NodeRecord], names: Sequence[str], verdict: Sequence[str | None]
) -> Eligible:
    """Return what all ``nodes`` say to a shape: by ``names``, what keeps its pods away for good."""
    found = Eligible(kept_out=Counter(filter(None, verdict)))
    for_good = {why for why in found.kept_out if is_for_good(why)}
    for name, why in zip(names, verdict, strict=True):
        if why in for_good:
            continue
        found.empty[name] = count = shape.fits(nodes[name].capacity)
        if why is None:
            found.admitted[name] = None
            if count:
                found.large.add(name)
    return found
