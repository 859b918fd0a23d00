"""The quota tree: what each queue and cohort owns, lends, borrows and uses, per flavor and resource.

The words and the arithmetic are Kueue's; every dialect compiles to them. With, at node n and for one flavor resource:

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


@dataclass(slots=True, eq=False)
class Node:
    """A queue or a cohort with everything that follows from the policy alone."""

    name: str
    is_queue: bool
    index: int
    quotas: dict[FlavorResource, Quota]
    weight_millis: int
    reclaimable: bool = True
    """What a queue borrows may be taken back by reclaiming."""
    parent: "Node | None" = None
    children: list["Node"] = field(default_factory=list)
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
    """What ``potential`` found before: the policy of a node never changes."""
    _indexes: tuple[int, ...] = ()
    """Those of the node and all below it, once somebody asked."""

    @property
    def root(self) -> "Node":
        """The top of this node's tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path(self) -> Iterator["Node"]:
        """Yield this node and its ancestors, upwards."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def below(self) -> Iterator["Node"]:
        """Yield this node and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.below()

    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of this node and its descendants."""
        if not self._indexes:
            self._indexes = tuple(node.index for node in self.below())
        return self._indexes

    def nominal(self, key: FlavorResource) -> int:
        """Return the node's own nominal quota."""
        quota = self.quotas.get(key)
        return 0 if quota is None else quota.nominal

    def potential(self, key: FlavorResource) -> int:
        """Return the most this node could ever use, were everything else idle."""
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

    A tree made after a ``previous`` one takes over its nodes wherever nothing has changed from the root down, and a
    name keeps its index, so that what was counted there still holds.
    """

    def __init__(self, policy: Policy, previous: "QuotaTree | None" = None) -> None:
        self.indexes: dict[tuple[bool, str], int] = {} if previous is None else previous.indexes
        self.nodes: list[Node] = []
        self.queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        for name in _cohort_names(policy):
            self.cohorts[name] = self._node(name, policy.cohorts.get(name))
        for name in sorted(policy.queues):
            self.queues[name] = self._node(name, policy.queues[name])
        for name, node in self.cohorts.items():
            cohort = policy.cohorts.get(name)
            self._attach(node, None if cohort is None else cohort.parent)
        for name, node in self.queues.items():
            self._attach(node, policy.queues[name].cohort)
        for root in [node for node in self.nodes if node.parent is None]:
            _settle(root)
            for below in root.below():
                if not below.is_queue:
                    below.lendable = _lendable(below, root)
        if previous is not None:
            self._take_over(previous)

    def find(self, name: str) -> Node | None:
        """Return the queue of that name, else the cohort of that name."""
        return self.queues.get(name) or self.cohorts.get(name)

    def _node(self, name: str, source: Queue | Cohort | None) -> Node:
        groups = () if source is None else source.resource_groups
        weight = 1000 if source is None else source.weight_millis
        is_queue = isinstance(source, Queue)
        index = self.indexes.setdefault((is_queue, name), len(self.indexes))
        reclaimable = not isinstance(source, Queue) or source.reclaimable
        node = Node(name, is_queue, index, dict(_quotas(groups)), weight, reclaimable)
        self.nodes.append(node)
        return node

    def _take_over(self, previous: "QuotaTree") -> None:
        for root in [node for node in self.nodes if node.parent is None]:
            known = (previous.queues if root.is_queue else previous.cohorts).get(root.name)
            if known is not None and known.parent is None and _same(known, root):
                for node in known.below():
                    (self.queues if node.is_queue else self.cohorts)[node.name] = node
        self.nodes = [*self.cohorts.values(), *self.queues.values()]

    def _attach(self, node: Node, parent_name: str | None) -> None:
        parent = None if parent_name is None else self.cohorts[parent_name]
        if parent is None or node in parent.path():
            # A cycle of cohorts is cut here; the dialect has deactivated every queue below it.
            return
        node.parent = parent
        parent.children.append(node)


def _same(left: Node, right: Node) -> bool:
    """Return whether two subtrees say the same. Children are in one order: by kind and name."""
    return (
        (left.name, left.is_queue, left.weight_millis) == (right.name, right.is_queue, right.weight_millis)
        and left.reclaimable is right.reclaimable
        and left.quotas == right.quotas
        and len(left.children) == len(right.children)
        and all(_same(a, b) for a, b in zip(left.children, right.children, strict=True))
    )


def _lendable(cohort: Node, root: Node) -> dict[str, int]:
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


def _settle(node: Node) -> None:
    """Compute what follows from the quotas, children first."""
    for child in node.children:
        _settle(child)
    node.height = 1 + max((child.height for child in node.children), default=-1)
    node.subtree = {key: quota.nominal for key, quota in node.quotas.items()}
    for child in node.children:
        for key, amount in child.subtree.items():
            node.subtree[key] = node.subtree.get(key, 0) + amount - child.local.get(key, 0)
    if node.parent is None:
        return
    for key, quota in node.quotas.items():
        if quota.lending_limit is not None and node.subtree[key] > quota.lending_limit:
            node.local[key] = node.subtree[key] - quota.lending_limit
        if quota.borrowing_limit is not None:
            node.borrowing[key] = quota.borrowing_limit


class Usage:
    """What is taken at every node of one tree, kept incrementally."""

    __slots__ = ("_taken", "tree")

    def __init__(self, tree: QuotaTree, taken: list[dict[FlavorResource, int]] | None = None) -> None:
        self.tree = tree
        self._taken: list[dict[FlavorResource, int]] = [{} for _ in tree.indexes] if taken is None else taken

    def copy(self) -> "Usage":
        """Return an independent copy."""
        return Usage(self.tree, [dict(taken) for taken in self._taken])

    def copy_of(self, root: Node) -> "Usage":
        """Return a copy in which one tree can be charged independently; the others are shared."""
        taken = list(self._taken)
        for index in root.indexes():
            taken[index] = dict(taken[index])
        return Usage(self.tree, taken)

    def of(self, node: Node, key: FlavorResource) -> int:
        """Return what ``node`` uses of its parent's and its own quota."""
        return self._taken[node.index].get(key, 0)

    def all_of(self, node: Node) -> dict[FlavorResource, int]:
        """Return everything ``node`` uses."""
        return dict(self._taken[node.index])

    def less_than(self, other: "Usage", node: Node) -> bool:
        """Return whether ``node`` uses less of anything here than there."""
        mine, theirs = self._taken[node.index], other._taken[node.index]
        return mine != theirs and any(mine.get(key, 0) < amount for key, amount in theirs.items())

    def add(self, queue: Node, amounts: AmountsByFlavor) -> None:
        """Charge ``amounts`` to ``queue``; what exceeds private quota bubbles up."""
        for key, change in amounts.items():
            node: Node | None = queue
            amount = change
            while node is not None and amount > 0:
                taken = self._taken[node.index]
                before = taken.get(key, 0)
                taken[key] = before + amount
                private = node.local.get(key, 0) - before
                if private > 0:
                    amount -= private
                node = node.parent

    def charge(self, node: Node, amounts: AmountsByFlavor) -> None:
        """Set what ``node`` uses to what was counted elsewhere; nothing bubbles up."""
        self._taken[node.index] = dict(amounts)

    def remove(self, queue: Node, amounts: AmountsByFlavor) -> None:
        """Return ``amounts`` of ``queue``: the exact reverse of ``add``."""
        for key, change in amounts.items():
            node: Node | None = queue
            amount = change
            while node is not None and amount > 0:
                taken = self._taken[node.index]
                before = taken[key]
                taken[key] = before - amount
                amount = min(amount, before - node.local.get(key, 0))
                node = node.parent

    def available(self, node: Node, key: FlavorResource) -> int:
        """Return what ``node`` could take now; negative where the tree is oversubscribed."""
        used = self._taken[node.index].get(key, 0)
        subtree = node.subtree.get(key, 0)
        if node.parent is None:
            return subtree - used
        local = node.local.get(key, 0)
        reach = self.available(node.parent, key)
        limit = node.borrowing.get(key)
        if limit is not None:
            reach = min(reach, subtree - local - max(0, used - local) + limit)
        return reach + max(0, local - used)

    def fits(self, queue: Node, amounts: AmountsByFlavor) -> bool:
        """Return whether ``queue`` can take all of ``amounts`` now."""
        return all(amount <= max(0, self.available(queue, key)) for key, amount in amounts.items())

    def local_available(self, node: Node, key: FlavorResource) -> int:
        """Return the unused part of the node's private quota."""
        return max(0, node.local.get(key, 0) - self._taken[node.index].get(key, 0))

    def borrowing_with(self, node: Node, key: FlavorResource, amount: int) -> bool:
        """Return whether ``node`` would exceed its subtree's quota with ``amount`` more."""
        return self._taken[node.index].get(key, 0) + amount > node.subtree.get(key, 0)

    def borrow_level(self, queue: Node, key: FlavorResource, amount: int) -> tuple[int, bool]:
        """Return how high in the tree ``queue`` must borrow to take ``amount`` (0: not at all), and whether quota
        above that height could still be reclaimed for it.
        """
        if key.resource in COUNTED or not self.borrowing_with(queue, key, amount) or queue.parent is None:
            return 0, queue.parent is not None
        rest = amount - self.local_available(queue, key)
        node, top = queue.parent, queue.parent
        while True:
            if not self.borrowing_with(node, key, rest):
                return node.height, node.parent is not None
            rest -= self.local_available(node, key)
            top = node
            if node.parent is None:
                return top.height, False
            node = node.parent

    def highest_level(self, queue: Node, amounts: AmountsByFlavor) -> int:
        """Return the highest borrow level that taking ``amounts`` would need."""
        return max((self.borrow_level(queue, key, amount)[0] for key, amount in amounts.items()), default=0)

    def own_unused(self, queue: Node, key: FlavorResource) -> int:
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

    def _lent_idle(self, node: Node, key: FlavorResource) -> int:
        local = node.local.get(key, 0)
        return max(0, node.subtree.get(key, 0) - local - max(0, self.of(node, key) - local))

    def headroom(self, node: Node, key: FlavorResource) -> int:
        """Return what may pass ``node`` beyond its private quota by its own rule: a root's unused quota, another's
        borrowing room. A node without borrowing limit never refuses.
        """
        used, subtree = self._taken[node.index].get(key, 0), node.subtree.get(key, 0)
        if node.parent is None:
            return subtree - used
        local = node.local.get(key, 0)
        return subtree - local - max(0, used - local) + node.borrowing[key]

    def scarcest(self, queue: Node, key: FlavorResource, amount: int) -> Node:
        """Return the node at which most is missing for ``amount`` at ``queue``, the lowest one if several are short of
        as much: so much has to become free there before all of it can be had.
        """
        rest, most, found = amount, 0, queue
        for node in queue.path():
            if node.parent is not None:
                rest -= self.local_available(node, key)
            if node.parent is None or key in node.borrowing:
                missing = rest - self.headroom(node, key)
                if missing > most:
                    most, found = missing, node
        return found

    def binding(self, queue: Node, key: FlavorResource, amount: int) -> tuple[Node, int] | None:
        """Return the node whose limit or quota refuses ``amount`` to ``queue``, the lowest one if several do, and what
        of the amount arrives there after private quota below; None if nobody refuses.

        A node that is over its own quota refuses even what private quota below would cover.
        """
        rest = amount
        for node in queue.path():
            if node.parent is not None:
                rest -= self.local_available(node, key)
            if (node.parent is None or key in node.borrowing) and rest > self.headroom(node, key):
                return node, rest
        return None
