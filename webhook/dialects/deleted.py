"""Queues that were deleted although gangs run in them: what these hold stays charged where it was.

Such a queue keeps its place below its cohort, owns nothing, and admits nothing, until the last of them has gone. Who
saw the queue knows its cohort; who did not reads in the ledger below which one they were admitted. A queue of an
ElasticQuotaTree is below the nearest cohort of its path that is left.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from webhook.core.model.policy import Cohort, Policy, Queue, heir
from webhook.dialects import elastic_quota_tree, kueue

DELETED: Final = "Deleted"
_WHY: Final = "the queue was deleted while gangs ran in it"


def with_deleted(policy: Policy, before: Policy, holding: Set[str], cohorts: Mapping[str, str]) -> Policy:
    """Return ``policy`` with the queues that it lacks and that are ``holding`` gangs, as they were in ``before``, or
    else below what ``cohorts`` (by queue) says.
    """
    gone = {name: _left(name, policy, before.queues.get(name), cohorts.get(name)) for name in _missing(policy, holding)}
    if not gone:
        return policy
    named = {queue.cohort: Cohort(queue.cohort) for queue in gone.values() if queue.cohort is not None}
    return replace(policy, queues={**policy.queues, **gone}, cohorts={**named, **policy.cohorts})


def is_deleted(queue: Queue) -> bool:
    """Return whether a queue of a policy is one that was deleted."""
    return queue.inactive_reason == DELETED


def outdated(policy: Policy, holding: Set[str]) -> bool:
    """Return whether a deleted queue of ``policy`` holds nothing any more, or one is missing that holds something."""
    empty = any(is_deleted(queue) and name not in holding for name, queue in policy.queues.items())
    return empty or bool(_missing(policy, holding))


def _missing(policy: Policy, holding: Set[str]) -> list[str]:
    """Return the queues that need a place: not those of which a cohort of their name, or a leaf above, took over."""
    found = {name: heir(name, policy.cohorts, policy.queues) for name in sorted(holding - policy.queues.keys())}
    return [name for name, above in found.items() if above is None or (above != name and above in policy.cohorts)]


def _left(name: str, policy: Policy, known: Queue | None, cohort: str | None) -> Queue:
    if known is not None and not is_deleted(known):
        cohort = known.cohort
    in_tree = "/" in name
    dialect = (elastic_quota_tree if in_tree else kueue).DIALECT if known is None else known.dialect
    above = heir(name, policy.cohorts) or cohort
    return Queue(name, dialect, cohort=above, inactive=_WHY, inactive_reason=DELETED)
