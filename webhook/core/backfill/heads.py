"""The heads of Backfill queues: which there are now, in which plan they stand together, and which of them wait
for quota. A head has room booked (``backfill``) only while it waits for quota and nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from webhook.core.pending.pending_queues import WaitingRoom
from webhook.core.pending.queueing import Lane, Line
from webhook.core.quota.fences import Fences


@dataclass(slots=True)
class Heads:
    """The heads of all Backfill queues, looked for again only when there may be others."""

    room: WaitingRoom
    across_queues: bool
    """The heads of one tree stand together; else each queue has a plan of its own."""
    _known: dict[object, tuple[int, tuple[Line, ...]]] = field(default_factory=dict)
    """By tree or queue, the heads that wait for quota, where no fence has a part in it."""

    def together(self, lanes: Sequence[Lane]) -> Iterable[Sequence[Lane]]:
        """Return the Backfill queues of a tree, together where they have one plan."""
        return [lanes] if self.across_queues else ([lane] for lane in lanes)

    def scope(self, lanes: Sequence[Lane]) -> object:
        """Return what tells the plan of these queues from others: a tree, or a queue."""
        return lanes[0].node.root if self.across_queues and lanes[0].node is not None else lanes[0].name

    def lanes_beside(self, lane: Lane) -> Sequence[Lane]:
        """Return the queues of which the heads are protected from gangs of one queue."""
        if lane.node is None:
            return ()
        if self.across_queues:
            return self.room.backfilling.get(lane.node.root, ())
        return [lane] if lane.backfills else ()

    def waiting_for_quota(self, lanes: Sequence[Lane], fences: Fences) -> Sequence[Line]:
        """Return the heads of queues that wait for quota and nothing else; looked for again when there may be others,
        and each time where a fence may hold one up.
        """
        if not lanes:
            return ()
        assert lanes[0].node is not None
        scope, version = self.scope(lanes), self.room.heads_version(lanes[0].node.root)
        known = self._known.get(scope)
        if known is not None and known[0] == version:
            return known[1]
        first = [head for lane in lanes if lane.closed is None and (head := lane.head()) is not None]
        fenced = [head for head in first if fences.bind(head.sample.namespace)]
        self._known.pop(scope, None)
        if not fenced:
            self._known[scope] = (version, tuple(first))
        return [head for head in first if head not in fenced or _passes_fences(head, fences)]

    def knows(self, scope: object) -> bool:
        """Return whether the heads of one plan are known until others come, as no fence has a part in them."""
        return scope in self._known

    def forget_fenced(self, fences: Fences) -> bool:
        """Forget the heads that a fence may hold up by now; return whether there are any."""
        fenced = [
            scope
            for scope, (_, heads) in self._known.items()
            if any(fences.bind(head.sample.namespace) for head in heads)
        ]
        for scope in fenced:
            del self._known[scope]
        return bool(fenced)


def waits_for_quota(lane: Lane, fences: Fences) -> Line | None:
    """Return the head of a queue if it waits for quota and nothing else."""
    head = None if lane.closed is not None else lane.head()
    return head if head is None or _passes_fences(head, fences) else None


def _passes_fences(line: Line, fences: Fences) -> bool:
    return fences.shortfall(line.head, line.head.least_counts) is None
