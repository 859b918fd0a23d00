"""On which nodes pods of a shape could ever run, whatever runs there now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import OUTSIDE_AFFINITY, WITHOUT_LABEL, Shape

ELIGIBLE_MAX: Final = 16
"""Shapes of which this is kept; the one asked for longest ago goes first."""


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
