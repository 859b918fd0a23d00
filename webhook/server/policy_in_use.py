"""Deleting policy that holds gangs: refused, because what runs there would be charged to nobody.

Kueue keeps such objects by a finalizer until they are empty; Tutti refuses at once, and names the gangs. The deletion
of a namespace takes its LocalQueues with it, whatever they hold: its jobs go too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import some
from webhook.dialects import elastic_quota_tree, volcano
from webhook.dialects.fragment import Source
from webhook.dialects.kueue import objects as kueue

NAMESPACE_CONTROLLER: Final = "system:serviceaccount:kube-system:namespace-controller"
_NAMED_MAX: Final = 5
_STOP: Final = "or set spec.stopPolicy: HoldAndDrain, which stops what it holds"
_FIXES: Final = {
    (kueue.GROUP, "ClusterQueue"): _STOP,
    (kueue.GROUP, "LocalQueue"): _STOP,
    (kueue.GROUP, "Cohort"): "or move its queues to another cohort first",
    (kueue.GROUP, "ResourceFlavor"): "or set spec.stopPolicy: HoldAndDrain of the queues that use it",
    (kueue.GROUP, "Topology"): "or set spec.stopPolicy: HoldAndDrain of the queues that use its flavors",
    (volcano.GROUP, volcano.KIND): "or close it first, so that nothing new starts",
    (elastic_quota_tree.GROUP, elastic_quota_tree.KIND): "",
}


def why_kept(source: Source, view: View) -> str | None:
    """Return why an object of policy may not go now, with who holds it and what to do; None when it may."""
    return _told(str(source), _holders(source, view), _FIXES.get((source.group, source.kind), ""))


def why_leaf_kept(old: Mapping[str, object], new: Mapping[str, object], view: View) -> str | None:
    """Return why a leaf that a change takes out of the ElasticQuotaTree may not go now; None when all may."""
    before, after = elastic_quota_tree.compile_object(old), elastic_quota_tree.compile_object(new)
    kept = {queue.name for queue in after.queues} | {cohort.name for cohort in after.cohorts}
    for leaf in sorted({queue.name for queue in before.queues} - kept):
        holders = (entry for entry in view.ledger.entries.values() if entry.queue == leaf)
        why = _told(f"leaf {leaf} of {after.source}", holders)
        if why is not None:
            return why
    return None


def _told(what: str, holding: Iterable[Reservation], fix: str = "") -> str | None:
    holders = sorted(holding, key=lambda reservation: reservation.key)
    if not holders:
        return None
    named = some(holders, _NAMED_MAX, lambda reservation: reservation.key)
    gangs, ended, those = counted(len(holders), "gang"), "they have", "them"
    if len(holders) == 1:
        gangs, ended, those = "a gang", "it has", "it"
    return f"{what} holds {gangs} ({named}): wait until {ended} ended, or delete {those}{fix and '; '}{fix}"


def _holders(source: Source, view: View) -> Iterator[Reservation]:
    place, entries = (source.group, source.kind), view.ledger.entries.values()
    if place == (kueue.GROUP, "LocalQueue"):
        yield from (entry for entry in entries if _came_by(entry, source, view))
    elif place == (kueue.GROUP, "ResourceFlavor"):
        yield from (entry for entry in entries if _of_flavors(entry, {source.name}, view))
    elif place == (kueue.GROUP, "Topology"):
        flavors = {name for name, flavor in view.policy.flavors.items() if flavor.topology == source.name}
        yield from (entry for entry in entries if _of_flavors(entry, flavors, view))
    elif place in _FIXES:
        queues = _queues_of(source, view)
        yield from (entry for entry in entries if entry.queue in queues)


def _queues_of(source: Source, view: View) -> set[str]:
    """Return the queues that would go with an object, or lose what it gives them."""
    policy = view.policy
    if source.kind == elastic_quota_tree.KIND:
        return {name for name, queue in policy.queues.items() if queue.dialect == elastic_quota_tree.DIALECT}
    if source.kind == "ClusterQueue":
        return {source.name}
    cohort = source.name if source.kind == "Cohort" else volcano.cohort_name(source.name)
    own = set() if source.kind == "Cohort" else {source.name}
    return own | {name for name, queue in policy.queues.items() if cohort in _above(queue.cohort, view)}


def _above(cohort: str | None, view: View) -> Iterator[str]:
    seen: set[str] = set()
    while cohort is not None and cohort not in seen:
        seen.add(cohort)
        yield cohort
        known = view.policy.cohorts.get(cohort)
        cohort = None if known is None else known.parent


def _came_by(entry: Reservation, local: Source, view: View) -> bool:
    job = view.jobs.get(entry.uid)
    named = job is not None and job.queue_label == local.name and entry.namespace == local.namespace
    known = view.policy.local_queues.get((local.namespace, local.name))
    return named and known is not None and known.queue == entry.queue


def _of_flavors(entry: Reservation, flavors: set[str], view: View) -> bool:
    queue = view.policy.queues.get(entry.queue or "")
    ours = queue is not None and queue.dialect == kueue.DIALECT
    return ours and any(not flavors.isdisjoint(pod_set.flavors.values()) for pod_set in entry.pod_sets)
