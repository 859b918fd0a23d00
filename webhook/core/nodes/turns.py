"""How many new shapes may be looked at in one round of decisions; gangs that find none left wait in line.

One gang at a time has its shapes looked at, over as many rounds as that takes: nothing new comes between them, and so
they are all known when the gang is decided about. If it then asks about others, on its next flavor, its turn goes on.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from webhook.core.nodes.node import UNBOUNDED
from webhook.core.nodes.shape import Shape

ROUND_VISITS: Final = 50_000
"""Nodes that may be looked at for new shapes in one round of decisions: about a tenth of a second."""
ROUND_SHAPES: Final = 128
"""New shapes of a round at most: half of those that are kept (``capacity``)."""
TURN_SHAPES: Final = 256
"""Who asks about more in one turn, because it asks something else each time, goes to the end of the line."""
CHANGES_UNCOUNTED: Final = 195
"""So many changes of nodes are looked at outside of all turns: for all shapes that are kept, as much as in a round."""
NODES_TO_A_CHANGE: Final = 20
"""To look at one node that changed takes as long as to read so many in whole columns: 10 where each has other room than
all others, 25 where most have the same."""

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
        """Uids of gangs to the shapes that are to be looked at for them; who has waited longest is the first."""
        self.asked: dict[str, dict[Shape, None]] = {}
        """Uids of gangs to all that they have asked about in this round, known or not."""
        self._looked: dict[str, set[Shape]] = {}
        """What was looked at for gangs in their turn, until the round is over in which they are decided about then."""
        self._allowed: dict[str, set[Shape]] = {}
        """Uids of gangs to what they may look at in this round."""
        self._left = UNBOUNDED
        """How many more nodes may be looked at in this round."""
        self._shapes_left = UNBOUNDED
        self.granted: list[str] = []
        """Uids of gangs whose turn has ended in this round."""

    def begin(self, waits: Callable[[str], bool], shapes: int | None = None) -> list[str]:
        """Begin a round of so many ``shapes``; return the gangs that have no turn any more, for they are gone, as
        ``waits`` says.
        """
        self._left, self._shapes_left = ROUND_VISITS, shapes or ROUND_SHAPES
        gone = [gang for gang in self.due if not waits(gang)]
        for gang in gone:
            del self.due[gang]
        kept = {*self.due, *self._undecided(waits)}
        self._looked = {gang: looked for gang, looked in self._looked.items() if gang in kept}
        self.asked, self._allowed, self.granted = {}, {}, []
        return gone

    def _undecided(self, waits: Callable[[str], bool]) -> Iterator[str]:
        """Yield the gangs whose turn has ended and that were not decided about since, as cycles may be cut short; the
        latest only, which have looked at no more together than one turn may.
        """
        left = TURN_SHAPES
        for gang in reversed(self._looked):
            if gang not in self.due and gang not in self._allowed and waits(gang):
                left -= len(self._looked[gang])
                if left < 0:
                    return
                yield gang

    def next(self, work: Callable[[Shape], int]) -> Shape | None:
        """Return what is looked at next for the first in line; None where the round is over, or nobody waits. To look
        at a shape takes what ``work`` says.

        The last one of a round may take more than is left, so that each has its turn some time: one alone is no more
        than a few looks at each node.
        """
        if not self.due or self._is_over:
            return None
        gang, shapes = next(iter(self.due.items()))
        shape = shapes.pop(0)
        self._looked.setdefault(gang, set()).add(shape)
        if not shapes:
            del self.due[gang]
            self.granted.append(gang)
        self._pay({shape: work(shape)})
        return shape

    def take(self, works: Mapping[Shape, int], gang: str) -> bool:
        """Return whether all shapes that a gang asks for may be looked at now, each of which takes so much; else it
        waits in line for them. What it may look at it may look at to the end of the round: it starts on an answer.
        """
        allowed = self._allowed.setdefault(gang, set())
        looked = set[Shape]() if gang in self.due else self._looked.get(gang, set())
        # Who has had its turn asks for what is not kept of that.
        new = {shape: work for shape, work in works.items() if work and shape not in looked and shape not in allowed}
        if new and gang in self.due:
            return False
        if new and (self._is_over or (len(new) > 1 and not self._has_left(new))):
            # What is known of the others may be old or forgotten by then.
            wanted = list(dict.fromkeys((*self.asked.get(gang, ()), *works)))
            goes_on = 0 < len(looked) <= TURN_SHAPES - len(new)
            self.due = {gang: wanted, **self.due} if goes_on else {**self.due, gang: wanted}
            return False
        allowed.update(works)
        self._pay(works)
        return True

    @property
    def _is_over(self) -> bool:
        return self._left <= 0 or self._shapes_left <= 0

    def _has_left(self, new: Mapping[Shape, int]) -> bool:
        return len(new) <= self._shapes_left and sum(new.values()) <= self._left

    def _pay(self, new: Mapping[Shape, int]) -> None:
        self._left -= sum(new.values())
        self._shapes_left -= sum(work > 0 for work in new.values())


def work(shape: Shape, nodes: int) -> int:
    """Return what it takes to look at a new shape, in looks at one node: those at all ``nodes``, and one for each part
    of what says where its pods may run, which is worked out for all nodes together.
    """
    asked = len(shape.requests) // REQUESTS_ALIKE + len(shape.ports) // PORTS_ALIKE
    return nodes * (1 + asked) + shape.parts


def quicker_from_all(changed: int, nodes: int) -> bool:
    """Return whether to read all ``nodes`` again takes less time than to look at those that ``changed``. So few as are
    looked at outside of all turns are looked at in any case: a read counts for more.
    """
    return changed > max(CHANGES_UNCOUNTED, nodes // NODES_TO_A_CHANGE)
