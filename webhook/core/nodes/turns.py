"""How many new shapes may be looked at in one round of decisions; gangs that find none left wait in line.

One gang at a time has its shapes looked at, over as many rounds as that takes: nothing new comes between them, and so
they are all known when the gang is decided about.
"""

from collections.abc import Callable, Collection
from typing import Final

from webhook.core.nodes.node import UNBOUNDED
from webhook.core.nodes.shape import Shape

ROUND_VISITS: Final = 50_000
"""Nodes that may be looked at for new shapes in one round of decisions: about a tenth of a second."""
ROUND_SHAPES: Final = 128
"""New shapes of a round at most: half of those that are kept (``capacity``)."""

REQUESTS_ALIKE: Final = 16
"""To compare with what is free of so many resources on a node takes as long as to look at the node."""
PORTS_ALIKE: Final = 2
"""The same of ports."""


class Turns:
    """What is left of a round, and who waits in line. A look costs what it takes, whatever a pod template says: it is
    counted before, not measured, so that the same is decided each time.
    """

    def __init__(self) -> None:
        self.due: dict[str, list[Shape]] = {}
        """Uids of gangs to the new shapes that are to be looked at for them; who has waited longest is the first."""
        self.granted: dict[str, None] = {}
        """Uids of gangs that have had their turn in this round."""
        self._left = UNBOUNDED
        """How many more nodes may be looked at in this round."""
        self._shapes_left = UNBOUNDED

    def begin(self, waits: Callable[[str], bool], shapes: int | None = None) -> list[str]:
        """Begin a round of so many ``shapes``; return the gangs that have no turn any more, for they are gone, as
        ``waits`` says.
        """
        self._left, self._shapes_left, self.granted = ROUND_VISITS, shapes or ROUND_SHAPES, {}
        gone = [gang for gang in self.due if not waits(gang)]
        for gang in gone:
            del self.due[gang]
        return gone

    def next(self, nodes: int) -> Shape | None:
        """Return what is looked at next for the first in line; None where the round is over, or nobody waits.

        The last one of a round may take more than is left, so that each has its turn some time: one alone is no more
        than a few looks at each node.
        """
        if not self.due or self._is_over:
            return None
        gang, shapes = next(iter(self.due.items()))
        shape = shapes.pop(0)
        if not shapes:
            del self.due[gang]
            self.granted[gang] = None
        self._pay((shape,), nodes)
        return shape

    def take(self, new: Collection[Shape], nodes: int, gang: str) -> bool:
        """Return whether all ``new`` shapes that a gang asks for may be looked at now; else it waits in line for it."""
        # Who has had its turn asks for what is not kept of that, for it is too much, or on another flavor.
        if gang not in self.granted and (self._is_over or (len(new) > 1 and not self._has_left(new, nodes))):
            self.due[gang] = list(new)
            return False
        self._pay(new, nodes)
        return True

    @property
    def _is_over(self) -> bool:
        return self._left <= 0 or self._shapes_left <= 0

    def _has_left(self, new: Collection[Shape], nodes: int) -> bool:
        return len(new) <= self._shapes_left and sum(work(shape, nodes) for shape in new) <= self._left

    def _pay(self, new: Collection[Shape], nodes: int) -> None:
        self._left -= sum(work(shape, nodes) for shape in new)
        self._shapes_left -= len(new)


def work(shape: Shape, nodes: int) -> int:
    """Return what it takes to look at a new shape, in looks at one node: those at all ``nodes``, and one for each part
    of what says where its pods may run, which is worked out for all nodes together.
    """
    asked = len(shape.requests) // REQUESTS_ALIKE + len(shape.ports) // PORTS_ALIKE
    return nodes * (1 + asked) + shape.parts
