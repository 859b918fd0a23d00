"""The quota tree: what each queue and cohort owns, lends, borrows and uses, per flavor and resource.

The words and the arithmetic are Kueue's; every dialect compiles to them. With, at vertex n and for one flavor resource:

    subtree(queue)     nominal                         local(n)   max(0, subtree - lending limit), 0 without a limit
    subtree(cohort)    nominal + sum over children of (subtree - local)
    usage(cohort)      sum over children of max(0, usage - local)
    available(root)    subtree - usage                 (negative after a quota was lowered below its usage)
    available(n)       max(0, local - usage) + min(available(parent), borrowing room)
    borrowing room     subtree - local - max(0, usage - local) + borrowing limit; without bound where none is set
    potential(root)    subtree
    potential(n)       local + potential(parent), at most subtree + borrowing limit

Quota below ``local`` is private: it never reaches the parent, in either direction. A borrowing limit caps what is
drawn from the parent at each level. ``QuotaTree`` is what the policy says and never changes; ``Usage`` is what is
taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import ref

from webhook.core.model.policy import Cohort, Policy, Queue, Quota, ResourceGroup
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import COUNTED

AmountsByFlavor = Mapping[FlavorResource, int]
"""Flavor and resource to thousandths."""


def for_people(amounts: AmountsByFlavor) -> dict[str, int]:
    """Return amounts as people are told them: by resource over all flavors, without what only Tutti counts by."""
    total: dict[str, int] = {}
    for key, amount in amounts.items():
        if not key.is_internal:
            total[key.resource] = total.get(key.resource, 0) + amount
    return total


@dataclass(slots=True, eq=False, weakref_slot=True)
class Vertex:
    """A queue or a cohort with everything that follows from the policy alone.

    It keeps who is above it, and only its tree keeps those below: the vertices of a tree that another one has followed
    go when nothing refers to them, without the garbage collector, which seldom looks (``gc_pauses``).
    """

    name: str
    is_queue: bool
    index: int
    quotas: dict[FlavorResource, Quota]
    weight_millis: int
    reclaimable: bool = True
    """What a queue borrows may be taken back by reclaiming."""
    parent: "Vertex | None" = None
    _children: list["ref[Vertex]"] = field(default_factory=list)
    height: int = 0
    """Distance to the deepest leaf below; 0 for a queue."""
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    local: dict[FlavorResource, int] = field(default_factory=dict)
    """Private quota; only entries above 0."""
    borrowing: dict[FlavorResource, int] = field(default_factory=dict)
    """Borrowing limits, where one is set and there is a parent to borrow from."""
    lendable: dict[str, int] = field(default_factory=dict)
    """Of a cohort: per resource, the most it could ever use, over all flavors of its tree."""

    _potential: dict[FlavorResource, int] = field(default_factory=dict)
    """What ``potential`` found before: the policy of a vertex never changes."""
    _indexes: tuple[int, ...] = ()
    """Those of the vertex and all below it, once somebody asked."""
    _above: tuple["Vertex", ...] = field(default=(), repr=False)

    @property
    def root(self) -> "Vertex":
        """The top of this vertex's tree."""
        return self._above[-1] if self._above else self

    @property
    def children(self) -> list["Vertex"]:
        """Those right below, as long as the tree is kept that they are of."""
        return [child for each in self._children if (child := each()) is not None]

    def path(self) -> tuple["Vertex", ...]:
        """Return this vertex and its ancestors, upwards."""
        return (self, *self._above)

    def below(self) -> Iterator["Vertex"]:
        """Yield this vertex and its descendants, parents first."""
        yield self
        for child in self.children:
            if child.is_queue:
                yield child
            else:
                yield from child.below()

    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of this vertex and its descendants."""
        if not self._indexes:
            self._indexes = tuple(vertex.index for vertex in self.below())
        return self._indexes

    def nominal(self, key: FlavorResource) -> int:
        """Return the vertex's own nominal quota."""
        quota = self.quotas.get(key)
        return 0 if quota is None else quota.nominal

    def potential(self, key: FlavorResource) -> int:
        """Return the most this vertex could ever use, were everything else idle."""
        known = self._potential.get(key)
        if known is not None:
            return known
        reach = subtree = self.subtree.get(key, 0)
        if self.parent is not None:
            reach = self.local.get(key, 0) + self.parent.potential(key)
            limit = self.borrowing.get(key)
            if limit is not None:
                reach = min(subtree + limit, reach)
        self._potential[key] = reach
        return reach

    def __str__(self) -> str:
        return f"{'queue' if self.is_queue else 'cohort'} {self.name}"


class QuotaTree:
    """All queues and cohorts of one policy. Cohorts that are only named exist too, without quota of their own.

    A tree made after a ``previous`` one takes over its vertices wherever nothing has changed from the root down, and a
    name keeps its index, so that what was counted there still holds.
    """

    def __init__(self, policy: Policy, previous: "QuotaTree | None" = None) -> None:
        self.indexes: dict[tuple[bool, str], int] = {} if previous is None else previous.indexes
        self.vertices: list[Vertex] = []
        self.queues: dict[str, Vertex] = {}
        self.cohorts: dict[str, Vertex] = {}
        for name in _cohort_names(policy):
            self.cohorts[name] = self._vertex(name, policy.cohorts.get(name))
        for name in sorted(policy.queues):
            self.queues[name] = self._vertex(name, policy.queues[name])
        for name, vertex in self.cohorts.items():
            cohort = policy.cohorts.get(name)
            self._attach(vertex, None if cohort is None else cohort.parent)
        for name, vertex in self.queues.items():
            self._attach(vertex, policy.queues[name].cohort)
        for root in [vertex for vertex in self.vertices if vertex.parent is None]:
            _settle(root)
            for below in root.below():
                if not below.is_queue:
                    below.lendable = _lendable(below, root)
        if previous is not None:
            self._take_over(previous)

    def find(self, name: str) -> Vertex | None:
        """Return the queue of that name, else the cohort of that name."""
        return self.queues.get(name) or self.cohorts.get(name)

    def _vertex(self, name: str, source: Queue | Cohort | None) -> Vertex:
        groups = () if source is None else source.resource_groups
        weight = 1000 if source is None else source.weight_millis
        is_queue = isinstance(source, Queue)
        index = self.indexes.setdefault((is_queue, name), len(self.indexes))
        reclaimable = not isinstance(source, Queue) or source.reclaimable
        vertex = Vertex(name, is_queue, index, dict(_quotas(groups)), weight, reclaimable)
        self.vertices.append(vertex)
        return vertex

    def _take_over(self, previous: "QuotaTree") -> None:
        for root in [vertex for vertex in self.vertices if vertex.parent is None]:
            known = (previous.queues if root.is_queue else previous.cohorts).get(root.name)
            if known is not None and known.parent is None and _same(known, root):
                for vertex in known.below():
                    (self.queues if vertex.is_queue else self.cohorts)[vertex.name] = vertex
        self.vertices = [*self.cohorts.values(), *self.queues.values()]

    def _attach(self, vertex: Vertex, parent_name: str | None) -> None:
        above = parent = None if parent_name is None else self.cohorts[parent_name]
        while above is not None and above is not vertex:
            above = above.parent
        if parent is None or above is not None:
            # A cycle of cohorts is cut here; the dialect has deactivated every queue below it.
            return
        vertex.parent = parent
        parent._children.append(ref(vertex))


def _same(left: Vertex, right: Vertex) -> bool:
    """Return whether two subtrees say the same. Children are in one order: by kind and name."""
    return (
        (left.name, left.is_queue, left.weight_millis) == (right.name, right.is_queue, right.weight_millis)
        and left.reclaimable is right.reclaimable
        and left.quotas == right.quotas
        and len(left.children) == len(right.children)
        and all(_same(a, b) for a, b in zip(left.children, right.children, strict=True))
    )


def _lendable(cohort: Vertex, root: Vertex) -> dict[str, int]:
    total: dict[str, int] = {}
    for key in root.subtree:
        total[key.resource] = total.get(key.resource, 0) + cohort.potential(key)
    return total


def _cohort_names(policy: Policy) -> list[str]:
    named = {queue.cohort for queue in policy.queues.values()} | {c.parent for c in policy.cohorts.values()}
    return sorted(set(policy.cohorts) | {name for name in named if name is not None})


def _quotas(groups: Iterable[ResourceGroup]) -> Iterator[tuple[FlavorResource, Quota]]:
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                yield FlavorResource(flavor.flavor, resource), quota


def _settle(vertex: Vertex) -> None:
    """Compute what follows from who is above, and from the quotas, children first."""
    if vertex.parent is not None:
        vertex._above = vertex.parent.path()
    for child in vertex.children:
        _settle(child)
    vertex.height = 1 + max((child.height for child in vertex.children), default=-1)
    vertex.subtree = {key: quota.nominal for key, quota in vertex.quotas.items()}
    for child in vertex.children:
        for key, amount in child.subtree.items():
            vertex.subtree[key] = vertex.subtree.get(key, 0) + amount - child.local.get(key, 0)
    if vertex.parent is None:
        return
    for key, quota in vertex.quotas.items():
        if quota.lending_limit is not None and vertex.subtree[key] > quota.lending_limit:
            vertex.local[key] = vertex.subtree[key] - quota.lending_limit
        if quota.borrowing_limit is not None:
            vertex.borrowing[key] = quota.borrowing_limit


class Usage:
    """What is taken at every vertex of one tree, kept incrementally."""

    __slots__ = ("_taken", "tree")

    def __init__(self, tree: QuotaTree, taken: list[dict[FlavorResource, int]] | None = None) -> None:
        self.tree = tree
        self._taken: list[dict[FlavorResource, int]] = [{} for _ in tree.indexes] if taken is None else taken

    def copy(self) -> "Usage":
        """Return an independent copy."""
        return Usage(self.tree, [dict(taken) for taken in self._taken])

    def copy_of(self, root: Vertex) -> "Usage":
        """Return a copy in which one tree can be charged independently; the others are shared."""
        taken = list(self._taken)
        for index in root.indexes():
            taken[index] = dict(taken[index])
        return Usage(self.tree, taken)

    def of(self, vertex: Vertex, key: FlavorResource) -> int:
        """Return what ``vertex`` uses of its parent's and its own quota."""
        return self._taken[vertex.index].get(key, 0)

    def all_of(self, vertex: Vertex) -> dict[FlavorResource, int]:
        """Return everything ``vertex`` uses."""
        return dict(self._taken[vertex.index])

    def less_than(self, other: "Usage", vertex: Vertex) -> bool:
        """Return whether ``vertex`` uses less of anything here than there."""
        mine, theirs = self._taken[vertex.index], other._taken[vertex.index]
        return mine != theirs and any(mine.get(key, 0) < amount for key, amount in theirs.items())

    def add(self, queue: Vertex, amounts: AmountsByFlavor) -> None:
        """Charge ``amounts`` to ``queue``; what exceeds private quota bubbles up."""
        for key, change in amounts.items():
            vertex: Vertex | None = queue
            amount = change
            while vertex is not None and amount > 0:
                taken = self._taken[vertex.index]
                before = taken.get(key, 0)
                taken[key] = before + amount
                private = vertex.local.get(key, 0) - before
                if private > 0:
                    amount -= private
                vertex = vertex.parent

    def charge(self, vertex: Vertex, amounts: AmountsByFlavor) -> None:
        """Set what ``vertex`` uses to what was counted elsewhere; nothing bubbles up."""
        self._taken[vertex.index] = dict(amounts)

    def remove(self, queue: Vertex, amounts: AmountsByFlavor) -> None:
        """Return ``amounts`` of ``queue``: the exact reverse of ``add``."""
        for key, change in amounts.items():
            vertex: Vertex | None = queue
            amount = change
            while vertex is not None and amount > 0:
                taken = self._taken[vertex.index]
                before = taken[key]
                taken[key] = before - amount
                amount = min(amount, before - vertex.local.get(key, 0))
                vertex = vertex.parent

    def available(self, vertex: Vertex, key: FlavorResource) -> int:
        """Return what ``vertex`` could take now; negative where the tree is oversubscribed."""
        used = self._taken[vertex.index].get(key, 0)
        subtree = vertex.subtree.get(key, 0)
        if vertex.parent is None:
            return subtree - used
        local = vertex.local.get(key, 0)
        reach = self.available(vertex.parent, key)
        limit = vertex.borrowing.get(key)
        if limit is not None:
            reach = min(reach, subtree - local - max(0, used - local) + limit)
        return reach + max(0, local - used)

    def fits(self, queue: Vertex, amounts: AmountsByFlavor) -> bool:
        """Return whether ``queue`` can take all of ``amounts`` now."""
        return all(amount <= max(0, self.available(queue, key)) for key, amount in amounts.items())

    def local_available(self, vertex: Vertex, key: FlavorResource) -> int:
        """Return the unused part of the vertex's private quota."""
        return max(0, vertex.local.get(key, 0) - self._taken[vertex.index].get(key, 0))

    def borrowing_with(self, vertex: Vertex, key: FlavorResource, amount: int) -> bool:
        """Return whether ``vertex`` would exceed its subtree's quota with ``amount`` more."""
        return self._taken[vertex.index].get(key, 0) + amount > vertex.subtree.get(key, 0)

    def borrow_level(self, queue: Vertex, key: FlavorResource, amount: int) -> tuple[int, bool]:
        """Return how high in the tree ``queue`` must borrow to take ``amount`` (0: not at all), and whether quota
        above that height could still be reclaimed for it.
        """
        if key.resource in COUNTED or not self.borrowing_with(queue, key, amount) or queue.parent is None:
            return 0, queue.parent is not None
        rest = amount - self.local_available(queue, key)
        vertex, top = queue.parent, queue.parent
        while True:
            if not self.borrowing_with(vertex, key, rest):
                return vertex.height, vertex.parent is not None
            rest -= self.local_available(vertex, key)
            top = vertex
            if vertex.parent is None:
                return top.height, False
            vertex = vertex.parent

    def highest_level(self, queue: Vertex, amounts: AmountsByFlavor) -> int:
        """Return the highest borrow level that taking ``amounts`` would need."""
        return max((self.borrow_level(queue, key, amount)[0] for key, amount in amounts.items()), default=0)

    def unused_nominal(self, queue: Vertex, key: FlavorResource) -> int:
        """Return how much of its nominal quota ``queue`` does not use and nobody has borrowed: what it could keep to
        itself without touching what others own and leave idle.
        """
        own = queue.nominal(key) - self.of(queue, key)
        for child in queue.path():
            cohort = child.parent
            if cohort is None:
                break
            idle = sum(self._lent_idle(c, key) for c in cohort.children if c is not child)
            own = min(own, cohort.subtree.get(key, 0) - self.of(cohort, key) - idle)
        return max(0, own)

    def _lent_idle(self, vertex: Vertex, key: FlavorResource) -> int:
        local = vertex.local.get(key, 0)
        return max(0, vertex.subtree.get(key, 0) - local - max(0, self.of(vertex, key) - local))

    def headroom(self, vertex: Vertex, key: FlavorResource) -> int:
        """Return what may pass ``vertex`` beyond its private quota by its own rule: a root's unused quota, another's
        borrowing room. A vertex without borrowing limit never refuses.
        """
        used, subtree = self._taken[vertex.index].get(key, 0), vertex.subtree.get(key, 0)
        if vertex.parent is None:
            return subtree - used
        local = vertex.local.get(key, 0)
        return subtree - local - max(0, used - local) + vertex.borrowing[key]

    def scarcest(self, queue: Vertex, key: FlavorResource, amount: int) -> Vertex:
        """Return the vertex at which most is missing for ``amount`` at ``queue``, the lowest if several are short of
        as much: so much has to become free there before all of it can be had.
        """
        rest, most, found = amount, 0, queue
        for vertex in queue.path():
            if vertex.parent is not None:
                rest -= self.local_available(vertex, key)
            if vertex.parent is None or key in vertex.borrowing:
                missing = rest - self.headroom(vertex, key)
                if missing > most:
                    most, found = missing, vertex
        return found

    def binding(self, queue: Vertex, key: FlavorResource, amount: int) -> tuple[Vertex, int] | None:
        """Return the vertex whose limit or quota refuses ``amount`` to ``queue``, the lowest if several do, and what
        of the amount arrives there after private quota below; None if nobody refuses.

        A vertex that is over its own quota refuses even what private quota below would cover.
        """
        rest = amount
        for vertex in queue.path():
            if vertex.parent is not None:
                rest -= self.local_available(vertex, key)
            if (vertex.parent is None or key in vertex.borrowing) and rest > self.headroom(vertex, key):
                return vertex, rest
        return None
