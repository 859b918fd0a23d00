"""The event on a hub's job that says where it runs, worded as those who know ACK One look for it. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.fleet.placement import Placement
from webhook.core.model.moments import time_text
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.job import read

REASON: Final = "ScheduleBindingSucceed"
_COMPONENT: Final = "tutti.dev/hub"


def bound(kind: JobKind, job: Mapping[str, Any], placement: Placement, now: float) -> dict[str, Any]:
    """Return the event that a granted gang has come into its member; one of an offer has always the same name."""
    record = read(kind, job, NO_CONTEXT)
    counts = {} if record.gang is None else record.gang.counts
    sets = " ".join(f"{{{name} {count}}}" for name, count in counts.items())
    seen = time_text(int(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{record.name[:200]}.{placement.offer}", "namespace": record.namespace},
        "firstTimestamp": seen,
        "lastTimestamp": seen,
        "count": 1,
        "source": {"component": _COMPONENT},
        "reason": REASON,
        "involvedObject": {
            "apiVersion": job["apiVersion"],
            "kind": kind.kind,
            "namespace": record.namespace,
            "name": record.name,
            "uid": record.uid,
        },
        "message": f"Binding has been scheduled successfully. Result: {{{placement.member}:0,[{sets}]}}",
        "type": "Normal",
    }
