"""What ``shown`` makes of a copy's status is taken by the real API server for a hub's Job; the status itself is not."""

import json
from typing import Any, Final

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.objects import job, pod_template
from tests.e2e.raw import send
from webhook.core.notation import names
from webhook.fleet.members.shown import cleared, shown
from webhook.jobs.kinds.registry import KINDS

JOB: Final = KINDS["Job.batch"]
START: Final = "2026-03-01T10:00:00Z"
AHEAD: Final = "2026-03-01T10:10:00Z"
ELASTIC: Final = {"completionMode": "Indexed", "backoffLimitPerIndex": 1}
RUNS: Final = {"startTime": START, "active": 2, "ready": 2}


def ended(**more: Any) -> dict[str, Any]:
    """A status as a Job controller writes it last."""
    conditions = [
        {"type": kind, "status": "True", "reason": "CompletionsReached", "message": "x", "lastTransitionTime": START}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    end = {"startTime": START, "completionTime": "2026-03-01T10:00:30Z", "succeeded": 4, "conditions": conditions}
    return end | more


ROWS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "a clock that was ahead": ({}, {**RUNS, "startTime": AHEAD}, {}, ended()),
    "more had failed elsewhere": ({"backoffLimit": 3}, {**RUNS, "failed": 2}, {}, ended(failed=1)),
    "more had succeeded elsewhere": ({}, {**RUNS, "succeeded": 2}, {}, {**RUNS, "succeeded": 1}),
    "more indexes than it shall have": (
        {"completionMode": "Indexed", "completions": 6},
        {**RUNS, "succeeded": 2, "completedIndexes": "0,1"},
        {},
        {**RUNS, "succeeded": 1, "completedIndexes": "0"},
    ),
    "made smaller": (ELASTIC, RUNS, {"parallelism": 2, "completions": 2}, ended(completedIndexes="0-3")),
    "made smaller, some failed": (
        ELASTIC,
        RUNS,
        {"parallelism": 2, "completions": 2},
        {**RUNS, "completedIndexes": "0,2", "failedIndexes": "1,3"},
    ),
    "ended by an old controller": ({}, RUNS, {}, ended(conditions=ended()["conditions"][1:])),
    "failed by an old controller": (
        {},
        RUNS,
        {},
        {"startTime": START, "failed": 4, "conditions": [{**ended()["conditions"][1], "type": "Failed"}]},
    ),
    "stopped as its last pods were going": (
        {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        {**RUNS, "succeeded": 1, "conditions": ended()["conditions"][:1]},
        {"suspend": True},
        {},
    ),
    "stopped after a failure": ({"backoffLimit": 3}, {**RUNS, "failed": 1, "succeeded": 1}, {"suspend": True}, {}),
}
"""What a Job is, what it shows, how it is changed, and what is to be shown then."""


def patch_status(admin: Kubectl, name: str, status: dict[str, Any]) -> tuple[int, bytes]:
    path = f"/apis/batch/v1/namespaces/{admin.namespace}/jobs/{name}/status"
    body = json.dumps([{"op": "add", "path": "/status", "value": status}]).encode()
    return send(admin, "PATCH", path, body, kind="application/json-patch+json")


@pytest.mark.parametrize("what", ROWS)
def test_a_status_that_is_refused_as_it_is_can_be_shown(admin: Kubectl, what: str) -> None:
    spec, before, change, told = ROWS[what]
    admin.create(job("train", 4, pod_template(), managedBy=names.HUB_MANAGER, **spec))
    assert patch_status(admin, "train", before)[0] == 200
    if change:
        admin("patch", "job", "train", f"--patch={json.dumps({'spec': change})}")
    refused, why = patch_status(admin, "train", told)
    assert (refused, b"status." in why) == (422, True), why
    stored = admin.get("job", "train")
    shows = cleared(JOB, stored) if change.get("suspend") else shown(JOB, stored, told)
    assert shows is not None
    taken, answer = patch_status(admin, "train", dict(shows))
    assert taken == 200, answer
    assert cleared(JOB, admin.get("job", "train")) is None


def test_a_job_that_was_suspended_too_late_takes_its_end(admin: Kubectl) -> None:
    admin.create(job("train", 4, pod_template(), managedBy=names.HUB_MANAGER))
    assert patch_status(admin, "train", RUNS)[0] == 200
    admin("patch", "job", "train", '--patch={"spec": {"suspend": true}}')
    shows = shown(JOB, admin.get("job", "train"), ended())
    assert shows is not None
    taken, answer = patch_status(admin, "train", dict(shows))
    assert taken == 200, answer
