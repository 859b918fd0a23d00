"""The heads of Backfill queues: which there are now, in which plan they stand together, and which of them wait
for quota. A head has room booked (``backfill``) only while it waits for quota and nothing else: one that a fence or the
nodes hold up would keep everybody out from now on, for as long as that takes. One whose nodes nobody has looked at yet
waits for quota as far as is known: its look is put off by a few cycles only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.pending.pending_queues import PendingQueues
from webhook.core.placement.misplaced import Misplaced
from webhook.core.quota.fences import Fences
from webhook.core.reasons.wake_keys import BeforeHeads


@dataclass(slots=True)
class Heads:
    """The heads of all Backfill queues, looked for again only when there may be others."""

    pending: PendingQueues
    across_queues: bool
    """The heads of one tree stand together; else each queue has a plan of its own."""
    _known: dict[object, tuple[int, tuple[EquivalenceClass, ...]]] = field(default_factory=dict)
    """By tree or queue, the heads that wait for quota, where no fence has a part in it."""

    def together(self, queues: Sequence[PendingQueue]) -> Iterable[Sequence[PendingQueue]]:
        """Return the Backfill queues of a tree, together where they have one plan."""
        return [queues] if self.across_queues else ([queue] for queue in queues)

    def scope(self, queues: Sequence[PendingQueue]) -> object:
        """Return what tells the plan of these queues from others: a tree, or a queue."""
        return queues[0].vertex.root if self.across_queues and queues[0].vertex is not None else queues[0].name

    def queues_beside(self, queue: PendingQueue) -> Sequence[PendingQueue]:
        """Return the queues of which the heads are protected from gangs of one queue."""
        if queue.vertex is None:
            return ()
        if self.across_queues:
            return self.pending.backfilling.get(queue.vertex.root, ())
        return [queue] if queue.backfills else ()

    def waiting_for_quota(self, queues: Sequence[PendingQueue], fences: Fences) -> Sequence[EquivalenceClass]:
        """Return the heads of queues that wait for quota and nothing else; looked for again when there may be others,
        and each time where a fence may hold one up.
        """
        if not queues:
            return ()
        assert queues[0].vertex is not None
        scope, version = self.scope(queues), self.pending.heads_version(queues[0].vertex.root)
        known = self._known.get(scope)
        if known is not None and known[0] == version:
            return known[1]
        heads = [head for queue in queues if queue.closed is None and (head := queue.head()) is not None]
        first = [head for head in heads if not lacks_nodes(head.barrier)]
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


def waits_for_quota(queue: PendingQueue, fences: Fences) -> EquivalenceClass | None:
    """Return the head of a queue if it waits for quota and nothing else."""
    head = None if queue.closed is not None else queue.head()
    if head is None or lacks_nodes(head.barrier):
        return None
    return head if _passes_fences(head, fences) else None


def lacks_nodes(barrier: object) -> bool:
    """Return whether it is nodes that block a gang, and not a look at them that is put off."""
    return isinstance(barrier, Misplaced) and not barrier.postponed


def _passes_fences(eclass: EquivalenceClass, fences: Fences) -> bool:
    return fences.shortfall(eclass.head, eclass.head.least_counts) is None


def before_heads(queue: PendingQueue) -> BeforeHeads:
    """Return the key of those that have no right before any booked head of the queue's tree."""
    return BeforeHeads(None if queue.vertex is None else queue.vertex.root.index)
