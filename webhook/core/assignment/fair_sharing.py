"""Fair sharing: the dominant resource share of queues and cohorts, and preemption that evens it out.

A vertex's share is the largest part, over resources, that it borrows of what its parent could lend, in thousandths,
divided by its weight; a vertex that owns all it uses has share 0, a weightless one that borrows an infinite share. Two
strategies of Kueue say when a gang may stop another: its side's share afterwards is at most the other's without the
victim (``LessThanOrEqualToFinalShare``), or below the other's as it is (``LessThanInitialShare``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from webhook.core.assignment.preemption import (
    Candidate,
    Preemptor,
    Variant,
    classical_targets,
    fill_back,
    own_candidates,
    was_given,
    within_nominal,
)
from webhook.core.model.policy import PreemptionPolicy
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import COUNTED
from webhook.core.quota.tree import AmountsByFlavor, Usage, Vertex

Share = tuple[int, Fraction]
"""(1 when infinite, value): compares as shares do; two infinite ones by their unweighted value."""

NO_SHARE: Share = (0, Fraction(0))
INITIAL_SHARE = "LessThanInitialShare"


def share(usage: Usage, vertex: Vertex) -> Share:
    """Return the dominant resource share of ``vertex``, weighted."""
    if vertex.parent is None:
        return NO_SHARE
    borrowed: dict[str, int] = {}
    for key, owned in vertex.subtree.items():
        excess = usage.of(vertex, key) - owned
        if excess > 0 and key.resource not in COUNTED:
            borrowed[key.resource] = borrowed.get(key.resource, 0) + excess
    if not borrowed:
        return NO_SHARE
    lendable = vertex.parent.lendable
    ratio = max(
        (Fraction(1000 * amount, lendable[name]) for name, amount in borrowed.items() if lendable.get(name, 0) > 0),
        default=Fraction(0),
    )
    if vertex.weight_millis == 0:
        return (1, ratio)
    return (0, ratio * 1000 / vertex.weight_millis)


def borrows(usage: Usage, vertex: Vertex) -> bool:
    """Return whether ``vertex`` uses more of anything than its subtree owns: its share is 0 if nobody lends of that."""
    return vertex.parent is not None and any(
        usage.of(vertex, key) > owned for key, owned in vertex.subtree.items() if key.resource not in COUNTED
    )


@dataclass(slots=True)
class _Search:
    """A search for victims under way: what is removed so far, and who may still be asked."""

    preemptor: Preemptor
    amounts: AmountsByFlavor
    needs: frozenset[FlavorResource]
    pending: dict[Vertex, list[Candidate]] = field(default_factory=dict)
    removed: list[Candidate] = field(default_factory=list)

    @property
    def usage(self) -> Usage:
        return self.preemptor.usage

    def fits(self) -> bool:
        """Return whether the gang, whose usage is in the view, fits: no vertex on its path is over its limits."""
        self.usage.remove(self.preemptor.vertex, self.amounts)
        fits = self.preemptor.fits(self.amounts, borrowing=True)
        self.usage.add(self.preemptor.vertex, self.amounts)
        return fits

    def remove(self, candidate: Candidate) -> bool:
        """Take a candidate out and return whether the gang fits now."""
        self.preemptor.take(candidate)
        self.removed.append(candidate)
        return self.fits()

    def next_queue(self) -> Vertex | None:
        """Return the queue to take from next: from the top down, always into the largest share."""
        vertex = self.preemptor.vertex.root
        path = set(map(id, self.preemptor.vertex.path()))
        while not vertex.is_queue:
            best = self._heaviest(vertex, path)
            if best is None:
                return None
            vertex = best
        return vertex if self.pending.get(vertex) else None

    def _heaviest(self, cohort: Vertex, path: set[int]) -> Vertex | None:
        queues, cohorts = [], []
        for child in cohort.children:
            if id(child) not in path and not borrows(self.usage, child):
                continue
            if child.is_queue:
                if self.pending.get(child):
                    queues.append(child)
            elif any(self.pending.get(queue) for queue in child.below() if self._reachable(queue, child, path)):
                cohorts.append(child)
        best_queue = max(queues, key=lambda q: share(self.usage, q), default=None)
        if best_queue is not None:
            heaviest = share(self.usage, best_queue)
            tied = [q for q in queues if share(self.usage, q) == heaviest]
            best_queue = min(tied, key=lambda q: self.preemptor.order(self.pending[q][0]))
        best_cohort = max(cohorts, key=lambda c: share(self.usage, c), default=None)
        if best_queue is None or best_cohort is None:
            return best_queue or best_cohort
        return best_cohort if share(self.usage, best_cohort) >= share(self.usage, best_queue) else best_queue

    def _reachable(self, queue: Vertex, top: Vertex, path: set[int]) -> bool:
        """Return whether every vertex from ``queue`` up to ``top`` borrows or is the preemptor's own."""
        if not queue.is_queue:
            return False
        for vertex in queue.path():
            if id(vertex) not in path and not borrows(self.usage, vertex):
                return False
            if vertex is top:
                return True
        return True

    def sides(self, target: Vertex) -> tuple[Vertex, Vertex]:
        """Return the two vertices to compare: the children of the lowest common cohort on either side."""
        mine = list(self.preemptor.vertex.path())
        below = target
        for vertex in list(target.path())[1:]:
            if vertex in mine:
                return mine[mine.index(vertex) - 1], below
            below = vertex
        return mine[0], target


def fair_targets(
    preemptor: Preemptor, amounts: AmountsByFlavor, needs: frozenset[FlavorResource], *, lasting: bool
) -> list[Candidate]:
    """Return which gangs to stop so that ``amounts`` fit, by shares; empty when nothing helps.

    With ``lasting``, also when one of them could take its room back by right. Kueue stops them all the same, and the
    two stop each other for ever. A gang that yields takes back what its queue owns and no more, for the same reason:
    each stop evens shares out, and what others do with the rest of the room can undo it.
    """
    preemptor.usage.add(preemptor.vertex, amounts)
    # As it stands: what its own victims leave behind entitles the gang to nobody else's.
    entitled = within_nominal(preemptor.usage, preemptor.vertex, needs)
    pending: dict[Vertex, list[Candidate]] = {}
    own = own_candidates(preemptor, needs)
    if own:
        pending[preemptor.vertex] = own
    rule = preemptor.queue.preemption.reclaim_within_cohort
    if (
        rule is not PreemptionPolicy.NEVER
        and preemptor.vertex.parent is not None
        and (entitled or not preemptor.yields)
    ):
        for vertex in preemptor.vertex.root.below():
            if not vertex.is_queue or vertex is preemptor.vertex or not vertex.reclaimable:
                continue
            if within_nominal(preemptor.usage, vertex, needs):
                continue
            found = [
                Candidate(allocation, vertex, Variant.FAIR_SHARING)
                for allocation in preemptor.allocations.to_look_at(vertex.name)
                if was_given(allocation, needs) and preemptor.may_stop(allocation, rule)
            ]
            if found:
                pending[vertex] = preemptor.in_order(found)
    search = _Search(preemptor, amounts, needs, pending)
    done, retry = _first_pass(search, preemptor.strategies[0], entitled=entitled)
    if not done and len(preemptor.strategies) > 1:
        done = _second_pass(search, retry)
    preemptor.usage.remove(preemptor.vertex, amounts)
    kept = fill_back(preemptor, search.removed, amounts, borrowing=True) if done else search.removed
    undone = lasting and any(_held_by_own(search, candidate) for candidate in kept)
    for candidate in kept:
        preemptor.give_back(candidate)
    return kept if done and not undone else []


def _held_by_own(search: _Search, candidate: Candidate) -> bool:
    """Return whether a gang stopped for its share would fit what its own side owns, with all the others gone."""
    if candidate.variant is not Variant.FAIR_SHARING:
        return False
    side = search.sides(candidate.vertex)[1]
    search.preemptor.give_back(candidate)
    path = list(candidate.vertex.path())
    held = any(within_nominal(search.usage, vertex, search.needs) for vertex in path[: path.index(side) + 1])
    search.preemptor.take(candidate)
    return held


def _first_pass(search: _Search, strategy: str, *, entitled: bool) -> tuple[bool, list[Candidate]]:
    """Take from the heaviest queues what ``strategy`` allows; return whether that sufficed, and which it spared.

    An ``entitled`` gang's queue owns all that it would use: it takes from whoever borrows.
    """
    retry: list[Candidate] = []
    while True:
        queue = search.next_queue()
        if queue is None:
            return False, retry
        candidates = search.pending[queue]
        if queue is search.preemptor.vertex:
            if search.remove(candidates.pop(0)):
                return True, retry
            continue
        if entitled:
            taken = candidates.pop(0)
            if search.remove(replace(taken, variant=Variant.HIERARCHICAL)):
                return True, retry
            continue
        while candidates:
            candidate = candidates.pop(0)
            if not _allowed(search, candidate, strategy):
                retry.append(candidate)
                continue
            if search.remove(candidate):
                return True, retry
            break


def _second_pass(search: _Search, retry: list[Candidate]) -> bool:
    """Give each spared queue one more chance to give, by the weaker strategy."""
    search.pending = {}
    for candidate in retry:
        search.pending.setdefault(candidate.vertex, []).append(candidate)
    while True:
        queue = search.next_queue()
        if queue is None:
            return False
        candidate = search.pending[queue][0]
        if _allowed(search, candidate, INITIAL_SHARE) and search.remove(candidate):
            return True
        del search.pending[queue]


def _allowed(search: _Search, candidate: Candidate, strategy: str) -> bool:
    mine, theirs = search.sides(candidate.vertex)
    my_share = share(search.usage, mine)
    if strategy == INITIAL_SHARE:
        return my_share < share(search.usage, theirs)
    search.preemptor.take(candidate)
    final = share(search.usage, theirs)
    search.preemptor.give_back(candidate)
    return my_share <= final


def targets_of(
    preemptor: Preemptor, *, lasting: bool
) -> Callable[[AmountsByFlavor, frozenset[FlavorResource]], list[Candidate]]:
    """Return the search that the settings ask for; ``lasting`` as in ``fair_targets``."""

    def search(amounts: AmountsByFlavor, needs: frozenset[FlavorResource]) -> list[Candidate]:
        if preemptor.strategies:
            return fair_targets(preemptor, amounts, needs, lasting=lasting)
        return classical_targets(preemptor, amounts, needs)

    return search
