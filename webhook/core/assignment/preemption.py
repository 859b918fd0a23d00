"""Which gangs to stop so that a gang can start: Kueue's classical preemption.

Candidates come from the gang's own queue (``within_queue``) and, for reclaiming, from queues of its tree that use more
than their own (``reclaim_within_cohort``). Over some it has *hierarchical advantage*: its request fits quota that a
subtree around it owns. From the others it takes back what it owns, or, with ``borrow_within_cohort``, may even borrow
at their cost. Only whole gangs are stopped. Candidates are removed in a fixed order until the gang fits quota and
nodes, then put back in reverse order if the gang still fits. So as few as possible are stopped, and never one of a
queue that is within its own quota by then.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from heapq import merge
from typing import Protocol

from webhook.core.assignment.flavors import Mode
from webhook.core.model.gang import Gang
from webhook.core.model.policy import PreemptionPolicy, Queue
from webhook.core.notation.amounts import FlavorResource
from webhook.core.quota.allocations import Allocation, Allocations
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex


class Variant(Enum):
    """On what grounds a candidate may be stopped; the value is the reason that its owner is told."""

    WITHIN_QUEUE = "InClusterQueue"
    HIERARCHICAL = "InCohortReclamation"
    WITHOUT_BORROWING = "InCohortReclamation "
    WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    FAIR_SHARING = "InCohortFairSharing"

    @property
    def reason(self) -> str:
        """Kueue's name for it."""
        return self.value.strip()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gang that may be stopped."""

    allocation: Allocation
    vertex: Vertex
    variant: Variant
    top: Vertex | None = None
    """The lowest cohort above both its queue and the preemptor's; None in the preemptor's own queue."""


class Seats(Protocol):
    """Whether a gang's pods find nodes while others, by uid, are taken out and put back."""

    def take(self, gangs: Iterable[str]) -> None:
        """Let gangs be gone."""

    def give_back(self, gangs: Iterable[str]) -> None:
        """Let gangs be there again."""

    def found(self) -> bool:
        """Return whether all its pods find nodes now."""


Ranks = Callable[[str], Mapping[str, float] | None]
"""Queue to the usage-decay rank of its allocations by uid; None where it does not go by usage."""


def no_ranks(queue: str) -> None:
    """No queue goes by usage."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A gang that needs room, and the view of usage in which it looks for it."""

    gang: Gang
    queue: Queue
    vertex: Vertex
    allocations: Allocations
    usage: Usage
    """Searched by taking candidates out and putting them back; unchanged afterwards."""
    strategies: tuple[str, ...] = ()
    """Fair-sharing strategies; empty: classical."""
    spared: Container[str] = ()
    """Uids of gangs that the view does not charge: they cannot be taken out of it."""
    out_of_reach: Set[str] = frozenset()
    """Uids of jobs that nobody could stop now."""
    ranks: Ranks = no_ranks
    seats: Seats | None = None
    """The nodes with the same candidates taken out; None: they are not asked."""
    yields: bool = False
    """It was itself stopped for the share of a gang that is still about, and stops nobody for its own."""

    def may_stop(self, allocation: Allocation, policy: PreemptionPolicy) -> bool:
        """Return whether ``policy`` lets this gang stop that one."""
        known = allocation.reservation
        in_reach = allocation.uid not in self.spared and allocation.is_in_reach(self.out_of_reach)
        return in_reach and known.may_be_preempted and self.outranks(allocation, policy)

    def outranks(self, allocation: Allocation, policy: PreemptionPolicy) -> bool:
        """Return whether ``policy`` puts this gang before that one."""
        mine, theirs = self.gang.priority, allocation.priority
        match policy:
            case PreemptionPolicy.ANY:
                return True
            case PreemptionPolicy.LOWER_PRIORITY:
                return theirs < mine
            case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                return theirs < mine or (theirs == mine and self.gang.created_seconds < allocation.created_seconds)
        return False

    def fits(self, amounts: AmountsByFlavor, borrowing: bool) -> bool:
        """Return whether ``amounts`` fit the view, without exceeding the queue's own quota unless ``borrowing``, and
        nodes are found.
        """
        if not borrowing and any(self.usage.borrowing_with(self.vertex, key, v) for key, v in amounts.items()):
            return False
        return self.usage.fits(self.vertex, amounts) and (self.seats is None or self.seats.found())

    def take(self, candidate: Candidate) -> None:
        """Take a candidate out of the view."""
        self.usage.remove(candidate.vertex, candidate.allocation.amounts)
        if self.seats is not None:
            self.seats.take(candidate.allocation.uids)

    def give_back(self, candidate: Candidate) -> None:
        """Put a candidate back into the view."""
        self.usage.add(candidate.vertex, candidate.allocation.amounts)
        if self.seats is not None:
            self.seats.give_back(candidate.allocation.uids)

    def order(self, candidate: Candidate) -> tuple[object, ...]:
        """Sort key of candidates: the ones already going, other queues', low priority, latest start."""
        allocation, known = candidate.allocation, candidate.allocation.reservation
        return (
            known.uid not in self.allocations.stopping,
            candidate.vertex is self.vertex,
            allocation.priority,
            -known.since_seconds,
            known.uid,
        )

    def in_order(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return ``candidates`` in order; where their queue goes by usage, its heavy users' come before its others.

        Usage is compared within a queue only, so queues are merged by the first candidate that each has left: of two
        neighbours in the result the one that has to go first does, which sorting all together cannot promise.
        """
        by_queue: dict[Vertex, list[Candidate]] = {}
        for candidate in candidates:
            by_queue.setdefault(candidate.vertex, []).append(candidate)
        return list(merge(*map(self._in_order_of_one, by_queue.values()), key=self.order))

    def _in_order_of_one(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates of one queue in order."""
        ranks = self.ranks(candidates[0].vertex.name)
        if ranks is None:
            return sorted(candidates, key=self.order)

        def order(candidate: Candidate) -> tuple[object, ...]:
            uid = candidate.allocation.uid
            return uid not in self.allocations.stopping, -ranks.get(uid, 0.0), self.order(candidate)

        return sorted(candidates, key=order)


def may_stop_any(gang: Gang, queue: Queue, vertex: Vertex, allocations: Allocations) -> bool:
    """Return whether there might be any gangs that one of ``queue`` could stop, at a glance: False is certain."""
    rules = queue.preemption
    if gang.stops_nobody or rules.within_queue is rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return False
    lowest = allocations.lowest_priority(queue.name)
    if allocations.stopping or (lowest is not None and rules.may_stop_own(gang.priority, lowest)):
        return True
    reclaims = rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
    return reclaims and any(each is not vertex and each.reclaimable for each in allocations.borrowing(vertex.root))


def uses(allocation: Allocation, keys: Iterable[FlavorResource]) -> bool:
    """Return whether a gang holds any of ``keys``."""
    return any(map(allocation.amounts.get, keys))


def was_given(allocation: Allocation, keys: frozenset[FlavorResource]) -> bool:
    """Return whether a gang was given any of ``keys``. It is a candidate then, as in Kueue, though it may take none."""
    return not keys.isdisjoint(allocation.amounts)


def within_nominal(usage: Usage, vertex: Vertex, keys: Iterable[FlavorResource]) -> bool:
    """Return whether ``vertex`` uses at most what its subtree owns, for all of ``keys``."""
    return all(usage.of(vertex, key) <= vertex.subtree.get(key, 0) for key in keys)


def own_candidates(preemptor: Preemptor, needs: frozenset[FlavorResource]) -> list[Candidate]:
    """Return the candidates in the preemptor's own queue, in order."""
    policy = preemptor.queue.preemption.within_queue
    if policy is PreemptionPolicy.NEVER:
        return []
    found = [
        Candidate(allocation, preemptor.vertex, Variant.WITHIN_QUEUE)
        for allocation in preemptor.allocations.to_look_at(preemptor.vertex.name)
        if was_given(allocation, needs) and preemptor.may_stop(allocation, policy)
    ]
    return preemptor.in_order(found)


def may_be_stopped(preemptor: Preemptor, needs: frozenset[FlavorResource]) -> Iterator[Allocation]:
    """Yield all gangs that a search for ``needs`` might stop, by any rule; it stops no others."""
    rules, usage = preemptor.queue.preemption, preemptor.usage
    for vertex in preemptor.vertex.root.below():
        if not vertex.is_queue:
            continue
        policy = rules.within_queue if vertex is preemptor.vertex else rules.reclaim_within_cohort
        if policy is PreemptionPolicy.NEVER:
            continue
        if vertex is not preemptor.vertex and (not vertex.reclaimable or within_nominal(usage, vertex, needs)):
            continue
        for allocation in preemptor.allocations.to_look_at(vertex.name):
            if was_given(allocation, needs) and preemptor.may_stop(allocation, policy):
                yield allocation


def _reclaim_candidates(
    preemptor: Preemptor, amounts: AmountsByFlavor, needs: frozenset[FlavorResource], own: bool
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates of other queues: those with hierarchical advantage, and the others, each in order.

    ``own``: there are candidates in the preemptor's queue.
    """
    with_advantage: list[Candidate] = []
    without: list[Candidate] = []
    if preemptor.queue.preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return with_advantage, without
    advantage, rest = _fits_nominal(preemptor.usage, preemptor.vertex, amounts)
    # A queue that may not borrow and uses all it owns can take nothing back: only hierarchical advantage counts then.
    # Nor can one that the gang takes beyond what it owns, unless a gang of its own goes.
    within_own_quota = _below_nominal(preemptor, needs) and (advantage or own)
    takes_back = within_own_quota or not _may_not_borrow(preemptor)
    below: Vertex = preemptor.vertex
    for cohort in list(preemptor.vertex.path())[1:]:
        reach = _borrowing_queues(preemptor.usage, cohort, below, needs) if advantage or takes_back else ()
        for queue in reach:
            found = _of_queue(preemptor, queue, cohort, needs, advantage)
            (with_advantage if advantage else without).extend(found)
        fits, rest = _fits_nominal(preemptor.usage, cohort, rest)
        advantage, below = advantage or fits, cohort
    return preemptor.in_order(with_advantage), preemptor.in_order(without)


def _fits_nominal(usage: Usage, vertex: Vertex, amounts: AmountsByFlavor) -> tuple[bool, dict[FlavorResource, int]]:
    """Return whether ``amounts`` fit what ``vertex`` owns, and what of them lies beyond its private quota."""
    fits = not any(usage.borrowing_with(vertex, key, amount) for key, amount in amounts.items())
    return fits, {key: max(0, amount - usage.local_available(vertex, key)) for key, amount in amounts.items()}


def _borrowing_queues(usage: Usage, cohort: Vertex, but: Vertex, needs: frozenset[FlavorResource]) -> Iterable[Vertex]:
    """Yield the queues below ``cohort``, outside of ``but``, that borrow some of ``needs`` all the way up to it."""
    for child in cohort.children:
        if child is but or within_nominal(usage, child, needs):
            continue
        if child.is_queue:
            if child.reclaimable:
                yield child
        else:
            yield from _borrowing_queues(usage, child, but, needs)


def _of_queue(
    preemptor: Preemptor, queue: Vertex, top: Vertex, needs: frozenset[FlavorResource], advantage: bool
) -> list[Candidate]:
    rules, found = preemptor.queue.preemption, []
    for allocation in preemptor.allocations.to_look_at(queue.name):
        if not was_given(allocation, needs) or not preemptor.may_stop(allocation, rules.reclaim_within_cohort):
            continue
        threshold = rules.max_priority_threshold
        if advantage:
            variant = Variant.HIERARCHICAL
        elif (
            rules.borrow_within_cohort is PreemptionPolicy.NEVER
            or allocation.priority >= preemptor.gang.priority
            or (threshold is not None and allocation.priority > threshold)
        ):
            variant = Variant.WITHOUT_BORROWING
        else:
            variant = Variant.WHILE_BORROWING
        found.append(Candidate(allocation, queue, variant, top))
    return found


def classical_targets(
    preemptor: Preemptor, amounts: AmountsByFlavor, needs: frozenset[FlavorResource]
) -> list[Candidate]:
    """Return which gangs to stop so that ``amounts`` fit, where ``needs`` do not fit now; empty when nothing helps."""
    own = own_candidates(preemptor, needs)
    hierarchical, reclaim = _reclaim_candidates(preemptor, amounts, needs, bool(own))
    stopping = preemptor.allocations.stopping
    groups = (hierarchical, reclaim, own)
    ordered = [c for group in groups for c in group if c.allocation.uid in stopping]
    ordered += [c for group in groups for c in group if c.allocation.uid not in stopping]
    for borrowing in _attempts(preemptor, needs, bool(hierarchical), bool(reclaim)):
        found = _attempt(preemptor, ordered, amounts, needs, borrowing=borrowing)
        if found:
            return found
    return []


def _may_not_borrow(preemptor: Preemptor) -> bool:
    return preemptor.queue.preemption.borrow_within_cohort is PreemptionPolicy.NEVER


def _below_nominal(preemptor: Preemptor, needs: frozenset[FlavorResource]) -> bool:
    return all(preemptor.usage.of(preemptor.vertex, key) < preemptor.vertex.nominal(key) for key in needs)


def _attempts(
    preemptor: Preemptor, needs: frozenset[FlavorResource], hierarchical: bool, reclaim: bool
) -> tuple[bool, ...]:
    """Return in which order to search with borrowing allowed and forbidden."""
    may_not_borrow = _may_not_borrow(preemptor)
    if not (hierarchical or reclaim) or (may_not_borrow and not _below_nominal(preemptor, needs)):
        return (True,)
    if may_not_borrow and not hierarchical:
        return (False, True)
    return (True, False)


def _attempt(
    preemptor: Preemptor,
    candidates: list[Candidate],
    amounts: AmountsByFlavor,
    needs: frozenset[FlavorResource],
    *,
    borrowing: bool,
) -> list[Candidate]:
    removed: list[Candidate] = []
    found: list[Candidate] = []
    for candidate in candidates:
        if _still_valid(preemptor.usage, candidate, needs, borrowing):
            preemptor.take(candidate)
            removed.append(candidate)
            if preemptor.fits(amounts, borrowing):
                found = fill_back(preemptor, removed, amounts, borrowing=borrowing)
                removed = found
                break
    for candidate in removed:
        preemptor.give_back(candidate)
    return found


def _still_valid(usage: Usage, candidate: Candidate, needs: frozenset[FlavorResource], borrowing: bool) -> bool:
    """Return whether stopping the candidate still takes back something borrowed, after what was removed before."""
    if candidate.top is None:
        return True
    if borrowing and candidate.variant is Variant.WITHOUT_BORROWING:
        return False
    for vertex in candidate.vertex.path():
        if vertex is candidate.top:
            return True
        if within_nominal(usage, vertex, needs):
            return False
    return True


def fill_back(
    preemptor: Preemptor, removed: list[Candidate], amounts: AmountsByFlavor, *, borrowing: bool
) -> list[Candidate]:
    """Return the part of ``removed`` that has to go; the rest is put back into the view, the last but one first."""
    kept = list(removed)
    for index in range(len(kept) - 2, -1, -1):
        preemptor.give_back(kept[index])
        if preemptor.fits(amounts, borrowing):
            kept[index] = kept[-1]
            kept.pop()
        else:
            preemptor.take(kept[index])
    return kept


def mode_of(targets: Sequence[Candidate], vertex: Vertex) -> Mode:
    """Return what stopping ``targets`` is to a gang of queue ``vertex``."""
    if not targets:
        return Mode.NO_CANDIDATES
    return Mode.PREEMPT if any(target.vertex is vertex for target in targets) else Mode.RECLAIM
