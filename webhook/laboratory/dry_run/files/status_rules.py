"""What no API server would store in a Workload's status and times.

Taken as absent it would change decisions: a gang that holds quota would wait, and another one start.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.laboratory.dry_run.files.objects import label
from webhook.wire.times import unix_seconds

_STATUSES: Final = ("True", "False", "Unknown", True, False)
"""Of a condition; YAML without quotes makes booleans of them."""
_CHECK_STATES: Final = ("Pending", "Ready", "Retry", "Rejected")


def problems_of(obj: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the times and the status of a Workload."""
    found: list[Problem] = []
    at = Field(obj, "", found)
    _check_time(at["metadata"]["creationTimestamp"])
    status = at["status"]
    status.mapping()
    _check_conditions(status["conditions"])
    _check_admission(status["admission"])
    status["requeueState"].mapping()
    _check_time(status["requeueState"]["requeueAt"])
    status["requeueState"]["count"].integer(least=0)
    for check in status["admissionChecks"].items():
        check.mapping()
        if check["state"].value not in _CHECK_STATES:
            check["state"].error("is not a state of an admission check", f"write one of {', '.join(_CHECK_STATES)}")
        _check_time(check["lastTransitionTime"])
    return [problem.within(f"{label(obj)}#") for problem in found]


def _check_conditions(at: Field) -> None:
    seen = set()
    for condition in at.items():
        condition.mapping()
        kind = condition["type"].text()
        if not kind or kind in seen:
            condition["type"].error("is not the only condition of its type", "write each type once")
        seen.add(kind)
        if condition["status"].value not in _STATUSES:
            condition["status"].error("is not a status of a condition", "write 'True', 'False' or 'Unknown'")
        condition["reason"].text()
        _check_time(condition["lastTransitionTime"])


def _check_admission(at: Field) -> None:
    at.mapping()
    seen = set()
    for assignment in at["podSetAssignments"].items():
        assignment.mapping()
        name = assignment["name"].text() or "main"
        if name in seen:
            assignment["name"].error("another assignment is for this pod set", "write one for each")
        seen.add(name)
        assignment["count"].integer(least=0)
        for flavor in assignment["flavors"].mapping().values():
            flavor.text()
        for amount in assignment["resourceUsage"].mapping().values():
            amount.amount()


def _check_time(at: Field) -> None:
    text = at.text()
    try:
        if text:
            unix_seconds(text)
    except (ValueError, OverflowError):
        at.error("is not a time", "write it as 2026-01-31T12:00:00Z")
