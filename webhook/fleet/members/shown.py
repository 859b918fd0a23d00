"""The status of a copy, as the API server lets the hub's job show it. Pure.

A Job that is managed by somebody else than its controller has rules for its status (``pkg/registry/batch/job`` of
Kubernetes). Its copy's status may break them: an earlier copy showed more, in a member whose clock is ahead, and the
hub's job may have been made smaller since. What is refused would never show how the copy ended.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading import status
from webhook.untyped import paths
from webhook.untyped.values import integer, items, text

_INDEXES: Final = ("completedIndexes", "failedIndexes")
INDEX_DIGITS_MAX: Final = 10
"""Of an index of a Job: no API server writes more, and Python reads no number of thousands of digits."""
_ENDING: Final = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}
"""How a Job ends, and its condition while its last pods are going: once shown, nobody may take that away.

Kubernetes 1.32 refuses the former without the latter, which the Job controllers of 1.30 do not write.
"""


def shown(kind: JobKind, job: Mapping[str, Any], told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status of a copy, or one that says nothing, as the hub's job can show it."""
    return _of_job(job, told) if kind.key == "Job.batch" else told


def cleared(kind: JobKind, job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a suspended job of the hub shows once a run is over that was not its last; None where it does.

    By more the API server freezes its pod templates, and Tutti takes it for active.
    """
    suspended = kind.suspend is not None and paths.find(job, kind.suspend) is True
    if not suspended or not job.get("status") or status.finished(kind, job) is not None:
        return None
    left = shown(kind, job, {})
    return None if left == job["status"] else left


def ends_strangely(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, copy: Copy | None) -> bool:
    """Return whether a job of the hub says that it has ended, and no member has said so.

    An operator that is left in the hub writes that where no ``managedBy`` tells it to leave a job alone: its pods are
    refused there. ``copy`` is what was seen in the member that the record names.
    """
    if kind.managed_by is not None or status.finished(kind, job) is None:
        return False
    if dispatch.phase is DispatchPhase.OFFERED:
        # It had not ended when the offer was stored, and no member's word is shown before the grant.
        return True
    if dispatch.phase is not DispatchPhase.GRANTED or copy is None or copy.uid != dispatch.copy_uid:
        return False
    # An end is shown only while the copy says it, and is noted in the record at once.
    return not (copy.finished or copy.deleting)


def ending(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conditions by which a status says that its Job is about to end, for good or ill."""
    return _true(status, _ENDING.values())


def succeeds(kind: JobKind, obj: Mapping[str, Any]) -> bool:
    """Return whether a Job has met what it takes to succeed, which nobody takes back, complete or not."""
    status = paths.find_mapping(obj, ("status",))
    return kind.key == "Job.batch" and bool(_true(status, (_ENDING["Complete"],)))


def _true(status: Mapping[str, Any], kinds: Iterable[str]) -> list[dict[str, Any]]:
    told, wanted = items(status.get("conditions")), tuple(kinds)
    return [
        each for each in told if isinstance(each, dict) and each.get("type") in wanted and each.get("status") == "True"
    ]


def _lacking(told: Mapping[str, Any], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a status is to say too of how its Job ends: what led to that, or what is shown of it already."""
    said = {each["type"] for each in ending(told)}
    led = [{**each, "type": _ENDING[each["type"]]} for each in _true(told, _ENDING)]
    return [each for each in led or ending(before) if each["type"] not in said]


def _of_job(job: Mapping[str, Any], copied: Mapping[str, Any]) -> Mapping[str, Any]:
    spec, before = (paths.find_mapping(job, (part,)) for part in ("spec", "status"))
    told = dict(copied)
    if before.get("startTime") and spec.get("suspend") is not True:
        told["startTime"] = before["startTime"]
    if told.get("completionTime") and text(told["completionTime"]) < text(told.get("startTime")):
        told["completionTime"] = told["startTime"]
    completions, indexed = spec.get("completions"), spec.get("completionMode") == "Indexed"
    # Only the number of a Job's successes goes down, and only where its completions may.
    shrinks = indexed and completions == spec.get("parallelism")
    for key in ("failed",) if shrinks else ("failed", "succeeded"):
        if before.get(key):
            told[key] = max(integer(before.get(key)), integer(told.get(key)))
    if lacking := _lacking(told, before):
        told["conditions"] = [*items(told.get("conditions")), *lacking]
    for key in _INDEXES:
        if told.get(key) and type(completions) is int:
            told[key] = _below(text(told[key]), completions)
    return told


def _below(indexes: str, end: int) -> str:
    """Return those of ``0,2-4`` that are smaller than ``end``, in the same form."""
    kept = []
    for part in indexes.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and not _reaches(first, end):
            cut = dash and last.isdecimal() and _reaches(last, end)
            kept.append(part if not cut else first if int(first) == end - 1 else f"{first}-{end - 1}")
    return ",".join(kept)


def _reaches(index: str, end: int) -> bool:
    """Return whether an index, in decimal digits, is ``end`` or more; a member may write one of any length."""
    return len(index) > INDEX_DIGITS_MAX or int(index) >= end
