"""Who holds what: every reservation, what it charges its queue, and who is promised what is about to be free.

Two views of usage. ``usage`` is what is charged now: the sum of all allocations, those being stopped included.
``projected usage`` is what will be charged once everything being stopped is gone and every claim is taken. A gang may
start only if it fits both, so that it neither oversubscribes a vertex now nor takes what a preemptor was promised.
While nothing is being stopped or claimed the two are one object.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from heapq import nsmallest

from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.model.policy import heir
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.tree import AmountsByFlavor, QuotaTree, Usage, Vertex
from webhook.core.reasons.wake_keys import Promisee


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
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
    def uids(self) -> tuple[str, ...]:
        """What vertices know it by: its own uid and those of its jobs."""
        return (self.reservation.uid, *self.reservation.jobs)

    @property
    def priority(self) -> int:
        """Its priority now, where the job is known; otherwise what it was admitted with."""
        return self.reservation.priority if self.gang is None else self.gang.priority

    @property
    def created_seconds(self) -> float:
        """Its place in the queue's order of time."""
        return self.reservation.since_seconds if self.gang is None else self.gang.created_seconds

    @property
    def end_seconds(self) -> float | None:
        """When it ends at the latest, Unix time; None when no run-time limit sees to that."""
        limit = None if self.gang is None else self.gang.max_run_seconds
        return None if limit is None else self.reservation.since_seconds + limit

    @property
    def lacks_pods(self) -> bool:
        """Whether its gang, as far as that is known, has more pods than it holds."""
        held = self.reservation.counts
        return self.gang is not None and any(pods > held.get(name, 0) for name, pods in self.gang.counts.items())

    def is_in_reach(self, out_of_reach: Set[str]) -> bool:
        """Return whether none of its jobs is ``out_of_reach``, by uid."""
        return not out_of_reach or out_of_reach.isdisjoint(self.uids)

    def tells(self, other: "Allocation") -> bool:
        """Return whether ``other`` says nothing new."""
        mine = (self.reservation, self.gang, self.reclaimed or {})
        return mine == (other.reservation, other.gang, other.reclaimed or {})

    def __str__(self) -> str:
        return self.reservation.key


class Allocations:
    """All reservations of one cluster over one quota tree."""

    def __init__(self, tree: QuotaTree) -> None:
        self.usage = Usage(tree)
        self.by_uid: dict[str, Allocation] = {}
        self.stopping: dict[str, None] = {}
        """Gangs that are being stopped: still charged, soon gone."""
        self.promises: dict[Promisee, tuple[Vertex, AmountsByFlavor]] = {}
        """What the projected usage keeps, by what it is kept for."""
        self.elastic: dict[str, Allocation] = {}
        """Those whose quorum started below full size."""
        self._by_queue: dict[str, dict[str, Allocation]] = {}
        self._heirs: dict[str, Vertex] = {}
        """By queue that is gone: the vertex that is charged in its place."""
        self._priorities: dict[str, dict[int, int]] = {}
        """Queue to priority to number of allocations."""
        self._projected: Usage | None = None
        self._ends: dict[Vertex, list[tuple[float, str]]] = {}
        """By root of each tree that was asked about: (end, uid) of its allocations with a run-time limit, sorted."""
        self.lifted: tuple[Promisee, Vertex, AmountsByFlavor] | None = None
        """The promise that is put aside while whoever it was made to is decided about."""
        self.version = 0
        """Grows with every change."""
        self.looked_at = 0
        """How many allocations searches have looked at for victims so far, each as often as it was."""
        self._rebased = 0
        """The version since which all trees are as they are now, but for what is in the next two."""
        self._changed: dict[Vertex, int] = {}
        self._gave_back: dict[Vertex, int] = {}
        self._largest: dict[tuple[Vertex, FlavorResource, int], tuple[Allocation, ...]] = {}
        self._largest_version = 0
        self._borrowing: dict[Vertex, tuple[int, tuple[Vertex, ...]]] = {}
        """By root, the version as of which these queues below it use more than they own."""

    @property
    def tree(self) -> QuotaTree:
        """The quota tree that is charged."""
        return self.usage.tree

    @property
    def projected(self) -> Usage:
        """Usage once everything being stopped is gone and every promise is kept."""
        return self.usage if self._projected is None else self._projected

    def fits(self, queue: Vertex, amounts: AmountsByFlavor) -> bool:
        """Return whether ``queue`` can take ``amounts`` now without taking what is promised to others."""
        return self.usage.fits(queue, amounts) and (self._projected is None or self._projected.fits(queue, amounts))

    def headroom(self, vertex: Vertex, key: FlavorResource) -> int:
        """Return what a vertex lets through now beyond its private quota."""
        return self.usage.headroom(vertex, key)

    def version_of(self, root: Vertex) -> int:
        """Return the version with which anything changed in one tree the last time."""
        return self._changed.get(root, self._rebased)

    def given_back_in(self, root: Vertex) -> int:
        """Return the version with which somebody of one tree might have come to start earlier the last time."""
        return self._gave_back.get(root, self._rebased)

    def _count(self, vertex: Vertex | None, *, gives_back: bool = False) -> None:
        """Note a change in the tree of ``vertex``."""
        self.version += 1
        if vertex is not None:
            self._changed[vertex.root] = self.version
            if gives_back:
                self._gave_back[vertex.root] = self.version

    def copy(self) -> "Allocations":
        """Return an independent copy."""
        twin = Allocations(self.tree)
        twin.usage = self.usage.copy()
        twin.by_uid, twin.stopping, twin.promises = dict(self.by_uid), dict(self.stopping), dict(self.promises)
        twin.elastic = dict(self.elastic)
        twin._priorities = {queue: dict(counts) for queue, counts in self._priorities.items()}
        twin._by_queue = {queue: dict(held) for queue, held in self._by_queue.items()}
        twin._heirs = dict(self._heirs)
        twin._projected = None if self._projected is None else self._projected.copy()
        return twin

    def rebase(self, tree: QuotaTree) -> None:
        """Charge everything to another tree: the policy changed. Promises at vertices that are gone lapse."""
        self.usage, self._projected, self._ends, self._borrowing = Usage(tree), None, {}, {}
        self.promises = {to: kept for to, kept in self.promises.items() if tree.queues.get(kept[0].name) is kept[0]}
        self.version += 1
        self._rebased, self._changed, self._gave_back = self.version, {}, {}
        self._heirs = {}
        for queue in self._by_queue:
            self._inherit(queue)
        for allocation in self.by_uid.values():
            vertex = self.vertex_of(allocation)
            if vertex is not None:
                self.usage.add(vertex, allocation.amounts)
        self._refresh()

    def put(self, allocation: Allocation) -> None:
        """Add or replace one allocation; one whose reservation is being stopped leaves the projected usage."""
        self.drop(allocation.uid)
        self.by_uid[allocation.uid] = allocation
        if allocation.reservation.queue is not None:
            if allocation.reservation.queue not in self._by_queue:
                self._by_queue[allocation.reservation.queue] = {}
                self._inherit(allocation.reservation.queue)
            self._by_queue[allocation.reservation.queue][allocation.uid] = allocation
            counts = self._priorities.setdefault(allocation.reservation.queue, {})
            counts[allocation.priority] = counts.get(allocation.priority, 0) + 1
        gang = allocation.gang
        if gang is not None and gang.quorum is not None and allocation.lacks_pods:
            self.elastic[allocation.uid] = allocation
        self._count(self.vertex_of(allocation))
        self._charge(allocation, 1)
        ends, end = self._ends_beside(allocation), allocation.end_seconds
        if ends is not None and end is not None:
            insort(ends, (end, allocation.uid))
        if allocation.reservation.stopping is not None:
            self.stop(allocation.uid)

    def drop(self, uid: str) -> Allocation | None:
        """Forget one allocation and return it; None when there is none."""
        allocation = self.by_uid.get(uid)
        if allocation is not None:
            self._count(self.vertex_of(allocation), gives_back=True)
            self._charge(allocation, -1)
            ends, end = self._ends_beside(allocation), allocation.end_seconds
            if ends is not None and end is not None:
                del ends[bisect_left(ends, (end, uid))]
            del self.by_uid[uid]
            self.stopping.pop(uid, None)
            self.elastic.pop(uid, None)
            if allocation.reservation.queue is not None:
                del self._by_queue[allocation.reservation.queue][uid]
                counts = self._priorities[allocation.reservation.queue]
                counts[allocation.priority] -= 1
                if not counts[allocation.priority]:
                    del counts[allocation.priority]
                if not self._by_queue[allocation.reservation.queue]:
                    for table in (self._by_queue, self._priorities, self._heirs):
                        table.pop(allocation.reservation.queue, None)
            self._refresh()
        return allocation

    def stop(self, uid: str) -> None:
        """Take one allocation out of the projected usage: it is being stopped."""
        allocation = self.by_uid[uid]
        if uid in self.stopping:
            return
        projected, vertex = self._separate(), self.vertex_of(allocation)
        if vertex is not None:
            projected.remove(vertex, allocation.amounts)
        self.stopping[uid] = None
        self._count(vertex, gives_back=True)

    def unstop(self, uid: str) -> None:
        """Put one allocation back into the projected usage: it is not being stopped after all."""
        if uid in self.stopping:
            self.put(self.by_uid[uid])

    def promise(self, to: Promisee, vertex: Vertex, amounts: AmountsByFlavor) -> None:
        """Keep ``amounts`` of queue ``vertex`` for ``to`` in the projected usage, instead of what was kept before."""
        self.withdraw_promise(to)
        if amounts:
            self._count(vertex)
            self._separate().add(vertex, amounts)
            self.promises[to] = (vertex, amounts)

    def withdraw_promise(self, to: Promisee) -> bool:
        """Keep nothing for ``to`` any more; return whether something was kept."""
        promised = self.promises.pop(to, None)
        if promised is None:
            return False
        self._count(promised[0], gives_back=True)
        self._separate().remove(*promised)
        self._refresh()
        return True

    def lift(self, to: Promisee) -> None:
        """Put the promise to ``to`` aside, if there is one, until ``put_back``. The version stays as it is."""
        promised = self.promises.pop(to, None)
        if promised is not None:
            self.lifted = (to, *promised)
            self._separate().remove(*promised)

    def put_back(self) -> None:
        """Let the promise that was put aside hold again."""
        if self.lifted is not None:
            to, vertex, amounts = self.lifted
            self._separate().add(vertex, amounts)
            self.promises[to], self.lifted = (vertex, amounts), None

    def vertex_of(self, allocation: Allocation) -> Vertex | None:
        """Return the vertex that is charged: the gang's queue, or what inherited from it; None without either."""
        queue = allocation.reservation.queue or ""
        return self.tree.queues.get(queue) or self._heirs.get(queue)

    def of_queue(self, queue: str) -> Mapping[str, Allocation]:
        """Return the allocations charged to one queue, by uid."""
        return self._by_queue.get(queue, {})

    def to_look_at(self, queue: str) -> Collection[Allocation]:
        """Return the allocations charged to one queue, for a search that looks at all of them."""
        found = self.of_queue(queue).values()
        self.looked_at += len(found)
        return found

    def lowest_priority(self, queue: str) -> int | None:
        """Return the lowest priority among the allocations of one queue; None when there are none."""
        return min(self._priorities.get(queue, ()), default=None)

    def borrowing(self, root: Vertex) -> tuple[Vertex, ...]:
        """Return the queues of one tree that use more of anything than they own; remembered until a change."""
        known, version, view = self._borrowing.get(root), self.version_of(root), self.projected
        if known is None or known[0] != version:
            queues = (vertex for vertex in root.below() if vertex.is_queue)
            found = tuple(q for q in queues if any(n > q.subtree.get(key, 0) for key, n in view.all_of(q).items()))
            self._borrowing[root] = known = (version, found)
        return known[1]

    def largest(self, vertex: Vertex, key: FlavorResource, number: int) -> tuple[Allocation, ...]:
        """Return the ``number`` allocations at or below ``vertex`` with most of ``key``; remembered until a change."""
        if self._largest_version != self.version:
            self._largest, self._largest_version = {}, self.version
        known = self._largest.get((vertex, key, number))
        if known is None:
            users = (allocation for allocation in self.under(vertex) if allocation.amounts.get(key, 0))
            known = tuple(nsmallest(number, users, key=lambda h: (-h.amounts[key], str(h), h.uid)))
            self._largest[vertex, key, number] = known
        return known

    def ending(self, root: Vertex) -> list[Allocation]:
        """Return the allocations of a tree that a run-time limit ends, in the order of their ends; those
        being stopped are as good as gone.
        """
        ends = self._ends.get(root)
        if ends is None:
            found = ((allocation.end_seconds, allocation.uid) for allocation in self.under(root))
            ends = self._ends[root] = sorted((end, uid) for end, uid in found if end is not None)
        return [self.by_uid[uid] for _, uid in ends if uid not in self.stopping]

    def _ends_beside(self, allocation: Allocation) -> list[tuple[float, str]] | None:
        """Return the known ends of the tree that ``allocation`` is charged in."""
        vertex = self.vertex_of(allocation) if self._ends else None
        return None if vertex is None else self._ends.get(vertex.root)

    def under(self, vertex: Vertex) -> Iterator[Allocation]:
        """Yield what is charged at or below ``vertex``."""
        for each in vertex.below():
            if each.is_queue:
                yield from self.of_queue(each.name).values()
        for queue, inheriting in self._heirs.items():
            if vertex in inheriting.path():
                yield from self.of_queue(queue).values()

    def _inherit(self, queue: str) -> None:
        """Note which vertex is charged for a queue that is gone."""
        if queue not in self.tree.queues:
            name = heir(queue, self.tree.cohorts, self.tree.queues)
            if name is not None:
                self._heirs[queue] = self.tree.cohorts.get(name) or self.tree.queues[name]

    def _charge(self, allocation: Allocation, sign: int) -> None:
        vertex = self.vertex_of(allocation)
        if vertex is None:
            return
        views = [self.usage]
        if self._projected is not None and allocation.uid not in self.stopping:
            views.append(self._projected)
        for view in views:
            if sign > 0:
                view.add(vertex, allocation.amounts)
            else:
                view.remove(vertex, allocation.amounts)

    def _separate(self) -> Usage:
        if self._projected is None:
            self._projected = self.usage.copy()
        return self._projected

    def _refresh(self) -> None:
        """Let the views be one again, or apart, as what is being stopped and promised demands."""
        if not self.stopping and not self.promises:
            self._projected = None
        elif self._projected is None:
            projected = self._separate()
            for uid in self.stopping:
                allocation = self.by_uid[uid]
                vertex = self.vertex_of(allocation)
                if vertex is not None:
                    projected.remove(vertex, allocation.amounts)
            for promised in self.promises.values():
                projected.add(*promised)
