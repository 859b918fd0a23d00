"""Queues ordered by decayed usage: keeps current what their local queues consumed, and so which of them goes first."""

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.core.model.gang import Gang
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import PendingQueue
from webhook.core.pending.pending_queues import PendingQueues
from webhook.core.quota.allocations import Allocations
from webhook.core.quota.usage_decay import DecayedUsage, LocalName, local_name


@dataclass(slots=True)
class UsageOrder:
    """The order of those queues, over what waits and who holds what."""

    pending: PendingQueues
    allocations: Allocations
    decayed: DecayedUsage | None = None
    """None: usage-decay ordering is off, and nothing here does anything."""

    def age(self, now: float) -> None:
        """Sample usage if that is due, and reorder the queues that go by it."""
        queues = self._queues()
        held = (allocation for queue in queues for allocation in self.allocations.of_queue(queue.name or "").values())
        if self.decayed is not None and queues and self.decayed.sample(now, held):
            self._rerank_each(queues)

    def charge(self, queue: PendingQueue, gang: Gang, amounts: Mapping[FlavorResource, int]) -> None:
        """Add the entry penalty of an admission, where the queue goes by decayed usage."""
        if self.decayed is not None and queue.spec is not None and queue.spec.usage_based_ordering and gang.queue:
            self.decayed.charge((gang.namespace, gang.queue), amounts)
            self._rerank(queue, (gang.namespace, gang.queue))

    def restore(self, local: LocalName, consumed: Mapping[str, float]) -> None:
        """Take over what a local queue consumed, if that counts."""
        if self.decayed is not None:
            self.decayed.consumed[local] = dict(consumed)
            self.rerank()

    def rerank(self) -> None:
        """Order every such queue again: another policy applies, or another usage."""
        self._rerank_each(self._queues())

    def ranks(self, queue: str) -> Mapping[str, float] | None:
        """Return the rank of each allocation of a queue that goes by decayed usage; None for any other queue."""
        if self.decayed is None or not self.pending.policy.queues[queue].usage_based_ordering:
            return None
        named = {uid: local_name(allocation) for uid, allocation in self.allocations.of_queue(queue).items()}
        return {uid: self._rank(self.decayed, local) for uid, local in named.items() if local is not None}

    def _queues(self) -> list[PendingQueue]:
        if self.decayed is None:
            return []
        return [each for each in self.pending.queues.values() if each.spec and each.spec.usage_based_ordering]

    def _rerank_each(self, queues: list[PendingQueue]) -> None:
        by_queue = {queue.name: queue for queue in queues}
        for name, local in sorted(self.pending.policy.local_queues.items()) if queues else ():
            if local.queue in by_queue:
                self._rerank(by_queue[local.queue], name)

    def _rerank(self, queue: PendingQueue, local: LocalName) -> None:
        assert self.decayed is not None
        queue.rerank(local, self._rank(self.decayed, local))
        self.pending.active[queue] = None
        self.pending.head_changed(queue)

    def _rank(self, decayed: DecayedUsage, local: LocalName) -> float:
        return decayed.rank(local, self.pending.policy.local_queues.get(local))
