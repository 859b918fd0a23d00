"""What a job that has failed says of that, in its controller's words."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of

FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it reached its limit"}


@pytest.mark.parametrize(
    ("name", "status", "failure"),
    [
        ("job", {"conditions": [{"type": "Suspended", "status": "False"}, FAILED]}, "BackoffLimitExceeded: it reached"),
        ("job", {"conditions": [FAILED | {"message": ["odd"]}]}, "BackoffLimitExceeded"),
        ("job", {"conditions": [FAILED | {"type": ["Failed"]}, FAILED | {"message": "x" * 9_000}]}, "Backoff"),
        (
            "sparkapplication",
            {"applicationState": {"state": "FAILED", "errorMessage": "driver container failed"}},
            "driver container failed",
        ),
        ("job", {"conditions": [FAILED | {"status": "False"}]}, ""),
        ("job", {"conditions": [FAILED | {"type": "Complete"}]}, ""),
        ("rayjob", {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit 1"}, "AppFailed: exit 1"),
    ],
)
def test_a_job_that_has_failed_says_what_its_controller_says_of_that(name, status, failure):
    found = record_of(load(name) | {"status": status}).failure
    assert found.startswith(failure)
    assert bool(found) is bool(failure)
    assert len(found) <= 300


@pytest.mark.parametrize(("state", "finished"), [("SUBMISSION_FAILED", None), ("FAILED", "Failed")])
def test_a_spark_application_that_may_be_submitted_again_has_not_ended(state, finished):
    job = record_of(load("sparkapplication") | {"status": {"applicationState": {"state": state}}})
    assert job.finished == finished
    assert not job.active
