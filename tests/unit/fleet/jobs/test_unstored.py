"""What tells a write that is refused from one that was outrun, and when it is tried again."""

import pytest

from webhook.errors import ApiError, Conflict, Forbidden, Unavailable
from webhook.fleet.jobs.unstored import BUSY_SECONDS, REST_SECONDS, REST_SECONDS_MAX, Unstored

MOVED_ON = Conflict(409, "Conflict", "the object has been modified")
BUSY = Unavailable(429, "TooManyRequests", "Too many requests, please try again later.")
FORBIDDEN = Forbidden(403, "Forbidden", "no notes on Thursdays")


def job(version: int, uid: str = "u") -> dict[str, str]:
    return {"uid": uid, "resourceVersion": str(version)}


def heard(unstored: Unstored, error: ApiError, *tries: tuple[float, int]) -> list[bool]:
    """Return after each try, at a time and of a version, whether that counts as a refusal."""
    found = []
    for now, version in tries:
        unstored.heard(job(version), "it", error, now)
        found.append(unstored.is_refused)
    return found


def test_a_write_that_is_outrun_each_time_is_not_refused() -> None:
    assert heard(Unstored(), MOVED_ON, *((now, now) for now in range(10))) == [False] * 10


def test_a_conflict_over_a_job_that_stays_as_it_was_is_a_refusal() -> None:
    assert heard(Unstored(), MOVED_ON, (0, 1), (1, 2), (2, 2)) == [False, False, True]


def test_what_is_forbidden_stays_so_though_somebody_changes_the_job_all_the_time() -> None:
    assert heard(Unstored(), FORBIDDEN, (0, 1), (1, 2)) == [False, True]
    unstored = Unstored()
    unstored.heard(job(1, "u"), "it", FORBIDDEN, 0)
    unstored.heard(job(2, "made again"), "it", FORBIDDEN, 1)
    assert not unstored.is_refused, "of a job that was made again it is the first"


def test_a_server_that_has_too_much_to_do_refuses_nothing_for_some_seconds() -> None:
    tries = [(0, 1), (1, 1), (2, 1), (BUSY_SECONDS, 1)]
    assert heard(Unstored(), BUSY, *tries) == [False, False, False, True]
    assert heard(Unstored(), BUSY, (0, 1), (BUSY_SECONDS, 1)) == [False, False], "nor by two answers"


def test_what_was_stored_meanwhile_was_not_refused() -> None:
    unstored = Unstored()
    heard(unstored, MOVED_ON, (0, 1), (1, 1))
    unstored.stored()
    assert not unstored.is_refused
    assert unstored.resting(job(1), "it", 1) is None
    assert heard(unstored, MOVED_ON, (2, 1)) == [False]


def test_the_same_is_tried_again_at_once_and_then_less_and_less_often() -> None:
    unstored, now, pauses = Unstored(), 0.0, []
    unstored.heard(job(1), "it", MOVED_ON, now)
    assert unstored.resting(job(1), "it", now) is None
    while now < 100:
        unstored.heard(job(1), "it", MOVED_ON, now)
        began = now
        while (error := unstored.resting(job(1), "it", now)) is not None:
            assert (type(error), str(error)) == (Conflict, str(MOVED_ON))
            now += 0.5
        pauses.append(now - began)
    assert pauses[0] == REST_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[-1] == REST_SECONDS_MAX


@pytest.mark.parametrize(("version", "what"), [(2, "it"), (1, "something else")])
def test_another_write_or_a_job_that_was_changed_is_tried_at_once(version: int, what: str) -> None:
    unstored = Unstored()
    heard(unstored, FORBIDDEN, (0, 1), (1, 1))
    assert unstored.resting(job(1), "it", 1) is not None
    assert unstored.resting(job(version), what, 1) is None
