"""A job's annotations leave room for what stops it, whoever wants it to run on."""

import copy
from typing import Any

import pytest

from tests.unit.server.jobs.test_own_marks import create, update
from tests.unit.server.reviews import job, reservation, stored, view, with_ledger
from webhook.server.handler import ReviewHandler
from webhook.server.jobs.spare_room import ANNOTATIONS_BYTES_MAX, SPARE_BYTES

NOTE = "example.com/notes"
MOST = ANNOTATIONS_BYTES_MAX - SPARE_BYTES - len(NOTE)


def noted(obj: dict[str, Any], size: int) -> dict[str, Any]:
    made = copy.deepcopy(obj)
    made["metadata"].setdefault("annotations", {})[NOTE] = "x" * size
    return made


@pytest.mark.parametrize("suspend", [True, False], ids=["waits", "runs"])
async def test_annotations_that_leave_no_room_for_ours_are_refused(suspend: bool) -> None:
    handler, before = ReviewHandler(with_ledger(view(), reservation())), stored(suspend=suspend)
    assert (await update(handler, before, noted(before, MOST))).allowed
    refused = await update(handler, before, noted(before, MOST + 1))
    assert (refused.allowed, refused.code) == (False, 422)
    assert "at most 245760 leave room for what Tutti writes when it stops the job" in refused.message


async def test_a_job_is_not_created_with_them() -> None:
    handler = ReviewHandler(view())
    assert (await create(handler, noted(stored(), MOST))).allowed
    assert not (await create(handler, noted(stored(), MOST + 1))).allowed


async def test_what_has_them_already_may_become_shorter_and_no_longer() -> None:
    handler, before = ReviewHandler(with_ledger(view(), reservation())), noted(stored(suspend=False), MOST + 100)
    assert (await update(handler, before, noted(before, MOST + 99))).allowed
    assert (await update(handler, before, with_label(before))).allowed
    assert not (await update(handler, before, noted(before, MOST + 101))).allowed


def with_label(obj: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(obj)
    made["metadata"]["labels"]["team"] = "a"
    return made


async def test_they_are_no_business_of_ours_on_a_job_that_is_not_ours() -> None:
    handler, plain = ReviewHandler(view()), job(queue=None)
    assert (await create(handler, noted(plain, MOST + 1))).allowed
    assert (await update(handler, plain, noted(plain, MOST + 1))).allowed
