"""A job's annotations leave room for what stops it, whoever wants it to run on."""

import copy
from typing import Any

import pytest

from tests.unit.server.jobs.test_own_marks import create, update
from tests.unit.server.reviews import job, reservation, stored, view, with_ledger
from webhook.server.handler import ReviewHandler
from webhook.server.jobs.spare_room import ANNOTATIONS_BYTES_MAX, OBJECT_BYTES_MAX, SPARE_BYTES, SPARE_OBJECT_BYTES

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


def labelled(obj: dict[str, Any], number: int) -> dict[str, Any]:
    """Fill an object with what no other bound is about."""
    made = copy.deepcopy(obj)
    made["metadata"]["labels"] |= {f"{'x' * 240}.example.com/{each:063}": "y" * 63 for each in range(number)}
    return made


LABELS_THAT_FIT = (OBJECT_BYTES_MAX - SPARE_OBJECT_BYTES) // len(f'"{"x" * 240}.example.com/{0:063}":"{"y" * 63}",')


@pytest.mark.parametrize("suspend", [True, False], ids=["waits", "runs"])
async def test_an_object_that_leaves_no_room_is_refused_and_may_become_shorter(suspend: bool) -> None:
    handler, before = ReviewHandler(with_ledger(view(), reservation())), stored(suspend=suspend)
    assert (await update(handler, before, labelled(before, LABELS_THAT_FIT - 20))).allowed
    refused = await update(handler, before, labelled(before, LABELS_THAT_FIT + 1))
    assert (refused.allowed, refused.code) == (False, 422)
    assert "at most 1441792 leave room for what Tutti writes when it stops the job" in refused.message
    full = labelled(before, LABELS_THAT_FIT + 10)
    assert (await update(handler, full, labelled(before, LABELS_THAT_FIT + 9))).allowed
    assert not (await create(ReviewHandler(view()), labelled(stored(), LABELS_THAT_FIT + 1))).allowed


async def test_they_are_no_business_of_ours_on_a_job_that_is_not_ours() -> None:
    handler, plain = ReviewHandler(view()), job(queue=None)
    assert (await create(handler, noted(plain, MOST + 1))).allowed
    assert (await update(handler, plain, noted(plain, MOST + 1))).allowed
