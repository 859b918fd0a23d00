"""Queues and cohorts that were deleted although gangs run in or below them: what these hold stays charged where it was.

A deleted queue keeps its place below its cohort, owns nothing, and admits nothing, until the last of them has gone. A
deleted cohort keeps its place too, owns nothing, and what is below it no longer borrows or lends. A process that saw
them knows which cohort they were in; another reads it in the ledger's entry of the last of these gangs. A queue of an
ElasticQuotaTree is below the nearest cohort of its path that is left.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from webhook.core.ledger.record import Reservation
from webhook.core.model.policy import Cohort, FlavorQuotas, Policy, Queue, Quota, ResourceGroup, heir
from webhook.dialects import elastic_quota_tree
from webhook.dialects.kueue import objects as kueue

DELETED: Final = "Deleted"
_WHY: Final = "the queue was deleted while gangs ran in it"


@dataclass(frozen=True, slots=True)
class Known:
    """What somebody has to remember of policies that were."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    """As they were last read: all there are, and those that are gone and hold gangs still."""
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    """The same of cohorts that are above such queues; and what the ledger said of those that were never read."""


def with_deleted(
    policy: Policy, known: Known, holding: Set[str], entries: Iterable[Reservation]
) -> tuple[Policy, Known]:
    """Return ``policy`` with what it lacks of queues that are ``holding`` gangs, and of what these are below: as it was
    ``known``, or else as their ``entries`` in the ledger say; and what is to be known when it changes.
    """
    missing, told = _missing(policy, holding), _Told(entries)
    left = {name: _left(name, policy, known.queues.get(name), told) for name in missing}
    # Of the others there is no more than a name.
    stated = {name: cohort for name, cohort in policy.cohorts.items() if cohort != Cohort(name)}
    queues, cohorts = {**policy.queues, **left}, {**known.cohorts, **stated}
    for name in sorted(holding & queues.keys()):
        _remember_above(name, queues[name].cohort, cohorts, told)
    needed = _above(holding, queues, cohorts)
    gone = {name: cohorts[name] for name in needed - stated.keys() if cohorts[name].parent is not None}
    known = Known(
        {**{name: queue for name, queue in known.queues.items() if name in holding}, **queues},
        {**{name: cohorts[name] for name in needed}, **stated},
    )
    if not left and not gone:
        return policy, known
    named = {queue.cohort: Cohort(queue.cohort) for queue in left.values() if queue.cohort is not None}
    closed = {name: _closed(cohort, policy) for name, cohort in gone.items()}
    return replace(policy, queues=queues, cohorts={**named, **policy.cohorts, **closed}), known


def is_deleted(queue: Queue) -> bool:
    """Return whether a queue of a policy is one that was deleted."""
    return queue.inactive_reason == DELETED


def outdated(policy: Policy, known: Known, holding: Set[str]) -> bool:
    """Return whether something deleted in ``policy`` is no longer needed, or something is missing that holds gangs, or
    nobody has looked yet what something was below that does.
    """
    if _missing(policy, holding) or any(is_deleted(q) and name not in holding for name, q in policy.queues.items()):
        return True
    needed = _above(holding, policy.queues, policy.cohorts)
    unneeded = any(cohort.is_deleted and name not in needed for name, cohort in policy.cohorts.items())
    return unneeded or not needed <= known.cohorts.keys()


def _missing(policy: Policy, holding: Set[str]) -> list[str]:
    """Return the queues that need a place: not those that a cohort of their name, or a leaf above, replaced."""
    found = {name: heir(name, policy.cohorts, policy.queues) for name in sorted(holding - policy.queues.keys())}
    return [name for name, above in found.items() if above is None or (above != name and above in policy.cohorts)]


class _Told:
    """What the ledger says that queues were below: read once it is asked."""

    def __init__(self, entries: Iterable[Reservation]) -> None:
        self._entries = entries
        self._found: dict[str, tuple[float, str, tuple[str, ...]]] | None = None

    def of(self, queue: str) -> tuple[str, ...]:
        """Return below what the youngest entry of ``queue`` was admitted.

        A queue may have moved between two admissions. All processes have to choose the same, whatever they read first.
        """
        if self._found is None:
            self._found = {}
            for entry in self._entries:
                if entry.queue is not None and entry.cohorts:
                    admission = (entry.since_seconds, entry.uid, entry.cohorts)
                    self._found[entry.queue] = max(admission, self._found.get(entry.queue, admission))
        return self._found[queue][2] if queue in self._found else ()


def _left(name: str, policy: Policy, known: Queue | None, told: _Told) -> Queue:
    cohort = known.cohort if known is not None else next(iter(told.of(name)), None)
    in_tree = "/" in name
    dialect = (elastic_quota_tree if in_tree else kueue).DIALECT if known is None else known.dialect
    above = heir(name, policy.cohorts) or cohort
    return Queue(name, dialect, cohort=above, inactive=_WHY, inactive_reason=DELETED)


def _remember_above(queue: str, cohort: str | None, cohorts: dict[str, Cohort], told: _Told) -> None:
    """Add to ``cohorts`` those above a queue about which nothing is known: they may be only named, or gone."""
    met: set[str] = set()
    while cohort is not None and cohort not in met:
        met.add(cohort)
        if cohort not in cohorts:
            # What the ledger says of one it says of all above it; where the queue has moved since, of none.
            cohorts[cohort] = Cohort(cohort, dict(pairwise(told.of(queue))).get(cohort))
        cohort = cohorts[cohort].parent


def _above(queues: Iterable[str], known: Mapping[str, Queue], cohorts: Mapping[str, Cohort]) -> set[str]:
    """Return the cohorts above ``queues``."""
    found: set[str] = set()
    for name in queues:
        cohort = known[name].cohort if name in known else None
        while cohort is not None and cohort not in found:
            found.add(cohort)
            cohort = cohorts[cohort].parent if cohort in cohorts else None
    return found


def _closed(cohort: Cohort, policy: Policy) -> Cohort:
    """Return what is left of a deleted cohort: what is charged below it reaches what is above, and no more passes."""
    none = Quota(borrowing_limit=0, lending_limit=0)
    quotas: dict[str, dict[str, Quota]] = {}
    groups = [group for queue in policy.queues.values() for group in queue.resource_groups]
    groups += [group for other in policy.cohorts.values() for group in other.resource_groups]
    for group in groups:
        for flavor in group.flavors:
            quotas.setdefault(flavor.flavor, {}).update(dict.fromkeys(group.resources, none))
    nothing = tuple(ResourceGroup(tuple(each), (FlavorQuotas(flavor, each),)) for flavor, each in quotas.items())
    return Cohort(cohort.name, cohort.parent, nothing, cohort.weight_millis, is_deleted=True)
