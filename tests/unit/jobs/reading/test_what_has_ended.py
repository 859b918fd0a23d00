"""What a job gives back once pods of it have ended, and what it asks for when it waits again."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of, reservation_of
from webhook.core.notation import names


@pytest.mark.parametrize(
    ("spec", "status", "gone"),
    [
        ({"completions": 10}, {"succeeded": 7}, 1),
        ({"completions": 10}, {"succeeded": 5}, 0),
        ({"completions": 4}, {"succeeded": 3}, 3),
        ({"completions": None}, {"succeeded": 2}, 2),
        # Of a list of work those that fail are replaced until one has succeeded, and then no more.
        ({"completions": None}, {"failed": 2, "active": 4}, 0),
        ({"completions": None}, {"failed": 2, "active": 3, "succeeded": 1}, 1),
        ({"completions": None}, {"failed": 1, "active": 2, "succeeded": 1}, 2),
        # Some of them were not seen yet when its controller counted.
        ({"completions": None}, {"active": 1, "succeeded": 1}, 1),
        ({"completions": 6, "completionMode": "Indexed"}, {"completedIndexes": "0,2-3", "failedIndexes": "5"}, 2),
        ({"completions": 4, "completionMode": "Indexed"}, {"completedIndexes": "0-9", "succeeded": 10}, 4),
        ({"completions": 4, "completionMode": "Indexed"}, {"completedIndexes": "x,-,1-", "succeeded": 1}, 1),
    ],
)
def test_a_job_reclaims_pods_that_will_not_run_again(spec, status, gone):
    obj = load("job")
    obj["spec"] |= spec
    assert record_of({**obj, "status": status}).reclaimed.get("main", 0) == gone


def test_a_jobset_reclaims_whole_child_jobs():
    obj = load("jobset")
    obj["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}]}
    assert record_of(obj).reclaimed == {"workers": 2}


def asked(record):
    return {s.name: (s.count, s.min_count) for s in record.asks.pod_sets}


@pytest.mark.parametrize(
    ("spec", "status", "asks"),
    [
        ({"completions": 10}, {"succeeded": 8}, 2),
        ({"completions": 10}, {"succeeded": 5}, 4),
        ({"completions": 10}, {"failed": 8}, 4),
        ({"completions": 6, "completionMode": "Indexed"}, {"completedIndexes": "0,2-3", "failedIndexes": "5"}, 2),
        # A list of work has no more than what has not ended; none of it is started once one pod has succeeded.
        ({"completions": None}, {"succeeded": 3}, 1),
        # Indexes that a smaller Job has no more have to run again when it is as large as before.
        ({"parallelism": 3, "completions": 3, "completionMode": "Indexed"}, {"completedIndexes": "3-9"}, 3),
    ],
)
def test_a_job_that_waits_again_asks_only_for_what_is_left(spec, status, asks):
    obj = load("job")
    obj["spec"] |= spec | {"suspend": True}
    record = record_of({**obj, "status": status})
    assert record.asks.pods == asks
    assert record.gang.pods == obj["spec"]["parallelism"], "what its owner wrote is still known"


def test_fewer_pods_than_its_own_minimum_are_all_that_a_job_needs():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "3"}
    obj["spec"]["completions"] = 9
    for succeeded, asks in ((0, (4, 3)), (6, (3, 3)), (7, (2, None))):
        assert asked(record_of({**obj, "status": {"succeeded": succeeded}})) == {"main": asks}


def test_a_job_that_starts_smaller_with_fewer_completions_asks_for_all():
    obj = load("job")
    obj["metadata"]["annotations"] = {names.COMPLETIONS_FOLLOW: "true"}
    obj["spec"]["completionMode"] = "Indexed"
    obj["status"] = {"completedIndexes": "0-2", "succeeded": 3}
    assert asked(record_of(obj)) == {"main": (1, None)}
    obj["metadata"]["annotations"][names.MIN_PARALLELISM] = "2"
    assert asked(record_of(obj)) == {"main": (4, 2)}


def test_a_job_of_a_pod_group_asks_for_all_since_the_group_counts_them():
    obj = load("job")
    obj["status"] = {"succeeded": 3}
    assert record_of(obj).asks.pods == 1
    obj["spec"]["template"]["metadata"]["labels"][names.POD_GROUP_LABELS[0]] = "crew"
    assert record_of(obj).asks.pods == 4


@pytest.mark.parametrize(
    ("policy", "workers"),
    [
        ({}, 2),
        ({"maxRestarts": 0, "rules": [{"action": "FailJobSet"}]}, 2),
        ({"maxRestarts": 1}, 4),
        ({"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}, 4),
    ],
)
def test_a_jobset_asks_for_and_holds_children_that_a_restart_would_run_again(policy, workers):
    obj = load("jobset")
    obj["spec"]["failurePolicy"] = policy
    obj["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}]}
    record = record_of(obj)
    assert asked(record) == {"driver": (1, None), "workers": (workers, None)}
    # Nor is any room free while it runs: a restart is not all that may need it.
    assert record.given_back(reservation_of(record)) == {}


@pytest.mark.parametrize(
    ("reserved", "succeeded", "given_back"),
    [
        (4, 7, {"main": 1}),
        # Two had ended before it started again: only what ends from then on is given back.
        (2, 8, {}),
        (2, 9, {"main": 1}),
        (2, 10, {"main": 2}),
        # It was started with two, and two may run, whichever of the ten they do.
        (2, 7, {}),
        # It was made smaller; into whatever it grows back of what is reserved for it, three are left to run.
        (6, 7, {"main": 3}),
        (6, 3, {}),
    ],
)
def test_no_more_is_given_back_than_cannot_run_any_more(reserved, succeeded, given_back):
    obj = load("job")
    obj["spec"]["completions"] = 10
    obj["status"] = {"succeeded": succeeded}
    record = record_of(obj)
    assert record.given_back(reservation_of(record, {"main": reserved})) == given_back


def test_nothing_is_known_to_be_given_back_by_a_job_that_cannot_be_read():
    obj = load("job")
    record = record_of(obj)
    obj["status"] = {"succeeded": 3}
    obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    assert record_of(obj).problem
    assert record_of(obj).given_back(reservation_of(record)) == {}
