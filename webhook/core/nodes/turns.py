"""How many new shapes may be looked at in one round of decisions; who finds none left waits for the next."""

from typing import Final

from webhook.core.nodes.node import UNBOUNDED
from webhook.core.nodes.shape import Shape

ROUND_VISITS: Final = 50_000
"""Nodes that may be looked at for new shapes in one round of decisions: about a tenth of a second."""

REQUESTS_ALIKE: Final = 16
"""To compare with what is free of so many resources on a node takes as long as to look at the node."""
PORTS_ALIKE: Final = 2
"""The same of ports."""


class Turns:
    """What is left of a round, and who waits for the next. A look costs what it takes, whatever a pod template says:
    it is counted before, not measured, so that the same is decided each time.
    """

    def __init__(self) -> None:
        self.due: dict[Shape, None] = {}
        """New shapes that wait for their turn."""
        self._left = UNBOUNDED
        """How many more nodes may be looked at in this round."""

    def begin(self) -> None:
        """Begin a round."""
        self._left = ROUND_VISITS

    def next(self, nodes: int) -> Shape | None:
        """Return the one that has waited longest, whose turn it is now; None where that is nobody's."""
        shape = next(iter(self.due), None)
        if shape is None or not self.take(shape, nodes):
            return None
        del self.due[shape]
        return shape

    def take(self, shape: Shape, nodes: int) -> bool:
        """Return whether a shape may be looked at now; else it is due later. The last one of a round may take more than
        is left, so that each has its turn some time: one alone is no more than a few looks at each node.
        """
        if self._left <= 0:
            self.due[shape] = None
            return False
        self._left -= work(shape, nodes)
        return True


def work(shape: Shape, nodes: int) -> int:
    """Return what it takes to look at a new shape, in looks at one node: those at all ``nodes``, and one for each part
    of what says where its pods may run, which is worked out for all nodes together.
    """
    asked = len(shape.requests) // REQUESTS_ALIKE + len(shape.ports) // PORTS_ALIKE
    return nodes * (1 + asked) + shape.parts
