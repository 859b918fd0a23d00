"""What a watch shows of a copy or of a job of the hub, and whether that asks for a look."""

from typing import Any

import orjson
import pytest

from tests.unit.fleet.clusters import plain_job
from webhook.core.notation import names
from webhook.fleet.members.seen import KEPT_BYTES_MAX, News, marks_of, news, own_job
from webhook.jobs.kinds.registry import KINDS
from webhook.untyped import editing

JOB = KINDS["Job.batch"]
OFFER = "job-uid 1.1"
COPY = editing.put(plain_job(), ("spec", "suspend"), True) | {
    "metadata": {
        "name": "train",
        "namespace": "team-a",
        "uid": "copy",
        "resourceVersion": "5",
        "labels": {names.ORIGIN_LABEL: "hub"},
        "annotations": {names.OFFER: OFFER},
    }
}
PERMITTED = editing.put(COPY, ("metadata", "annotations", names.PERMIT), f"{OFFER} copy")
STARTED = editing.put(PERMITTED, ("spec", "suspend"), False)
ACTIVE = {"status": {"active": 2}}
DELETED = ("metadata", "deletionTimestamp")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (COPY, COPY | ACTIVE, News.NOTHING),
        (COPY, editing.put(COPY, ("metadata", "labels", "a"), "b"), News.NOTHING),
        (PERMITTED, STARTED, News.NOTHING),
        (STARTED, STARTED | ACTIVE, News.STATUS),
        (PERMITTED, STARTED | ACTIVE, News.STATUS),
        (COPY, PERMITTED, News.LOOK),
        (PERMITTED, COPY, News.LOOK),
        (STARTED, PERMITTED, News.LOOK),
        (COPY, editing.put(COPY, ("spec", "suspend"), False), News.LOOK),
        (COPY, editing.put(COPY, DELETED, "2026-01-01T00:00:00Z"), News.LOOK),
        (COPY, editing.put(COPY, ("metadata", "annotations", names.OFFER), "job-uid 1.2"), News.LOOK),
        (COPY, editing.put(COPY, ("metadata", "annotations", names.GIVEN_UP), "copy"), News.LOOK),
        (COPY, editing.put(COPY, ("metadata", "labels", names.ORIGIN_LABEL), "another"), News.LOOK),
        (STARTED, STARTED | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, News.LOOK),
    ],
)
def test_a_change_of_a_copy_asks_for_a_look_where_something_is_decided_by_it(
    old: dict[str, Any], new: dict[str, Any], told: News
) -> None:
    later = editing.put(new, ("metadata", "resourceVersion"), "6")
    assert news(marks_of(JOB, old), marks_of(JOB, later)) is told


def own(**metadata: Any) -> dict[str, Any]:
    return editing.put(plain_job(), ("metadata", "resourceVersion"), "7") | ({"metadata": metadata} if metadata else {})


def test_a_job_that_is_to_run_and_has_no_record_is_kept_as_read() -> None:
    job = own()
    assert own_job(JOB, orjson.dumps(job), job).job == job
    for known in (
        editing.put(job, ("metadata", "annotations", names.DISPATCH), "{}"),
        editing.put(job, ("metadata", "finalizers"), [names.DISPATCH]),
        editing.put(job, ("spec", "suspend"), True),
        {key: value for key, value in job.items() if key not in ("apiVersion", "kind")},
        editing.put(job, ("metadata", "annotations", "long"), "x" * KEPT_BYTES_MAX),
    ):
        assert own_job(JOB, orjson.dumps(known), known).job is None


def test_a_job_that_waits_for_its_queue_has_no_next_step_while_nothing_is_written_on_it() -> None:
    job = editing.put(own(), ("spec", "suspend"), True)
    assert own_job(JOB, orjson.dumps(job), job).untouched
    for known in (
        editing.put(job, ("metadata", "annotations", names.DISPATCH), "{}"),
        editing.put(job, ("metadata", "finalizers"), [names.DISPATCH]),
        job | ACTIVE,
        own(),
    ):
        assert not own_job(JOB, orjson.dumps(known), known).untouched
