"""On which nodes pods of a shape could ever run, whatever runs there now."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core.nodes.node import NodeRecord
from webhook.core.nodes.shape import Shape

ELIGIBLE_MAX: Final = 16
"""Shapes of which this is kept; the one asked for longest ago goes first."""


@dataclass(slots=True)
class Eligible:
    """What the nodes' own records say to a shape."""

    admitted: dict[str, None] = field(default_factory=dict)
    """Nodes that may take its pods."""
    large: set[str] = field(default_factory=set)
    """Those of them that hold a pod when nothing else runs there."""
    kept_out: Counter[str] = field(default_factory=Counter)
    """What keeps its pods off all other nodes, and how many of these."""


def eligible(shape: Shape, nodes: Mapping[str, NodeRecord]) -> Eligible:
    """Return what all ``nodes`` say to a shape."""
    found = Eligible()
    for name, node in nodes.items():
        why = None if shape.admits(node) else shape.why_not(node)
        if why is not None:
            found.kept_out[why] += 1
            continue
        found.admitted[name] = None
        if shape.fits(node.capacity):
            found.large.add(name)
    return found
