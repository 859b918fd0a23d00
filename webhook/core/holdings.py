"""Who holds what: every reservation, and what it charges its queue.

The sum of all holdings is the usage of the tree: ``Holdings.usage`` is kept incrementally and never set otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from webhook.core.gang import Gang
from webhook.core.ledger import Reservation
from webhook.core.policy import FlavorResource
from webhook.core.quota_tree import Node, QuotaTree, Usage


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One admitted gang and what it is charged for."""

    reservation: Reservation
    amounts: Mapping[FlavorResource, int]
    gang: Gang | None = None
    reclaimed: Mapping[str, int] | None = None

    @property
    def uid(self) -> str:
        """Uid of its job."""
        return self.reservation.uid

    @property
    def priority(self) -> int:
        """Its priority now, where the job is known; otherwise what it was admitted with."""
        return self.reservation.priority if self.gang is None else self.gang.priority

    @property
    def created_seconds(self) -> float:
        """Its place in the queue's order of time."""
        return self.reservation.since_seconds if self.gang is None else self.gang.created_seconds

    def __str__(self) -> str:
        return f"{self.reservation.namespace}/{self.reservation.name}"


class Holdings:
    """All reservations of one cluster over one quota tree."""

    def __init__(self, tree: QuotaTree) -> None:
        self.usage = Usage(tree)
        self.by_uid: dict[str, Holding] = {}
        self._by_queue: dict[str, dict[str, Holding]] = {}

    def copy(self) -> "Holdings":
        """Return an independent copy."""
        twin = Holdings(self.usage.tree)
        twin.usage = self.usage.copy()
        twin.by_uid = dict(self.by_uid)
        twin._by_queue = {queue: dict(held) for queue, held in self._by_queue.items()}
        return twin

    def rebase(self, tree: QuotaTree) -> None:
        """Charge everything to another tree: the policy changed."""
        self.usage = Usage(tree)
        for holding in self.by_uid.values():
            self._charge(holding)

    def put(self, holding: Holding) -> None:
        """Add or replace one holding."""
        self.drop(holding.uid)
        self.by_uid[holding.uid] = holding
        if holding.reservation.queue is not None:
            self._by_queue.setdefault(holding.reservation.queue, {})[holding.uid] = holding
        self._charge(holding)

    def drop(self, uid: str) -> Holding | None:
        """Forget one holding and return what it charged; None when there is none."""
        holding = self.by_uid.pop(uid, None)
        if holding is not None and holding.reservation.queue is not None:
            del self._by_queue[holding.reservation.queue][uid]
            node = self.node_of(holding)
            if node is not None:
                self.usage.remove(node, holding.amounts)
        return holding

    def node_of(self, holding: Holding) -> Node | None:
        """Return the queue that is charged; None for a gang without queue or whose queue is gone."""
        return self.usage.tree.queues.get(holding.reservation.queue or "")

    def of_queue(self, queue: str) -> Mapping[str, Holding]:
        """Return the holdings charged to one queue, by uid."""
        return self._by_queue.get(queue, {})

    def under(self, node: Node) -> Iterator[Holding]:
        """Yield the holdings of every queue at or below ``node``."""
        for each in node.below():
            if each.is_queue:
                yield from self.of_queue(each.name).values()

    def _charge(self, holding: Holding) -> None:
        node = self.node_of(holding)
        if node is not None:
            self.usage.add(node, holding.amounts)
