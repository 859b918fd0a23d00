"""Events of a hub: on its job, where it runs, as those who know ACK One look for it; on a Secret, until when. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.fleet.placement import Placement
from webhook.core.model.moments import time_text
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.job import read

REASON: Final = "ScheduleBindingSucceed"
MEMBERS: Final = "tutti-hub-members"
"""The Secret of a hub's directory: one kubeconfig a member, named after it."""
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


def expiring(namespace: str, secret: str, member: str, until: float, now: float) -> dict[str, Any]:
    """Return the event that a member's credentials end soon; one an hour, for events are not kept much longer."""
    seen = time_text(int(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{secret[:100]}.{member[:100]}.{int(now // 3600)}", "namespace": namespace},
        "firstTimestamp": seen,
        "lastTimestamp": seen,
        "count": 1,
        "source": {"component": _COMPONENT},
        "reason": "CredentialsExpire",
        "involvedObject": {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": secret},
        "message": f"credentials of member {member} are good until {time_text(int(until))}: tutti fleet account",
        "type": "Warning",
    }
