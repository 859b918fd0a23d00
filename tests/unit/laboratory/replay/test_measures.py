"""Each measure, on outcomes small enough to work out by hand."""

import pytest

from tests.unit.laboratory.replay.logs import course
from webhook.laboratory.replay.job_log import Job
from webhook.laboratory.replay.measures import SharingLoss, Waits, bounded_slowdown, measure, sharing_loss, waits
from webhook.laboratory.replay.run import Course, Outcome

FOUR = (
    course(1, 100, 0),
    course(4, 50, 20, submit=10),
    course(8, 5, 40, submit=20),
    course(40, 200, 300, submit=100, lost=50),
)


def measured(*courses: Course, busy: float = 0.0, capacity: float = 1.0, alone: tuple[Course, ...] | None = None):
    return measure(Outcome(courses, busy), Outcome(alone or courses, 0.0), capacity)


def test_the_mean_wait_counts_jobs_and_the_weighted_one_their_gpus() -> None:
    found = measured(*FOUR)
    assert found.wait == Waits(4, (0 + 20 + 40 + 300) / 4, 300, 300)
    assert found.weighted_wait_seconds == pytest.approx((0 + 4 * 20 + 8 * 40 + 40 * 300) / 53)


def test_the_99th_percentile_is_the_least_wait_that_99_of_100_do_not_exceed() -> None:
    hundred = [course(1, 10, float(wait)) for wait in range(1, 101)]
    assert waits(hundred) == Waits(100, 50.5, 99, 100)
    assert waits([*hundred, course(1, 10, 101)]).p99_seconds == 100
    assert waits([]) == Waits(0, 0, 0, 0)


def test_each_size_class_has_its_own_waits() -> None:
    found = measured(*FOUR)
    assert {name: (each.jobs, each.max_seconds) for name, each in found.by_size.items()} == {
        "1": (1, 0),
        "2-8": (2, 40),
        "9-32": (0, 0),
        "33+": (1, 300),
    }
    assert found.widest == Waits(1, 300, 300, 300)


def test_slowdown_is_bounded_for_short_jobs_and_never_below_one() -> None:
    assert [bounded_slowdown(each) for each in FOUR] == [1, 70 / 50, 45 / 10, 500 / 200]
    assert bounded_slowdown(course(1, 1, 0)) == 1
    assert measured(*FOUR).bounded_slowdown == pytest.approx((1 + 1.4 + 4.5 + 2.5) / 4)


def test_utilisation_is_of_what_is_owned_while_jobs_arrive() -> None:
    # 100 s between the first and the last submission, 10 GPUs: 1,000 GPU-seconds.
    assert measured(*FOUR, busy=250.0, capacity=10.0).utilisation == 0.25
    assert measured(FOUR[0], busy=0.0).utilisation == 0


def test_time_to_end_preemptions_and_what_they_cost_are_summed() -> None:
    found = measured(*FOUR)
    assert found.completion_seconds == (100 + 70 + 45 + 500) / 4
    assert (found.preemptions, found.lost_unit_seconds) == (1, 50 * 40)


def test_a_job_that_never_started_is_counted_and_has_no_part_in_the_means() -> None:
    found = measured(FOUR[1], Course(Job(2, "a", None, 5, 10, 1)))
    assert (found.jobs, found.never_started, found.wait.jobs, found.wait.mean_seconds) == (2, 1, 1, 20)


def test_jobs_that_were_ended_at_their_limit_are_counted() -> None:
    cut = Course(Job(1, "a", None, 0, 100, 1, 30), 30)
    whole = Course(Job(1, "a", None, 0, 30, 1, 30), 30)
    assert measured(cut, whole).at_limit == 1


def test_sharing_loss_is_waiting_more_than_a_minute_longer_than_alone() -> None:
    shared = (course(1, 100, 0), course(2, 100, 160), course(3, 100, 161), course(4, 100, 500))
    alone = (course(1, 100, 900), course(2, 100, 100), course(3, 100, 100), course(4, 100, 0))
    assert sharing_loss(shared, alone) == SharingLoss(2 / 4, (3 + 4) / (1 + 2 + 3 + 4), 500)


def test_never_starting_is_a_loss_for_whom_alone_would_have_and_none_for_others() -> None:
    never = Course(Job(1, "a", None, 0, 100, 1))
    assert sharing_loss((never,), (course(1, 100, 5),)) == SharingLoss(1, 1, 0)
    assert sharing_loss((never, course(1, 100, 9)), (never, never)) == SharingLoss(0, 0, 0)
    assert sharing_loss((), ()) == SharingLoss(0, 0, 0)


def test_each_queue_is_compared_with_itself_alone() -> None:
    shared = (course(1, 10, 100, name="b"), course(1, 10, 0, name="a"), course(1, 10, 300, name="b"))
    alone = (course(1, 10, 90, name="b"), course(1, 10, 50, name="a"), course(1, 10, 100, name="b"))
    found = measured(*shared, alone=alone).queues
    assert [(q.queue, q.jobs, q.mean_wait_seconds, q.mean_wait_alone_seconds, q.worse_share) for q in found] == [
        ("a", 1, 0, 50, 0),
        ("b", 2, 200, 95, 0.5),
    ]
