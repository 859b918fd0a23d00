"""Conditions of a status: reading one, setting one."""

from typing import Any

from webhook.laboratory.simulated.requests.refusals import Json


def is_true(status: Json | None, kind: str) -> bool:
    """Return whether the condition of that type is there and True."""
    return any(c["type"] == kind and c["status"] == "True" for c in (status or {}).get("conditions") or ())


def with_condition(  # noqa: PLR0917
    status: Json, kind: str, value: str, now: str, reason: str = "", message: str = "", **more: Any
) -> Json:
    """Return ``status`` with one condition set; its transition time moves only when its value does."""
    conditions = list(status.get("conditions") or ())
    known = next((c for c in conditions if c["type"] == kind), None)
    since = known["lastTransitionTime"] if known is not None and known["status"] == value else now
    fresh = {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message, **more}
    fresh = {key: entry for key, entry in fresh.items() if entry}
    if known is None:
        return {**status, "conditions": [*conditions, fresh]}
    return {**status, "conditions": [fresh if c is known else c for c in conditions]}
