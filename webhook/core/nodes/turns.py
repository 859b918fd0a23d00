"""How many new shapes may be looked at in one round of decisions; who finds none left waits for the next."""

from collections.abc import Callable
from typing import Final

from webhook.core.nodes.node import UNBOUNDED
from webhook.core.nodes.shape import Shape

ROUND_VISITS: Final = 50_000
"""Nodes that may be looked at for new shapes in one round of decisions: about a tenth of a second."""
ROUND_SHAPES: Final = 128
"""New shapes of a round at most. Twice as many are kept (``capacity``): a gang whose shapes have their turns in two
rounds has them all in the second."""

REQUESTS_ALIKE: Final = 16
"""To compare with what is free of so many resources on a node takes as long as to look at the node."""
PORTS_ALIKE: Final = 2
"""The same of ports."""


class Turns:
    """What is left of a round, and who waits for the next. A look costs what it takes, whatever a pod template says:
    it is counted before, not measured, so that the same is decided each time.
    """

    def __init__(self) -> None:
        self.due: dict[Shape, str] = {}
        """New shapes that wait for their turn, and the uid of the gang that asked first."""
        self._left = UNBOUNDED
        """How many more nodes may be looked at in this round."""
        self._shapes_left = UNBOUNDED

    def begin(self, waits: Callable[[str], bool]) -> None:
        """Begin a round. Shapes of gangs that are gone, as ``waits`` says, have no turn any more: who else asks for the
        same asks again.
        """
        self._left, self._shapes_left = ROUND_VISITS, ROUND_SHAPES
        self.due = {shape: gang for shape, gang in self.due.items() if waits(gang)}

    def next(self, nodes: int) -> Shape | None:
        """Return the one that has waited longest, whose turn it is now; None where that is nobody's."""
        shape = next(iter(self.due), None)
        if shape is None or not self.take(shape, nodes, self.due[shape]):
            return None
        del self.due[shape]
        return shape

    def take(self, shape: Shape, nodes: int, gang: str) -> bool:
        """Return whether a shape that ``gang`` asks for may be looked at now; else it is due later. The last one of a
        round may take more than is left, so that each has its turn some time: one alone is no more than a few looks at
        each node.
        """
        if self._left <= 0 or self._shapes_left <= 0:
            self.due.setdefault(shape, gang)
            return False
        self._left -= work(shape, nodes)
        self._shapes_left -= 1
        return True


def work(shape: Shape, nodes: int) -> int:
    """Return what it takes to look at a new shape, in looks at one node: those at all ``nodes``, and one for each part
    of what says where its pods may run, which is worked out for all nodes together.
    """
    asked = len(shape.requests) // REQUESTS_ALIKE + len(shape.ports) // PORTS_ALIKE
    return nodes * (1 + asked) + shape.parts
