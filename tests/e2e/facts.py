"""What tests want to know about gangs: what their owners were told, and whether they were ever partly created."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.e2e.kubectl import Kubectl
from tests.e2e.watching import Watch
from webhook.core.notation import names

CREATION_SECONDS: Final = 8.0
"""More than a controller needs to create or remove the pods of a small gang on a busy machine, and far less than any
time-out of Tutti's."""


def told(owner: Kubectl, job: str, reason: str = "") -> list[str]:
    """Return the events on a job, oldest first, each as ``Reason: message``; those of one reason when it is given."""
    picked = f"involvedObject.name={job}" + (f",reason={reason}" if reason else "")
    found = owner.items("events", fields=picked)
    found.sort(key=lambda event: event.get("eventTime") or event["metadata"]["creationTimestamp"])
    return [f"{event['reason']}: {event['message']}" for event in found]


def uid_of(owner: Kubectl, kind: str, name: str) -> str:
    """Return an object's uid: what its gang's pods carry as a label."""
    return str(owner.get(kind, name)["metadata"]["uid"])


def annotation(owner: Kubectl, kind: str, name: str, key: str) -> dict[str, Any]:
    """Return one of Tutti's annotations on a job, decoded; empty when the job has none."""
    found = owner.get(kind, name)["metadata"].get("annotations", {})
    decoded: dict[str, Any] = json.loads(found.get(key, "{}"))
    return decoded


def pods_of(pods: Mapping[str, dict[str, Any]], uid: str) -> int:
    """Return how many of some pods belong to one gang."""
    return sum(1 for pod in pods.values() if pod["metadata"].get("labels", {}).get(names.GANG_LABEL) == uid)


def partly_created(watch: Watch, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return, by the uid of each gang, the longest time in seconds for which some of its pods existed and some did not.

    ``sizes`` is how many pods each gang has when it is whole. The record must end at rest: the last state counts too.
    """
    states = watch.live()
    longest = dict.fromkeys(sizes, 0.0)
    for uid, size in sizes.items():
        since: float | None = None
        for at_seconds, pods in states:
            partly = 0 < pods_of(pods, uid) < size
            if since is not None:
                longest[uid] = max(longest[uid], at_seconds - since)
            since = (at_seconds if since is None else since) if partly else None
        assert since is None, f"gang {uid} is partly created at the end"
    return longest


def most_together(watch: Watch, *uids: str) -> list[int]:
    """Return, of every instant, the largest number of gangs among ``uids`` that had a pod, and of pods they had."""
    gangs = pods = 0
    for _, existing in watch.live():
        counts = [pods_of(existing, uid) for uid in uids]
        gangs, pods = max(gangs, sum(1 for count in counts if count)), max(pods, sum(counts))
    return [gangs, pods]
