"""What becomes of a log's jobs: each timetable here is worked out by hand."""

import random

import pytest

from tests.unit.laboratory.replay.logs import OWNER_TAKES_BACK, Strategy, cohort, gpus, job, outcome, waits


def test_a_job_starts_when_it_arrives_if_there_is_room_and_when_another_ends_if_not() -> None:
    found = outcome([job("a", 0, 100), job("a", 10, 50), job("a", 120, 5)], gpus("a", 1))
    assert waits(found) == [0, 90, 30]
    assert [course.ended_seconds for course in found.courses] == [100, 150, 155]


def test_what_ends_makes_room_for_what_arrives_in_the_same_moment() -> None:
    assert waits(outcome([job("a", 0, 100), job("a", 100, 10)], gpus("a", 1))) == [0, 0]


def test_jobs_submitted_in_one_second_go_in_the_log_s_order() -> None:
    same = [job("a", 0, 10) for _ in range(12)]
    assert waits(outcome(same, gpus("a", 1))) == [10.0 * n for n in range(12)]


def test_nobody_passes_the_head_of_a_strict_queue_and_anybody_that_of_a_best_effort_one() -> None:
    # The second needs both GPUs, of which one is taken until 100; the third needs the one that is free.
    jobs = [job("a", 0, 100), job("a", 1, 10, 2), job("a", 2, 500)]
    assert waits(outcome(jobs, gpus("a", 2, strategy=Strategy.STRICT_FIFO))) == [0, 99, 108]
    assert waits(outcome(jobs, gpus("a", 2, strategy=Strategy.BEST_EFFORT_FIFO))) == [0, 501, 0]


def test_backfilling_fills_the_gap_before_the_head_and_does_not_delay_it() -> None:
    jobs = [
        job("a", 0, 100, 1, limit=100),
        job("a", 1, 10, 2, limit=10),
        job("a", 2, 500, 1, limit=500),
        job("a", 3, 50, 1, limit=97),
        job("a", 4, 5, 1),
    ]
    # Only the fourth is sure to have ended by 100, when the second can start; the fifth has no limit.
    assert waits(outcome(jobs, gpus("a", 2, strategy=Strategy.BACKFILL))) == [0, 99, 108, 0, 106]


def test_a_job_ends_at_its_limit() -> None:
    found = outcome([job("a", 0, 100, limit=30), job("a", 0, 10)], gpus("a", 1))
    assert [course.ended_seconds for course in found.courses] == [30, 40]
    assert waits(found) == [0, 30]


def test_a_job_that_takes_no_time_is_done_at_once() -> None:
    assert waits(outcome([job("a", 5, 0), job("a", 5, 10)], gpus("a", 1))) == [0, 0]


def test_queues_of_a_cohort_lend_what_is_idle_and_by_itself_none_does() -> None:
    jobs = [job("a", 0, 100, 2), job("a", 0, 100, 2), job("b", 50, 10, 2)]
    nodes = [gpus("a", 2, cohort="all"), gpus("b", 2, cohort="all"), cohort("all")]
    assert waits(outcome(jobs, *nodes)) == [0, 0, 50]
    assert waits(outcome(jobs, *nodes, alone=True)) == [0, 100, 0]


@pytest.mark.parametrize(("resume", "ended", "lost"), [(False, 160, 50), (True, 110, 0)])
def test_a_preempted_job_starts_again_from_zero_or_goes_on_where_it_was(
    resume: bool, ended: float, lost: float
) -> None:
    jobs = [job("a", 0, 100, 2), job("b", 50, 10, 2)]
    nodes = [gpus("a", 0, cohort="all"), gpus("b", 2, cohort="all", preemption=OWNER_TAKES_BACK), cohort("all")]
    found = outcome(jobs, *nodes, resume=resume)
    borrower, owner = found.courses
    assert (borrower.ended_seconds, borrower.preemptions, borrower.lost_seconds) == (ended, 1, lost)
    assert (owner.ended_seconds, owner.wait_seconds) == (60, 0)
    assert borrower.wait_seconds == ended - 100


def test_a_job_larger_than_everything_never_starts_and_ends_nothing() -> None:
    found = outcome([job("a", 0, 10, 3), job("a", 1, 10)], gpus("a", 2))
    assert waits(found) == [None, 0]


def test_gpus_in_use_count_while_jobs_arrive_and_those_of_runs_that_are_thrown_away_too() -> None:
    jobs = [job("a", 0, 100, 2), job("b", 50, 10, 2), job("b", 100, 1)]
    nodes = [gpus("a", 0, cohort="all"), gpus("b", 2, cohort="all", preemption=OWNER_TAKES_BACK), cohort("all")]
    # Until 50 the borrower, until 60 the owner, then the borrower again until and beyond 100.
    assert outcome(jobs, *nodes).busy_unit_seconds == 2 * 100


def test_the_same_log_comes_to_the_same() -> None:
    jobs = random_jobs(7)
    nodes = [gpus(name, 4, cohort="all", preemption=OWNER_TAKES_BACK) for name in "abc"]
    assert outcome(jobs, *nodes) == outcome(jobs, *nodes)


def test_backfilling_serves_a_crowded_queue_better_than_strict_order_and_its_widest_better_than_best_effort() -> None:
    jobs = random_jobs(3, limits=True)
    mean, widest = {}, {}
    for strategy in Strategy:
        found = [c for c in outcome(jobs, gpus("a", 12, strategy=strategy)).courses if c.wait_seconds is not None]
        assert len(found) == len(jobs)
        mean[strategy] = sum(c.wait_seconds or 0 for c in found) / len(found)
        wide = [c.wait_seconds or 0 for c in found if c.job.size == 8]
        widest[strategy] = sum(wide) / len(wide)
    assert mean[Strategy.BACKFILL] < 0.8 * mean[Strategy.STRICT_FIFO]
    assert widest[Strategy.BACKFILL] < 0.8 * widest[Strategy.BEST_EFFORT_FIFO]


def random_jobs(seed: int, limits: bool = False) -> list:
    """A crowded log as supercomputers have them: few wide jobs, many small ones, limits too long by half."""
    dice, now, jobs = random.Random(seed), 0.0, []
    for _ in range(400):
        now += dice.expovariate(1 / 60)
        run = float(dice.choice((20, 60, 300, 900)))
        name = "a" if limits else dice.choice("abc")
        limit = int(run * dice.uniform(1, 2)) if limits else None
        jobs.append(job(name, now, run, dice.choice((1, 1, 1, 2, 2, 4, 8 if limits else 4)), limit))
    return jobs
