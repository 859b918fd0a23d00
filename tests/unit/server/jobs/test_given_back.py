"""Room that a gang gave back for pods that have ended is used once, whatever its owner changes or deletes."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.jobs.test_children import GATED, JOBSET, child, jobset, update
from tests.unit.server.pods.test_validate_pods import create, gang_pod
from tests.unit.server.reviews import (
    ALICE,
    JOBSET_CONTROLLER,
    Answered,
    ask,
    price,
    record,
    reservation,
    review,
    stored,
    view,
    with_ledger,
)
from webhook.cluster.view import View
from webhook.core.ledger.record import ReservedPodSet
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler

JOB = KINDS["Job.batch"]
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
OF_SET = ReservedPodSet("w", 4, price(), {})
TTL = "system:serviceaccount:kube-system:ttl-after-finished-controller"


def running(parallelism: int = 4, completions: int = 4, **status: Any) -> dict[str, Any]:
    """Return an Indexed Job of an admitted gang."""
    obj = stored(suspend=False, parallelism=parallelism)
    obj["spec"] |= {"completions": completions, "completionMode": "Indexed"}
    obj["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] = "job-1"
    obj["status"] = status
    return obj


def admitted(obj: dict[str, Any]) -> View:
    seen = with_ledger(view(), reservation())
    seen.put_job(read(JOB, obj, ReadContext()))
    return seen


@pytest.mark.parametrize(
    ("indexes", "size", "allowed"),
    [
        # The API server's Job controller forgets that 2 and 3 have ended, and runs them again once there are four.
        ("2-3", 2, False),
        ("2-3", 3, False),
        ("0-1", 2, True),
        ("1", 3, True),
        ("", 2, True),
    ],
)
async def test_a_job_does_not_shrink_below_indexes_that_have_ended(indexes: str, size: int, allowed: bool) -> None:
    old = running(completedIndexes=indexes)
    new = running(size, size, completedIndexes=indexes)
    answer = await update(admitted(old), old, new, ALICE)
    assert answer.allowed is allowed
    assert allowed or "ended, and might run again, and others may have their room" in answer.message


async def test_one_that_has_shrunk_grows_back_where_what_has_ended_stays_so() -> None:
    small, whole = running(3, 3, completedIndexes="1"), running(completedIndexes="1")
    assert (await update(admitted(small), small, whole, ALICE)).allowed
    assert admitted(small).given_back(reservation()) == admitted(whole).given_back(reservation()) == {"main": 1}


async def test_fewer_pods_at_a_time_take_nothing_back() -> None:
    """Of ten, eight have succeeded: two are left to run, in whatever parallelism."""
    old = running(4, 10, completedIndexes="0-7")
    new = running(1, 10, completedIndexes="0-7")
    assert (await update(admitted(old), old, new, ALICE)).allowed
    assert admitted(old).given_back(reservation()) == admitted(new).given_back(reservation()) == {"main": 2}


async def test_pods_are_created_in_what_is_left_of_the_room() -> None:
    seen = admitted(running(completedIndexes="2-3"))
    seen.fences.put_pod(record("a", gang="job-1"))
    handler = ReviewHandler(seen)
    assert [(await create(handler, gang_pod(number))).allowed for number in (12, 13)] == [True, False]
    refused = await create(handler, gang_pod(14))
    assert "of which 2 have ended for good," in refused.message


# -- children ----------------------------------------------------------------------------------------------------------


def set_of(succeeded: int, **spec: Any) -> dict[str, Any]:
    """Return an admitted JobSet of two Jobs, of which so many have succeeded."""
    obj = marked(JOBSET, jobset())
    obj["spec"] |= {"suspend": False} | spec
    obj["status"] = {"replicatedJobsStatus": [{"name": "w", "succeeded": succeeded}]}
    return obj


def with_set(obj: dict[str, Any]) -> View:
    seen = view()
    seen.namespaces["team-a"] = dict(GATED)
    seen.put_job(read(JOBSET, obj, ReadContext()))
    return with_ledger(seen, reservation("set-1", kind=JOBSET.key))


def ended_child() -> dict[str, Any]:
    obj = child(suspend=False, gang="set-1")
    obj["status"] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
    return obj


async def deleted_by(user: str, seen: View, obj: dict[str, Any]) -> Answered:
    options = {"kind": "DeleteOptions", "propagationPolicy": "Background"}
    body = review(None, old=obj, operation="DELETE", options=options, user=user)
    return await ask(ReviewHandler(seen), "/validate/jobs", body)


@pytest.mark.parametrize("user", [ALICE, TTL])
async def test_a_child_that_has_ended_is_not_deleted_while_its_gang_goes_on(user: str) -> None:
    answer = await deleted_by(user, with_set(set_of(1)), ended_child())
    assert not answer.allowed
    assert "the controller of JobSet train would run it again, while others may have its room" in answer.message
    assert "leave it until JobSet team-a/train has ended, or delete that" in answer.message


@pytest.mark.parametrize("user", [COLLECTOR, JOBSET_CONTROLLER])
async def test_the_collector_and_its_own_controller_delete_it(user: str) -> None:
    assert (await deleted_by(user, with_set(set_of(1)), ended_child())).allowed


async def test_it_is_deleted_once_nobody_runs_it_again() -> None:
    going = set_of(1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await deleted_by(ALICE, with_set(going), ended_child())).allowed
    over = set_of(2)
    over["status"]["conditions"] = [{"type": "Completed", "status": "True"}]
    assert (await deleted_by(ALICE, with_set(over), ended_child())).allowed
    assert (await deleted_by(ALICE, with_ledger(with_set(set_of(1))), ended_child())).allowed, "it holds nothing"


async def test_one_that_runs_is_deleted_freely() -> None:
    assert (await deleted_by(ALICE, with_set(set_of(1)), child(suspend=False, gang="set-1"))).allowed


async def test_a_job_set_of_which_a_job_has_ended_is_not_given_restarts() -> None:
    old = set_of(1)
    new = copy.deepcopy(old)
    new["spec"]["failurePolicy"] = {"maxRestarts": 3}
    seen = with_ledger(with_set(old), replace(reservation("set-1", kind=JOBSET.key), pod_sets=(OF_SET,)))
    answer = await update(seen, old, new, ALICE)
    assert not answer.allowed
    assert "2 of pod set w have ended, and might run again" in answer.message
