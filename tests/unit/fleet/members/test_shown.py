"""What a hub's Job shows of its copy's status: nothing that the API server refuses as a step back."""

from typing import Any

import pytest

from webhook.fleet.members.copies import failing
from webhook.fleet.members.shown import shown
from webhook.jobs.kinds.registry import KINDS

JOB = KINDS["Job.batch"]
FIRST = {"startTime": "2026-01-01T00:00:00Z", "failed": 2, "succeeded": 1, "active": 1}
SECOND = {"startTime": "2026-01-01T01:00:00Z", "active": 2}


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": spec, **({} if status is None else {"status": status})}


@pytest.mark.parametrize(
    ("before", "spec", "expected"),
    [
        (None, {}, SECOND),
        ({}, {}, SECOND),
        (FIRST, {}, {**SECOND, "startTime": FIRST["startTime"], "failed": 2, "succeeded": 1}),
        (FIRST, {"completionMode": "Indexed"}, {**SECOND, "startTime": FIRST["startTime"], "failed": 2}),
        (FIRST, {"suspend": True}, SECOND),
    ],
)
def test_counts_and_start_of_a_job_do_not_go_back(
    before: dict[str, Any] | None, spec: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert shown(JOB, job(before, **spec), SECOND) == expected


def test_other_kinds_are_shown_as_they_are() -> None:
    assert shown(KINDS["PyTorchJob.kubeflow.org"], job(FIRST), SECOND) == SECOND


@pytest.mark.parametrize("conditions", [None, 3, [], [4], [{"type": "FailureTarget", "status": "False"}]])
def test_a_job_is_about_to_fail_when_it_says_so(conditions: Any) -> None:
    assert not failing({"conditions": conditions})
    assert failing({"conditions": [{"type": "FailureTarget", "status": "True"}]})
