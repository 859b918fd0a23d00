"""The status of a copy, as the API server lets the hub's job show it. Pure."""

from collections.abc import Mapping
from typing import Any

from webhook.jobs.kinds.kind import JobKind
from webhook.untyped import paths
from webhook.untyped.values import integer


def shown(kind: JobKind, job: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of a copy as the hub's job can show it.

    The API server lets nobody change the start time of a Job that is not suspended, or make the number of its pods that
    succeeded or failed smaller: where an earlier copy showed more, that stays.
    """
    before = paths.find_mapping(job, ("status",))
    if kind.key != "Job.batch" or not before.get("startTime"):
        return status
    if kind.suspend and paths.find(job, kind.suspend) is True:
        return status
    # Of indexes the API server lets the number that succeeded go down, and compares it with their list.
    grow = ("failed",) if paths.find(job, ("spec", "completionMode")) == "Indexed" else ("failed", "succeeded")
    counted = {key: max(integer(before.get(key)), integer(status.get(key))) for key in grow if before.get(key)}
    return {**status, "startTime": before["startTime"], **counted}
