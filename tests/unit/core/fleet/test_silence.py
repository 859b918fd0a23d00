"""When a silent member has surely stopped, and what becomes of a copy that it stopped."""

from dataclasses import replace
from typing import Any

import pytest

from webhook.core.fleet.dispatch import NOWHERE, Dispatch, DispatchPhase
from webhook.core.fleet.sight import Copy, Sight
from webhook.core.fleet.silence import Heard, longest_grace_seconds, surely_stopped_seconds
from webhook.core.fleet.steps import HubStep, Wish, next_step
from webhook.core.fleet.strays import Verdict, verdict
from webhook.core.model.gang import GRACE_SECONDS_MAX

WISH = Wish("hub", "job", runs=True)
OFFERED = Dispatch().offered(3, "a", "cluster-a")
GRANTED = OFFERED.granted("copy", "17", 300)
GIVEN_UP = Copy("copy", "19", "hub", "job", OFFERED.offer, permitted=False, given_up=True)


@pytest.mark.parametrize(
    "heard", [Heard("2026-01-01T00:00:00.000000Z", 12.5, 300), Heard("x", 0.0, 15), Heard("x", 0.0, 15, 10)]
)
def test_what_a_member_has_heard_is_read_as_it_was_written(heard: Heard) -> None:
    assert Heard.read(str(heard)) == heard


@pytest.mark.parametrize(
    "written", [None, 7, "", "a", "a 1", "a 1 b", "a b 1", "a 1 2 b", "a 1 2 3 4", "a " + "1" * 200 + " 1"]
)
def test_whatever_else_stands_there_is_no_promise(written: object) -> None:
    assert Heard.read(written) is None


def pod(**more: int) -> dict[str, Any]:
    return {"spec": {"containers": [], **more}}


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        ({"template": pod()}, 30),
        ({"template": pod(terminationGracePeriodSeconds=0)}, 30),
        ({"driver": {"terminationGracePeriodSeconds": 600}, "executor": {"template": pod()}}, 600),
        ({"driver": {"terminationGracePeriodSeconds": 0}, "executor": {}}, 30),
        ({"runtimeRef": {"name": "torch"}, "runtimePatches": [{"template": pod()}]}, GRACE_SECONDS_MAX),
        ({"sets": [{"template": pod(terminationGracePeriodSeconds=7)}, {"template": pod()}]}, 30),
        ({"a": {"template": pod(terminationGracePeriodSeconds=90)}, "b": {"template": pod()}}, 90),
        ({"template": pod(terminationGracePeriodSeconds=10**6)}, GRACE_SECONDS_MAX),
        ({"runtimeRef": {"name": "torch"}}, GRACE_SECONDS_MAX),
        (None, GRACE_SECONDS_MAX),
    ],
)
def test_pods_have_the_longest_grace_that_one_of_them_may_have(job: object, seconds: int) -> None:
    assert longest_grace_seconds(job) == seconds
    assert surely_stopped_seconds(300, seconds) == 300 + 60 + seconds


def test_a_promise_is_that_of_the_grant_and_ends_with_it() -> None:
    assert GRANTED.granted("copy", "18").stops_after_seconds == 0
    assert GRANTED.recalled("over").stops_after_seconds == 300
    for left in (GRANTED.lost("silent"), GRANTED.recalled("over").proven_gone()):
        assert left.offered(3, "b", "cluster-b").stops_after_seconds == 0


def test_a_copy_that_was_given_up_is_permitted_no_more() -> None:
    sight = Sight("cluster-a", True, GIVEN_UP, reserved=True)
    assert next_step(WISH, GRANTED, sight, moves=False, complete=True) is HubStep.RECALL
    assert next_step(WISH, OFFERED, sight, moves=False, complete=True) is HubStep.SWEEP
    assert verdict(GIVEN_UP, "cluster-a", GRANTED, swept=True, complete=True) is Verdict.KEEP
    for elsewhere in (NOWHERE, OFFERED.offered(3, "b", "cluster-b"), replace(GRANTED, copy_uid="another")):
        assert verdict(GIVEN_UP, "cluster-a", elsewhere, swept=True, complete=True) is Verdict.SWEEP
    assert GRANTED.lost("silent").phase is DispatchPhase.NOWHERE
