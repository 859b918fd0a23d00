"""The text of a dispatch, as it stands in the annotation ``tutti.dev/dispatch`` of the hub's job, and of an offer."""

import json
from itertools import starmap, zip_longest
from typing import Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.failed_in import FailedIn

_NAMED: Final = (DispatchPhase.GRANTED, DispatchPhase.RECALLED)
OFFER_DIGITS: Final = 40


class UnreadableRecord(ValueError):
    """A record that was edited by hand: nothing is done with its job before somebody has looked."""


def encode(dispatch: Dispatch) -> str:
    """Return the text of a dispatch."""
    fields: dict[str, str | list[str]] = {
        "phase": dispatch.phase.value,
        "offer": str(dispatch.offer),
        "member": dispatch.member,
        "cluster": dispatch.cluster,
        "copy": dispatch.copy_uid,
        "version": dispatch.copy_version,
        "why": dispatch.why,
        "failed": [each.member for each in dispatch.failed],
        "failedClusters": [each.cluster for each in dispatch.failed],
        "stops": str(dispatch.stops_after_seconds or ""),
        "grace": str(dispatch.grace_seconds or ""),
        "waits": dispatch.waits,
        "elsewhere": list(dispatch.elsewhere),
        "suspended": dispatch.suspended_by,
        "never": "true" if dispatch.never else "",
    }
    return json.dumps({key: value for key, value in fields.items() if value}, separators=(",", ":"))


def decode(written: object) -> Dispatch:
    """Return the dispatch that was written. Raises UnreadableRecord."""
    try:
        fields = json.loads(written)  # type: ignore[arg-type]
        phase, offer = DispatchPhase(fields["phase"]), offer_of(fields["offer"])
        told = [fields.get(key, "") for key in ("member", "cluster", "copy", "version", "why", "waits", "suspended")]
        member, cluster, copy, version, why, waits, by = (each if isinstance(each, str) else "" for each in told)
        elsewhere, names, clusters = (_texts(fields.get(key)) for key in ("elsewhere", "failed", "failedClusters"))
        # A hub of an earlier version wrote no clusters.
        failed = tuple(starmap(FailedIn, zip_longest(names, clusters[: len(names)], fillvalue="")))
        never = fields.get("never") == "true"
        stops, grace = _seconds(fields.get("stops")), _seconds(fields.get("grace"))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableRecord(f"it is not what a hub wrote: {error!r}") from error
    if (phase is not DispatchPhase.NOWHERE and not (member and cluster)) or (phase in _NAMED and not copy):
        raise UnreadableRecord(f"it says {phase} and not where")
    return Dispatch(
        phase, offer, member, cluster, copy, version, why, failed, stops, waits, elsewhere, never, grace, by
    )


def _seconds(written: object) -> int:
    return int(written) if isinstance(written, str) and written.isdecimal() and len(written) < OFFER_DIGITS else 0


def _texts(written: object) -> tuple[str, ...]:
    return tuple(each for each in written if isinstance(each, str)) if isinstance(written, list) else ()


def offer_of(written: object) -> Offer:
    """Return the offer written as ``EPOCH.NUMBER``. Raises ValueError."""
    epoch, dot, number = written.partition(".") if isinstance(written, str) else ("", "", "")
    if not (dot and epoch.isdecimal() and number.isdecimal() and len(epoch) + len(number) < OFFER_DIGITS):
        raise ValueError(f"{written!r} is not an offer")
    return Offer(int(epoch), int(number))
