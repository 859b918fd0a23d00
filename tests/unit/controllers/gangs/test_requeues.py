"""A run-time limit counts over all starts and all leaders; a gang that has used it up is held until its owner says."""

from dataclasses import replace

import pytest

from tests.unit.controllers.gangs.test_assess import RESERVED, STARTED, job
from webhook.controllers.gangs.requeues import is_hold, overrun, requeue_of
from webhook.jobs.reading.record import Requeue

RUNNING = job(suspended=False, admission=STARTED, run_limit_seconds=60)
"""Admitted at second 100, with 60 s to run."""
USED_UP = replace(RESERVED, stopping="DeactivatedDueToMaximumExecutionTimeExceeded")


def test_a_gang_is_stopped_when_it_has_run_for_its_limit_and_not_before() -> None:
    assert overrun(RUNNING, RESERVED, 159.9) is None
    found = overrun(RUNNING, RESERVED, 160)
    assert found is not None
    assert (found.reason, found.place_seconds) == ("DeactivatedDueToMaximumExecutionTimeExceeded", 0)
    assert "60 s" in found.message
    assert overrun(replace(RUNNING, run_limit_seconds=None), RESERVED, 9999) is None


def test_earlier_starts_count() -> None:
    resumed = replace(RUNNING, admission=replace(STARTED, ran_seconds=45.0))
    assert overrun(resumed, RESERVED, 114.9) is None
    assert overrun(resumed, RESERVED, 115) is not None


def test_nothing_is_stopped_that_does_not_run() -> None:
    assert overrun(replace(RUNNING, suspended=True), RESERVED, 999) is None
    assert overrun(replace(RUNNING, finished="Succeeded"), RESERVED, 999) is None


def test_what_a_stopped_gang_has_run_is_written_down_once() -> None:
    resumed = replace(RUNNING, admission=replace(STARTED, ran_seconds=5.0, attempts=2))
    stopping = replace(RESERVED, stopping="Preempted")
    written = requeue_of(resumed, stopping, Requeue("Preempted", 7.0, message="for another"), 130)
    assert written == Requeue("Preempted", 7.0, 2, message="for another", ran_seconds=35.0)
    stopped = replace(resumed, suspended=True, admission=None, requeue=written)
    assert requeue_of(stopped, stopping, None, 999) == written, "another leader writes the same again"


def test_a_back_off_survives_the_leader_that_set_it() -> None:
    stopping = replace(RESERVED, stopping="PodsReadyTimeout")
    noted = Requeue("PodsReadyTimeout", 150.0, 3, 170.0, "too slow")
    assert requeue_of(job(requeue=noted), stopping, None, 151) == noted


def test_a_gang_at_its_limit_is_held_and_has_the_whole_time_again_once_its_owner_lifts_that() -> None:
    written = requeue_of(RUNNING, USED_UP, None, 161)
    assert (written.reason, written.ran_seconds) == ("DeactivatedDueToMaximumExecutionTimeExceeded", 0.0)
    assert is_hold(RUNNING, USED_UP)
    held = job(requeue=written, held=True)
    assert is_hold(held, USED_UP), "the next leader voids it without letting it go"
    assert not is_hold(replace(held, held=False), USED_UP), "lifted while its last pods were ending"
    assert not is_hold(RUNNING, replace(RESERVED, stopping="Preempted"))


def test_who_was_suspended_by_their_owner_and_has_no_reservation_any_more_waits_for_them() -> None:
    """Such as after a rebuild, while nobody led: it was queued, and started again by itself."""
    suspended = replace(RUNNING, suspended=True)
    assert is_hold(suspended, None)
    assert requeue_of(suspended, None, None, 999) == Requeue("OnHold", suspended.place_seconds, ran_seconds=0.0)
    assert not is_hold(RUNNING, None), "what runs without a reservation is stopped, and waits for one"


@pytest.mark.parametrize("why", ["Preempted", "SiblingStopped", "PodsReadyTimeout"])
def test_who_was_suspended_by_their_owner_before_our_own_stop_was_written_waits_for_them(why: str) -> None:
    """Such as two jobs of a PodGroup in one command: the second was queued, and started again by itself."""
    stopping, suspended = replace(RESERVED, stopping=why), replace(RUNNING, suspended=True)
    assert is_hold(suspended, stopping)
    assert not is_hold(replace(suspended, admission=None), stopping), "it was ours that suspended it"


def test_whoever_lifts_a_hold_gives_all_attempts_again_whatever_it_was_for() -> None:
    tried = replace(RUNNING, admission=replace(STARTED, attempts=3))
    for why in (
        "DeactivatedDueToMaximumExecutionTimeExceeded",
        "DeactivatedDueToRequeuingLimitExceeded",
        "OnHold",
        "Deactivated",
    ):
        assert requeue_of(tried, replace(RESERVED, stopping=why), None, 161).attempts == 0, why
    assert requeue_of(tried, replace(RESERVED, stopping="Preempted"), None, 161).attempts == 3
