"""Queues that were deleted although gangs run in them: what these hold stays charged where it was.

Such a queue keeps its place below its cohort, owns nothing, and admits nothing, until the last of them has gone. Only
who saw it can know its cohort: a process that starts later shows the queue, and charges no cohort for it.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Final

from webhook.core.model.policy import Cohort, Policy, Queue, heir

DELETED: Final = "Deleted"
_WHY: Final = "the queue was deleted while gangs ran in it"


def with_deleted(policy: Policy, before: Policy, holding: Set[str]) -> Policy:
    """Return ``policy`` with the queues that it lacks and that are ``holding`` gangs, as they were in ``before``."""
    gone: dict[str, Queue] = {}
    for name in sorted(holding - policy.queues.keys()):
        known = before.queues.get(name)
        # A queue with a path for a name has its heir in the tree, unless the whole tree is gone.
        if heir(name, policy.cohorts) is None and (known is not None or "/" not in name):
            gone[name] = _left(known or Queue(name, "kueue"))
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
    return empty or any("/" not in name for name in holding - policy.queues.keys())


def _left(queue: Queue) -> Queue:
    return Queue(queue.name, queue.dialect, cohort=queue.cohort, inactive=_WHY, inactive_reason=DELETED)
