"""Room that a gang gave back for pods that have ended is used once, whatever its owner changes or deletes."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import record_of, reservation_of, special
from tests.unit.server.jobs.test_children import GATED, JOBSET, child, jobset, update
from tests.unit.server.pods.test_validate_pods import create, gang_pod
from tests.unit.server.reviews import (
    ALICE,
    JOB_CONTROLLER,
    Answered,
    ask,
    pod,
    price,
    record,
    reservation,
    review,
    stored,
    view,
    with_ledger,
)
from webhook.cluster.view import View
from webhook.core.ledger.record import Reservation, ReservedPodSet
from webhook.core.notation import names
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked
from webhook.jobs.pricing.context import ReadContext, context_from
from webhook.jobs.reading.job import read
from webhook.server.handler import ReviewHandler

JOB = KINDS["Job.batch"]


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


async def test_a_work_queue_that_winds_down_keeps_what_it_gave_back_in_whatever_parallelism() -> None:
    status = {"succeeded": 1, "failed": 1, "active": 2}
    old, new = running(4, **status), running(2, **status)
    for obj in (old, new):
        del obj["spec"]["completions"], obj["spec"]["completionMode"]
    assert (await update(admitted(old), old, new, ALICE)).allowed
    assert (await update(admitted(new), new, old, ALICE)).allowed
    assert admitted(old).given_back(reservation()) == admitted(new).given_back(reservation()) == {"main": 2}


async def test_pods_are_created_in_what_is_left_of_the_room() -> None:
    seen = admitted(running(completedIndexes="2-3"))
    seen.fences.put_pod(record("a", gang="job-1"))
    handler = ReviewHandler(seen)
    assert [(await create(handler, gang_pod(number))).allowed for number in (12, 13)] == [True, False]
    refused = await create(handler, gang_pod(14))
    assert "of which 2 have ended for good," in refused.message


# -- kinds whose controllers count Jobs by name ------------------------------------------------------------------------


def set_of(succeeded: int, **spec: Any) -> dict[str, Any]:
    """Return an admitted JobSet of two Jobs, of which so many have succeeded."""
    obj = marked(JOBSET, jobset())
    obj["spec"] |= {"suspend": False} | spec
    obj["status"] = {"replicatedJobsStatus": [{"name": "w", "succeeded": succeeded}]}
    return obj


def of_set(count: int = 4) -> Reservation:
    """Return what is reserved for it."""
    return replace(reservation("set-1", kind=JOBSET.key), pod_sets=(ReservedPodSet("w", count, price(), {}),))


def with_set(obj: dict[str, Any], entry: Reservation) -> View:
    seen = with_ledger(view(), entry)
    seen.namespaces["team-a"] |= GATED
    seen.put_controller("set-1", "team-a", "")
    seen.put_controller("child-1", "team-a", "set-1")
    seen.put_job(read(JOBSET, obj, ReadContext()))
    return seen


async def deleted_by(user: str, seen: View, obj: dict[str, Any]) -> Answered:
    options = {"kind": "DeleteOptions", "propagationPolicy": "Background"}
    body = review(None, old=obj, operation="DELETE", options=options, user=user)
    return await ask(ReviewHandler(seen), "/validate/jobs", body)


def test_a_job_set_gives_nothing_back_while_it_runs_and_asks_only_for_what_is_left_afterwards() -> None:
    """Its owner can have any Job of it counted as ended, and made again."""
    seen = with_set(set_of(1), of_set())
    assert seen.given_back(of_set()) == {}
    assert seen.fences.given_back("team-a", "set-1", "w") == 0
    asked = seen.jobs["set-1"].asks
    assert asked is not None
    assert asked.counts == {"w": 2}


async def test_a_job_of_it_that_has_ended_is_deleted_and_runs_again_in_room_that_it_still_holds() -> None:
    seen = with_set(set_of(1), of_set())
    ended = child(suspend=False, gang="set-1")
    ended["status"] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
    assert (await deleted_by(ALICE, seen, ended)).allowed
    for uid in "ab":
        seen.fences.put_pod(replace(record(uid, gang="set-1"), pod_set="w"))
    handler, again = ReviewHandler(seen), {"gang": "set-1", "pod_set": "w", "owner": "child-1"}
    made = [pod(f"train-w-0-{number}", uid=f"pod-{number}", **again) for number in range(3)]
    assert [(await create(handler, each)).allowed for each in made] == [True, True, False]


@pytest.mark.parametrize("policy", [{"maxRestarts": 3}, {"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}])
async def test_a_job_set_is_given_restarts_where_it_holds_room_for_all_that_runs_again(policy: dict[str, Any]) -> None:
    old = set_of(1)
    new = copy.deepcopy(old)
    new["spec"]["failurePolicy"] = policy
    assert (await update(with_set(old, of_set()), old, new, ALICE)).allowed
    answer = await update(with_set(old, of_set(2)), old, new, ALICE)
    assert "pod set w would have 4 pods, 2 are reserved" in answer.message


def runtimes(policy: dict[str, Any] | None = None) -> ReadContext:
    runtime = special("runtime")
    if policy is not None:
        runtime["spec"]["template"]["spec"]["failurePolicy"] = policy
    return context_from(training_runtimes=[runtime])


def train_job(succeeded: int = 1) -> dict[str, Any]:
    obj = special("trainjob")
    obj["metadata"]["namespace"] = "team-a"
    obj["status"] = {
        "jobsStatus": [{"name": "dataset-initializer", "succeeded": succeeded}, {"name": "node", "active": 1}]
    }
    return obj


async def test_a_train_job_gives_nothing_back_whatever_its_runtime_says_by_now() -> None:
    """Its JobSet restarts by the policy that it was made with, or was given since, and by no other."""
    asked = reservation_of(record_of(train_job(0), runtimes()))
    held = replace(asked, pod_sets=tuple(ReservedPodSet(each.name, each.count, price(), {}) for each in asked.pod_sets))
    seen = with_ledger(view(), held)
    seen.put_controller(held.uid, "team-a", "")
    seen.put_controller("set-1", "team-a", held.uid)
    for policy in ({"maxRestarts": 3}, None):
        seen.put_job(record_of(train_job(), runtimes(policy)))
        assert seen.given_back(held) == {}
        assert seen.fences.given_back("team-a", held.uid, "dataset-initializer") == 0
    seen.put_job(record_of(train_job(0), runtimes()))
    initializer = pod("p", uid="p", gang=held.uid, pod_set="dataset-initializer", owner="set-1")
    body = review(initializer, user=JOB_CONTROLLER, resource="pods")
    assert (await ask(ReviewHandler(seen), "/validate/pods", body)).allowed


def test_it_still_does_not_ask_again_for_what_has_ended() -> None:
    asked = record_of(train_job(), runtimes()).asks
    assert asked is not None
    assert asked.counts["dataset-initializer"] == 0


@pytest.mark.parametrize(
    ("status", "leaving"),
    [
        # Each says that three or more have ended for good, and four are there.
        pytest.param({"failed": 3, "failedIndexes": "0-2", "active": 1}, 3, id="indexes whose pods are being deleted"),
        pytest.param({"failed": 3, "failedIndexes": "0-2", "active": 4}, 0, id="indexes of pods that it adopted"),
        pytest.param({"succeeded": 4, "active": 4}, 0, id="pods that it adopted, of a work queue"),
    ],
)
def test_others_have_no_room_in_which_pods_are_whatever_a_job_counts(status: dict[str, Any], leaving: int) -> None:
    obj = running() if "failedIndexes" in status else stored(suspend=False, parallelism=4)
    obj["spec"]["completions"] = 4 if "failedIndexes" in status else None
    obj["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] = "job-1"
    seen = admitted(obj | {"status": status})
    there = [replace(record(uid, gang="job-1"), node="n1") for uid in "abcd"]
    pods = [replace(each, terminating=number < leaving) for number, each in enumerate(there)]
    for each in pods:
        seen.fences.put_pod(each)

    def given(left: int) -> dict[str, int]:
        told = status | {"active": min(status["active"], left)}
        seen.put_job(read(JOB, obj | {"status": told}, ReadContext()))
        return dict(seen.given_back(reservation()))

    assert given(4) == {}
    seen.fences.drop_pod("team-a", "a")
    assert given(3) == {"main": 1}
    seen.fences.put_pod(replace(pods[1], phase="Succeeded"))
    assert given(2) == {"main": 2}
    # A pod to come is judged by what the job says: it is as if the room were given already.
    assert seen.fences.given_back("team-a", "job-1", "main") >= 2


def test_a_status_that_is_read_before_the_pods_are_says_itself_how_many_are_there() -> None:
    """One has succeeded, and of the four others, two are being deleted and have been replaced."""
    said = {"succeeded": 1, "active": 2, "terminating": 2}
    seen = admitted(running() | {"status": said | {"completedIndexes": "0"}})
    assert seen.given_back(reservation()) == {}
    seen.put_job(read(JOB, running(**said | {"completedIndexes": "0", "terminating": 1}), ReadContext()))
    assert seen.given_back(reservation()) == {"main": 1}
    for uid in "abcd":
        seen.fences.put_pod(record(uid, gang="job-1"))
    assert seen.given_back(reservation()) == {}, "what is there counts too"
