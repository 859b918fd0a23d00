"""The borrowing guard: a queue that has its own takes no room that a gang of a queue below its own waits for.

kube-queue's rule for trees of minimum and maximum, against starvation without stopping anybody: without it a queue of
many small gangs takes each bit of room that becomes free, and a large gang elsewhere never finds enough at once. Only
queues that say so (``Queue.guards_borrowing``) are guarded and give way, to others of their tree. Said exactly:

- A gang is *starved* if three things hold. Its queue uses less than it owns of everything that the gang asks and the
  queue owns any of. Nothing but room keeps the gang waiting (no fence, stop, back-off or wrong flavor). It could start
  once all that other queues took beyond what they own has ended. A gang that this would not help holds nobody up.
- It holds up a gang of another queue if two things hold. Both ask for a resource of which, below the cohort where the
  two sides meet, one side has all that it owns and the other side less. With that gang started, the starved one would
  not have room for it, at a vertex that both use.

Nobody holds up a gang whose own queue is below what it owns, so that no two wait for each other, nor a gang that may
use only guaranteed quota. Upstream looks at leaves and not at resources, and holds room for whatever waits.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from webhook.core.assignment.decision import Decision
from webhook.core.assignment.flavors import Judge, Mode, Verdict, assign
from webhook.core.model.policy import Queue
from webhook.core.notation.amounts import FlavorResource
from webhook.core.pending.pending_queue import EquivalenceClass, PendingQueue
from webhook.core.pending.pending_queues import PendingQueues
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.fences import Fences
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex
from webhook.core.reasons.barriers import NAMED_MAX, BehindStarved
from webhook.core.reasons.wake_keys import Owed


@dataclass(frozen=True, slots=True)
class _Held:
    """What holds a gang up."""

    starved: EquivalenceClass
    owed: Owed


@dataclass(slots=True)
class BorrowingGuard:
    """Which gangs hold up which, and what to wake when that ends."""

    pending: PendingQueues
    allocations: Allocations
    watched: dict[Owed, None] = field(default_factory=dict)
    """What somebody is held up by."""
    _settled: int = -1
    """Version of the allocations when ``watched`` was last gone through."""
    _found: dict[PendingQueue, list[tuple[EquivalenceClass, AmountsByFlavor]]] = field(default_factory=dict)
    """The starved classes of a queue in order, with what they ask."""
    _found_at: tuple[int, int] = (-1, -1)
    """What allocations and waiting gangs were when they were found."""

    def judge(
        self, eclass: EquivalenceClass, decision: Decision, fences: Fences, usage: Usage | None = None
    ) -> Decision:
        """Return ``decision`` about the head of ``eclass``, blocked if it would start and a starved gang needs the
        room.

        ``usage`` is what is taken, where that is not what the allocations say.
        """
        if not (decision.fits or decision.preempts) or not _yields(eclass.queue.spec, eclass.head.preemptible):
            return decision
        assert eclass.queue.vertex is not None
        view = self.allocations.projected if usage is None else usage
        taking = _Taking(eclass.queue.vertex, decision.assignment.usage, view)
        # For the head of a strict queue nothing is held back while it is judged: what is found then counts for it only.
        recheck = usage is not None or eclass.queue.strict or eclass.queue.backfills
        held = list(islice(self._holders(taking, fences, recheck=recheck), NAMED_MAX))
        if not held:
            return decision
        first, *others = (_behind(each, taking) for each in held)
        barrier = replace(first, others=tuple(others))
        return replace(decision, barrier=barrier, victims=(), awaits=(), owed=held[0].owed)

    def lets_grow(self, allocation: Allocation, extra: AmountsByFlavor, fences: Fences) -> bool:
        """Return whether an admitted gang can take ``extra`` and keep no starved gang waiting."""
        queue, vertex = self.pending.queues.get(allocation.reservation.queue), self.allocations.vertex_of(allocation)
        if vertex is None or queue is None or not _yields(queue.spec, allocation.reservation.preemptible):
            return True
        held = next(self._holders(_Taking(vertex, extra, self.allocations.projected), fences), None)
        if held is not None:
            self.watch(held.owed)
        return held is None

    def watch(self, owed: Owed) -> None:
        """Remember that somebody is held up by this."""
        self.watched[owed] = None

    def settle(self, fences: Fences, *, recheck: bool) -> bool:
        """Wake the gangs that no starved gang holds up any more; return whether there may be some.

        ``recheck`` says that more may have changed than allocations.
        """
        if recheck:
            self._found.clear()
        if not self.watched or (self._settled == self.allocations.version and not recheck):
            return False
        self._settled = self.allocations.version
        over = [owed for owed in self.watched if not self._lasts(owed, fences)]
        for owed in over:
            del self.watched[owed]
            self.pending.wake(owed)
        return bool(over)

    def _lasts(self, owed: Owed, fences: Fences) -> bool:
        queue, usage = self.pending.queues.get(owed.queue), self.allocations.projected
        eclass = None if queue is None else queue.eclasses.get(owed.equivalence)
        if eclass is None or eclass.queue.vertex is None or eclass not in _whose_turn_may_come(eclass.queue):
            return False
        vertex = eclass.queue.vertex
        meeting = next((each for each in vertex.path() if each.index == owed.cohort), None)
        asked = {} if meeting is None else _starved(eclass, fences, usage)
        if meeting is None or owed.key not in asked:
            return False
        side = list(_side(vertex, meeting))
        return _short(usage, side, owed.key) and not _kept_out_by(usage, vertex, side, owed.key, asked[owed.key])

    def _holders(self, taking: "_Taking", fences: Fences, *, recheck: bool = False) -> Iterator[_Held]:
        """Yield the starved gangs that would be kept waiting, by the names of queues: the first one of each.

        Once for each of what it would lack.
        """
        for queue in () if taking.below_nominal() else self.pending.guarded.get(taking.vertex.root, ()):
            keys = [] if queue.vertex is None or queue.vertex is taking.vertex else taking.contested(queue.vertex)
            if not keys or queue.vertex is None:
                continue
            found = _all_starved(queue, fences, taking.usage) if recheck else self._starved_in(queue, fences)
            for eclass, key in taking.lacking(found, queue.vertex, keys):
                yield _Held(
                    eclass, Owed(queue.vertex.name, eclass.key, _meeting(taking.vertex, queue.vertex).index, key)
                )

    def _starved_in(self, queue: PendingQueue, fences: Fences) -> list[tuple[EquivalenceClass, AmountsByFlavor]]:
        """Return the starved classes of a queue, found once for as long as nothing has changed."""
        at = (self.allocations.version, self.pending.changes)
        if at != self._found_at:
            self._found, self._found_at = {}, at
        if queue not in self._found:
            self._found[queue] = _all_starved(queue, fences, self.allocations.projected)
        return self._found[queue]


@dataclass(frozen=True, slots=True)
class _Taking:
    """``amounts`` that queue ``vertex`` would take of what is left by ``usage``."""

    vertex: Vertex
    amounts: AmountsByFlavor
    usage: Usage

    def below_nominal(self) -> bool:
        """Return whether the queue takes what it is owed itself, or nothing."""
        return not self._shown() or _below_nominal(self.usage, self.vertex, self._shown())

    def contested(self, other: Vertex) -> list[FlavorResource]:
        """Return of what it takes the queue's side has all that it owns, and the side of queue ``other`` less."""
        meeting, usage = _meeting(self.vertex, other), self.usage
        mine, theirs = list(_side(self.vertex, meeting)), list(_side(other, meeting))
        return [
            key
            for key in sorted(self._shown())
            if _short(usage, theirs, key) and all(usage.of(each, key) >= each.subtree.get(key, 0) for each in mine)
        ]

    def lacking(
        self, starved: Iterable[tuple[EquivalenceClass, AmountsByFlavor]], other: Vertex, keys: Iterable[FlavorResource]
    ) -> list[tuple[EquivalenceClass, FlavorResource]]:
        """Return the first of the ``starved`` classes of queue ``other`` that would lack any of ``keys``, with each."""
        shared = list(_meeting(self.vertex, other).path())
        self.usage.add(self.vertex, self.amounts)
        try:
            for eclass, asked in starved:
                refused = {key: self.usage.binding(other, key, asked[key]) for key in keys if key in asked}
                found = [(eclass, key) for key, each in refused.items() if each is not None and each[0] in shared]
                if found:
                    return found
        finally:
            self.usage.remove(self.vertex, self.amounts)
        return []

    def _shown(self) -> list[FlavorResource]:
        return [key for key, amount in self.amounts.items() if amount and not key.is_internal]


def _yields(queue: Queue | None, preemptible: bool) -> bool:
    """Return whether a gang of ``queue`` may have to wait for starved ones: not while it uses guaranteed quota only."""
    return queue is not None and queue.guards_borrowing and (preemptible or not queue.spares_non_preemptible)


def _whose_turn_may_come(queue: PendingQueue) -> Collection[EquivalenceClass]:
    """Return the classes of a queue of which it only takes room for the head to start."""
    if queue.closed is not None:
        return ()
    if queue.strict or queue.backfills:
        eclasses = [eclass for eclass in queue.eclasses.values() if eclass.ineligible is None]
        return [min(eclasses, key=lambda eclass: eclass.order_key)] if eclasses and not queue.claiming else ()
    return queue.eclasses.values()


def _all_starved(queue: PendingQueue, fences: Fences, usage: Usage) -> list[tuple[EquivalenceClass, AmountsByFlavor]]:
    """Return the starved classes of a queue in order, with what each asks."""
    reach: dict[FlavorResource, int] = {}
    eclasses = ((eclass, _starved(eclass, fences, usage, reach)) for eclass in _whose_turn_may_come(queue))
    return sorted((item for item in eclasses if item[1]), key=lambda item: item[0].order_key[1:])


def _starved(
    eclass: EquivalenceClass, fences: Fences, usage: Usage, reach: dict[FlavorResource, int] | None = None
) -> AmountsByFlavor:
    """Return what the smallest start of the head of ``eclass`` asks if it is starved; empty when it is not.

    ``reach`` collects how much the queue could take of what.
    """
    vertex = eclass.queue.vertex
    if vertex is None or not eclass.order or eclass.ineligible is not None or eclass.request.refusal is not None:
        return {}
    reach, charged = {} if reach is None else reach, _least(eclass)
    for key, amount in charged.items():
        if key not in reach:
            reach[key] = _reach(usage, vertex, key)
        if amount > reach[key]:
            return {}
    asked = {key: amount for key, amount in charged.items() if amount and not key.is_internal}
    starved = _below_nominal(usage, vertex, asked) and fences.shortfall(eclass.head, eclass.head.least_counts) is None
    return asked if starved else {}


def _least(eclass: EquivalenceClass) -> AmountsByFlavor:
    """Return what the smallest start of any gang of the class is charged; empty where no flavor fits it."""
    if eclass.least is None:
        assert eclass.queue.spec is not None
        anything = Judge(lambda _key, _amount: Verdict(Mode.FIT, 0))
        found = assign(eclass.request, eclass.sample.least_counts, eclass.queue.spec.fungibility, anything)
        eclass.least = found.usage if found.mode is Mode.FIT else {}
    return eclass.least


def _below_nominal(usage: Usage, vertex: Vertex, keys: Iterable[FlavorResource]) -> bool:
    """Return whether a queue uses less than it owns of each of ``keys`` of which it owns any."""
    owned = [key for key in keys if vertex.subtree.get(key, 0) > 0]
    return bool(owned) and all(usage.of(vertex, key) < vertex.subtree[key] for key in owned)


def _short(usage: Usage, side: Iterable[Vertex], key: FlavorResource) -> bool:
    return all(usage.of(each, key) < each.subtree.get(key, 0) for each in side)


def _kept_out_by(usage: Usage, vertex: Vertex, side: list[Vertex], key: FlavorResource, amount: int) -> bool:
    """Return whether a vertex of the starved queue's own side refuses: others above have no part in that."""
    refused = usage.binding(vertex, key, amount)
    return refused is not None and refused[0] in side


def _meeting(one: Vertex, other: Vertex) -> Vertex:
    """Return the lowest cohort above both queues of one tree."""
    above = {each.index for each in other.path()}
    return next(each for each in one.path() if each.index in above)


def _side(vertex: Vertex, meeting: Vertex) -> Iterator[Vertex]:
    """Yield ``vertex`` and what is above it, below the cohort where two sides meet."""
    for each in vertex.path():
        if each is meeting:
            return
        yield each


def _reach(usage: Usage, queue: Vertex, key: FlavorResource) -> int:
    """Return what ``queue`` could take once everything is gone that others took beyond what they own."""
    path = list(queue.path())
    used = [usage.of(queue, key)]
    for child, cohort in pairwise(path):
        others = sum(
            _passed_up(other, key, min(usage.of(other, key), other.subtree.get(key, 0)))
            for other in cohort.children
            if other is not child
        )
        used.append(_passed_up(child, key, used[-1]) + others)
    reach = path[-1].subtree.get(key, 0) - used[-1]
    for vertex, taken in reversed(list(zip(path[:-1], used[:-1], strict=True))):
        local, limit = vertex.local.get(key, 0), vertex.borrowing.get(key)
        if limit is not None:
            reach = min(reach, vertex.subtree.get(key, 0) - local - max(0, taken - local) + limit)
        reach += max(0, local - taken)
    return reach


def _passed_up(vertex: Vertex, key: FlavorResource, used: int) -> int:
    return max(0, used - vertex.local.get(key, 0))


def _behind(held: _Held, taking: _Taking) -> BehindStarved:
    key, gang, starved, usage = held.owed.key, held.starved.head, held.starved.queue.vertex, taking.usage
    assert starved is not None
    return BehindStarved(
        gang.key,
        str(starved),
        key,
        usage.of(starved, key),
        starved.subtree.get(key, 0),
        str(taking.vertex),
        taking.amounts[key],
        usage.of(taking.vertex, key),
        taking.vertex.subtree.get(key, 0),
    )
