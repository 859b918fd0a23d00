"""Trees of minimum and maximum (ElasticQuotaTree, Volcano's queues) as cohorts and queues, exactly.

A vertex says: everything below me together may use at most ``maximum``; ``minimum`` of it is mine even when others ask;
of that, what exceeds ``lendable`` is kept for me even when I do not use it. A leaf becomes a queue, an inner vertex a
cohort:

    own nominal      minimum - sum of the children's minimums, so that the quota of the subtree is the minimum again
    borrowing limit  maximum - minimum; none when there is no maximum
    lending limit    lendable
    at the root      own nominal = maximum - sum of the children's minimums: nothing lies above to borrow from

Where a root has no maximum for a resource, that resource is bounded below it only. A leaf with no maximum on its whole
path does not declare it (and its queue ignores what it does not declare); for the other leaves the root is given the
sum of what its children can use, which never binds. Only after a maximum was lowered below its use may such a root hold
siblings back, until the excess has ended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from webhook.core.model.policy import Cohort, FlavorQuotas, Quota, ResourceGroup


@dataclass(slots=True)
class LimitVertex:
    """One vertex of a tree; amounts in thousandths. An absent maximum is unlimited, an absent minimum 0."""

    name: str
    """Name of the queue (leaf) or cohort (inner vertex) that it becomes."""
    minimum: Mapping[str, int] = field(default_factory=dict)
    maximum: Mapping[str, int] = field(default_factory=dict)
    lendable: Mapping[str, int] = field(default_factory=dict)
    """Most of the minimum that is lent; absent means all of it."""
    children: list["LimitVertex"] = field(default_factory=list)

    def walk(self) -> Iterator["LimitVertex"]:
        """Yield this vertex and everything below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a tree becomes: quota per vertex name, and the cohorts; the dialect makes the queues."""

    groups: Mapping[str, tuple[ResourceGroup, ...]]
    parents: Mapping[str, str | None]
    cohorts: tuple[Cohort, ...]


def compile_tree(root: LimitVertex, flavor: str, weights: Mapping[str, int] | None = None) -> Compiled:
    """Return the cohorts of a tree and the quota of each of its vertices, accounted in one ``flavor``.

    Expects what validation ensures: minimum <= maximum at each vertex, and the children's minimums within the parent's.
    """
    resources = sorted({name for vertex in root.walk() for name in (*vertex.maximum, *vertex.minimum)})
    quotas: dict[str, dict[str, Quota]] = {vertex.name: {} for vertex in root.walk()}
    for resource in resources:
        _root(root, resource, quotas)
    groups = {name: _groups(flavor, by_resource) for name, by_resource in quotas.items()}
    parents: dict[str, str | None] = {root.name: None}
    parents.update({child.name: vertex.name for vertex in root.walk() for child in vertex.children})
    cohorts = tuple(
        Cohort(vertex.name, parents[vertex.name], groups[vertex.name], (weights or {}).get(vertex.name, 1000))
        for vertex in root.walk()
        if vertex.children
    )
    return Compiled(groups, parents, cohorts)


def _root(root: LimitVertex, resource: str, quotas: dict[str, dict[str, Quota]]) -> None:
    capacity = _capacity(root, resource)
    if capacity is None:
        return
    limited = resource in root.maximum
    below = sum(_subtree(child, resource, limited, quotas) or 0 for child in root.children)
    quotas[root.name][resource] = Quota(max(0, capacity - below))


def _subtree(vertex: LimitVertex, resource: str, limited: bool, quotas: dict[str, dict[str, Quota]]) -> int | None:
    """Write the quotas of ``resource`` at and below ``vertex`` and return the quota of the subtree.

    ``limited`` says whether a vertex above has a maximum; without any, a leaf is free of this resource: None.
    """
    limit = vertex.maximum.get(resource)
    limited = limited or limit is not None
    parts = [_subtree(child, resource, limited, quotas) for child in vertex.children]
    if not limited and all(part is None for part in parts):
        return None
    own = vertex.minimum.get(resource, 0) - sum(child.minimum.get(resource, 0) for child in vertex.children)
    quota = own + sum(part for part in parts if part is not None)
    borrowing = None if limit is None else limit - quota
    quotas[vertex.name][resource] = Quota(own, borrowing, vertex.lendable.get(resource))
    return quota


def _capacity(vertex: LimitVertex, resource: str) -> int | None:
    """Return the most that can be used below ``vertex`` by leaves that something bounds; None when nothing does."""
    limit = vertex.maximum.get(resource)
    if limit is not None:
        return limit
    bounds = [bound for child in vertex.children if (bound := _capacity(child, resource)) is not None]
    return sum(bounds) if bounds else None


def _groups(flavor: str, quotas: Mapping[str, Quota]) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup(tuple(quotas), (FlavorQuotas(flavor, quotas),)),) if quotas else ()
