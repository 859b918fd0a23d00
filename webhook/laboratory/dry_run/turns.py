"""What Kueue's cycles remember of heads from one to the next: whose turn it is, what was tried, what was told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.model.gang import Gang
from webhook.core.pending.pending_queue import EquivalenceClass, OrderKey
from webhook.core.quota.tree import Vertex
from webhook.core.reasons.reasons import Reason


@dataclass(frozen=True, slots=True)
class Scan:
    """Where a cycle stopped to look for flavors for a gang; the next one goes on from there."""

    uid: str
    cycle: int
    """Number of that cycle."""
    flavors: Mapping[int, int]
    """Choice of the gang's request to the flavor to go on with; only choices that have some left."""


@dataclass(slots=True)
class Turns:
    """The turns of all gangs."""

    number: int = 0
    """Of the next cycle, or of the one that goes on."""
    moved: dict[Vertex, int] = field(default_factory=dict)
    """Root of a tree to the cycle at which a gang was last admitted to it or left it."""
    sticky: dict[EquivalenceClass, str] = field(default_factory=dict)
    """By class, the gang for which others were stopped in the last cycle: it goes first in the next one."""
    scans: dict[EquivalenceClass, Scan] = field(default_factory=dict)
    """Of classes for which the last cycle that had their head left flavors untried."""
    verdicts: dict[EquivalenceClass, dict[str, Reason]] = field(default_factory=dict)
    """By class and uid, what was said of gangs when they last had their turn."""

    def forget(self, uid: str) -> None:
        """Forget what was said of a gang: it waits no longer, or otherwise."""
        for told in self.verdicts.values():
            told.pop(uid, None)
        self.sticky = {eclass: first for eclass, first in self.sticky.items() if first != uid}

    def note_admission(self, eclass: EquivalenceClass) -> None:
        """Note that a gang came to a tree."""
        if eclass.queue.vertex is not None:
            self.moved[eclass.queue.vertex.root] = self.number

    def unfinished(self, eclass: EquivalenceClass) -> Scan | None:
        """Return the scan that the next cycle goes on with for the head of ``eclass``, if there is one.

        One of the cycle before counts whatever happened since; an older one as long as nobody came to the tree or left.
        """
        scan, vertex = self.scans.get(eclass), eclass.queue.vertex
        if scan is None or scan.uid != self.head(eclass).uid:
            return None
        moved = -1 if vertex is None else self.moved.get(vertex.root, -1)
        return scan if scan.cycle >= self.number - 1 or moved < scan.cycle else None

    def head(self, eclass: EquivalenceClass) -> Gang:
        """Return the gang of a class whose turn it is: the earliest, unless one is sticky."""
        return eclass.gangs.get(self.sticky.get(eclass, ""), eclass.head)

    def order_key(self, eclass: EquivalenceClass) -> OrderKey:
        """Return the place of its head in the queue."""
        head = self.head(eclass)
        return eclass.rank, -eclass.sample.priority, head.created_seconds, head.uid
