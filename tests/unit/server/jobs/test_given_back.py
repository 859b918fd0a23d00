"""Room that a gang gave back for pods that have ended is used once, whatever its owner changes or deletes."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import record_of, reservation_of, special
from tests.unit.server.jobs.test_children import COLLECTOR, GATED, JOBSET, OWNER, SHARED_ACCOUNT, child, jobset, update
from tests.unit.server.pods.test_validate_pods import create, gang_pod
from tests.unit.server.reviews import (
    ALICE,
    JOB_CONTROLLER,
    JOBSET_CONTROLLER,
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
from webhook.jobs.plain_pods.groups import POD_GROUP, gang_uid
from webhook.jobs.pricing.context import ReadContext, context_from
from webhook.jobs.reading.job import read
from webhook.jobs.reading.record import JobRecord
from webhook.server.handler import ReviewHandler

JOB = KINDS["Job.batch"]
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


def of_set() -> Reservation:
    """Return what is reserved for it."""
    return replace(reservation("set-1", kind=JOBSET.key), pod_sets=(ReservedPodSet("w", 4, price(), {}),))


def ended_child() -> dict[str, Any]:
    obj = child(suspend=False, gang="set-1")
    obj["status"] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
    return obj


async def deleted_by(user: str, seen: View, obj: dict[str, Any]) -> Answered:
    options = {"kind": "DeleteOptions", "propagationPolicy": "Background"}
    body = review(None, old=obj, operation="DELETE", options=options, user=user)
    return await ask(ReviewHandler(seen), "/validate/jobs", body)


@pytest.mark.parametrize("user", [ALICE, TTL, SHARED_ACCOUNT])
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
    assert (await deleted_by(SHARED_ACCOUNT, with_set(going), ended_child())).allowed, "as it is collected"


async def test_who_claims_a_gang_of_plain_pods_as_the_owner_of_a_job_deletes_it_freely() -> None:
    uid, obj = gang_uid("team-a", "crew"), ended_child()
    obj["metadata"]["ownerReferences"][0] = OWNER | {"uid": uid}
    seen = with_ledger(view(), reservation(uid, kind=POD_GROUP.key))
    seen.put_job(JobRecord(POD_GROUP.key, "team-a", "crew", uid, 1, 0.0))
    assert (await deleted_by(ALICE, seen, obj)).allowed


@pytest.mark.parametrize(("before", "after"), [(None, 0), (3600, 0), (0, None)])
async def test_nobody_says_of_one_that_it_is_deleted_after_its_end(before: int | None, after: int | None) -> None:
    old = ended_child()
    old["spec"]["ttlSecondsAfterFinished"] = before
    new = copy.deepcopy(old)
    new["spec"]["ttlSecondsAfterFinished"] = after
    answer = await update(with_set(set_of(1)), old, new, ALICE)
    assert not answer.allowed
    assert "spec.ttlSecondsAfterFinished stays as it is" in answer.message
    assert (await update(with_set(set_of(1)), old, new, JOBSET_CONTROLLER)).allowed


async def test_a_job_set_whose_jobs_are_deleted_after_their_end_gives_nothing_back() -> None:
    obj = set_of(1)
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
    assert with_set(obj).given_back(of_set()) == {}


async def test_one_that_runs_is_deleted_freely() -> None:
    assert (await deleted_by(ALICE, with_set(set_of(1)), child(suspend=False, gang="set-1"))).allowed


@pytest.mark.parametrize("policy", [{"maxRestarts": 3}, {"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}])
async def test_a_job_set_of_which_a_job_has_ended_is_not_given_restarts(policy: dict[str, Any]) -> None:
    old = set_of(1)
    new = copy.deepcopy(old)
    new["spec"]["failurePolicy"] = policy
    answer = await update(with_ledger(with_set(old), of_set()), old, new, ALICE)
    assert not answer.allowed
    assert "2 of pod set w have ended, and might run again" in answer.message


async def test_a_restart_does_not_come_after_its_room_is_gone() -> None:
    """Its status counts what had ended before a restart until the Jobs are made again, and anybody may take the policy
    off meanwhile: the API server checks no rule of a field that goes.
    """
    over = set_of(1)
    assert with_set(over).given_back(of_set()) == {"w": 2}
    over["status"]["restarts"] = 1
    assert with_set(over).given_back(of_set()) == {}


# -- what another object decides ---------------------------------------------------------------------------------------


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


async def test_what_its_job_set_made_is_deleted_freely() -> None:
    """What is made again runs in room that the TrainJob still holds."""
    record = record_of(train_job(), runtimes())
    seen = with_ledger(view(), reservation_of(record))
    seen.put_job(record)
    seen.put_controller(record.uid, "team-a", "")
    seen.put_controller("set-1", "team-a", record.uid)
    assert (await deleted_by(ALICE, seen, ended_child())).allowed


def test_it_still_does_not_ask_again_for_what_has_ended() -> None:
    asked = record_of(train_job(), runtimes()).asks
    assert asked is not None
    assert asked.counts["dataset-initializer"] == 0
