"""What a hub's Job shows of its copy's status: nothing that the API server refuses as a step back."""

from dataclasses import replace
from typing import Any

import pytest

from webhook.core.fleet.dispatch import NOWHERE, Dispatch, Offer
from webhook.core.fleet.sight import Copy
from webhook.fleet.members.shown import cleared, ending, ends_strangely, shown
from webhook.jobs.kinds.registry import KINDS

JOB = KINDS["Job.batch"]
FIRST = {"startTime": "2026-01-01T00:00:00Z", "failed": 2, "succeeded": 1, "active": 1}
SECOND = {"startTime": "2026-01-01T01:00:00Z", "active": 2}


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": spec, **({} if status is None else {"status": status})}


INDEXED = {"completionMode": "Indexed", "parallelism": 2}
LATER = {**FIRST, "startTime": "2026-01-01T02:00:00Z"}
ENDED = {**SECOND, "completionTime": "2026-01-01T01:30:00Z"}


@pytest.mark.parametrize(
    ("before", "spec", "told", "expected"),
    [
        (None, {}, SECOND, SECOND),
        ({}, {}, SECOND, SECOND),
        (FIRST, {}, SECOND, {**SECOND, "startTime": FIRST["startTime"], "failed": 2, "succeeded": 1}),
        # The number that succeeded goes down where completions may.
        (FIRST, {**INDEXED, "completions": 2}, SECOND, {**SECOND, "startTime": FIRST["startTime"], "failed": 2}),
        (
            FIRST,
            {**INDEXED, "completions": 4},
            SECOND,
            {**SECOND, "startTime": FIRST["startTime"], "failed": 2, "succeeded": 1},
        ),
        # Of one that is suspended the start may change, but no count goes down.
        (FIRST, {"suspend": True}, SECOND, {**SECOND, "failed": 2, "succeeded": 1}),
        ({"failed": 1}, {}, SECOND, {**SECOND, "failed": 1}),
        # The clock of an earlier member was ahead.
        (LATER, {}, ENDED, {**ENDED, "startTime": LATER["startTime"], "completionTime": LATER["startTime"]}
         | {"failed": 2, "succeeded": 1}),
        (None, {}, ENDED, ENDED),
    ],
)  # fmt: skip
def test_counts_and_times_of_a_job_do_not_go_back(
    before: dict[str, Any] | None, spec: dict[str, Any], told: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert shown(JOB, job(before, **spec), told) == expected


@pytest.mark.parametrize(
    ("indexes", "completions", "expected"),
    [
        ("0-3", 2, "0-1"),
        ("0-3", 1, "0"),
        ("0,2-4,6", 4, "0,2-3"),
        ("0,2-4,6", 3, "0,2"),
        ("5", 2, ""),
        ("0-3", 4, "0-3"),
        ("odd", 2, ""),
        ("0-3", None, "0-3"),
        ("9" * 5000, 2, ""),
        ("9" * 5000 + "-" + "9" * 5001, 2, ""),
        ("0-" + "9" * 5000, 2, "0-1"),
        ("0,2147483646-2147483647", 2**31 - 1, "0,2147483646"),
    ],
)
def test_a_job_shows_no_index_that_it_does_not_have(indexes: str, completions: int | None, expected: str) -> None:
    told = {"completedIndexes": indexes, "failedIndexes": indexes}
    assert shown(JOB, job(completions=completions), told) == {"completedIndexes": expected, "failedIndexes": expected}


@pytest.mark.parametrize(
    ("status", "spec", "expected"),
    [
        ({}, {"suspend": True}, None),
        (FIRST, {}, None),
        (FIRST, {"suspend": True}, {"failed": 2, "succeeded": 1}),
        ({"failed": 2, "succeeded": 1}, {"suspend": True}, None),
        ({"startTime": "2026-01-01T00:00:00Z", "active": 1}, {"suspend": True}, {}),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, {"suspend": True}, None),
    ],
)
def test_a_suspended_job_keeps_of_a_run_what_nobody_may_take_away(
    status: dict[str, Any], spec: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert cleared(JOB, job(status, **spec)) == expected


def test_other_kinds_are_shown_as_they_are() -> None:
    assert shown(KINDS["PyTorchJob.kubeflow.org"], job(FIRST), SECOND) == SECOND


@pytest.mark.parametrize("conditions", [None, 3, [], [4], [{"type": "FailureTarget", "status": "False"}]])
def test_a_job_is_about_to_end_when_it_says_so(conditions: Any) -> None:
    assert not ending({"conditions": conditions})


@pytest.mark.parametrize("kind", ["FailureTarget", "SuccessCriteriaMet"])
def test_how_a_job_was_about_to_end_is_shown_of_its_next_run_too(kind: str) -> None:
    about = {"type": kind, "status": "True", "reason": "SuccessPolicy"}
    assert ending({"conditions": [about]}) == [about]
    again = {"type": "Suspended", "status": "False"}
    assert shown(JOB, job({"conditions": [about]}), {"conditions": [again]}) == {"conditions": [again, about]}
    assert shown(JOB, job({"conditions": [about]}), {"conditions": [about, again]}) == {"conditions": [about, again]}
    left = cleared(JOB, job({"active": 1, "conditions": [about]}, suspend=True))
    assert left == {"conditions": [about]}


@pytest.mark.parametrize(("end", "led"), [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")])
def test_what_led_to_its_end_is_shown_where_an_old_controller_does_not_say_it(end: str, led: str) -> None:
    ended = {"type": end, "status": "True", "reason": "It ended", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    expected = {"conditions": [ended, {**ended, "type": led}]}
    assert shown(JOB, job(), {"conditions": [ended]}) == expected
    assert shown(JOB, job(), expected) == expected
    assert shown(JOB, job(), {"conditions": [{**ended, "status": "False"}, {"type": []}]})["conditions"][2:] == []


OFFERED = NOWHERE.offered(1, "a", "cluster-a")
GRANTED = OFFERED.granted("copy", "7")
COPY = Copy("copy", "8", "hub", "job", Offer(1, 1), permitted=True, suspended=False)


@pytest.mark.parametrize(
    ("dispatch", "copy", "strange"),
    [
        (NOWHERE, None, False),
        (OFFERED, None, True),
        (OFFERED, COPY, True),
        (GRANTED, None, False),
        (GRANTED, COPY, True),
        (GRANTED, replace(COPY, uid="another"), False),
        (GRANTED, replace(COPY, deleting=True), False),
        (GRANTED, replace(COPY, finished=True), False),
        (GRANTED.recalled("over"), COPY, False),
        (GRANTED.recalled("over").proven_gone(), None, False),
    ],
)
def test_an_end_in_the_hub_is_no_end_while_the_copy_that_would_have_said_it_has_not_ended(
    dispatch: Dispatch, copy: Copy | None, strange: bool
) -> None:
    spark, failed = KINDS["SparkApplication.sparkoperator.k8s.io"], {"applicationState": {"state": "FAILED"}}
    assert ends_strangely(spark, job(failed), dispatch, copy) is strange
    assert not ends_strangely(spark, job({"applicationState": {"state": "RUNNING"}}), dispatch, copy)
    over = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert not ends_strangely(JOB, job(over), dispatch, copy), "its controller leaves alone what has a managedBy"
