"""What a waiting gang is told that it needs: numbers as a person would say them."""

import pytest

from webhook.core.notation.names import GUARANTEED, MAX_JOBS, PREEMPTIBLE_JOBS
from webhook.core.reasons.blockers import (
    Blocker,
    KeptForOthers,
    QuotaMissing,
    QuotaTooLow,
    StartsBy,
    StartUnknown,
    render,
    render_all,
)


@pytest.mark.parametrize(
    ("blocker", "said"),
    [
        (QuotaMissing("nvidia.com/gpu", 2000, 0), "needs 2 more nvidia.com/gpu"),
        (QuotaMissing("nvidia.com/gpu", 2000, 1), "needs 2 more nvidia.com/gpu and 1 job before it"),
        (QuotaMissing("nvidia.com/gpu", 2000, 3), "needs 2 more nvidia.com/gpu and 3 jobs before it"),
        (QuotaMissing(MAX_JOBS, 1000, 0), "needs one fewer job running there, or a higher limit"),
        (
            QuotaMissing(MAX_JOBS, 1000, 2),
            "needs one fewer job running there and 2 jobs before it, or a higher limit",
        ),
        (QuotaMissing(MAX_JOBS, 3000, 0), "needs 3 fewer jobs running there, or a higher limit"),
        (
            QuotaMissing(PREEMPTIBLE_JOBS, 1000, 0),
            "needs one fewer job that may be preempted running there, or a higher limit",
        ),
        (
            QuotaMissing(GUARANTEED + MAX_JOBS, 1000, 0),
            "needs one fewer job that may not be preempted running there, or a higher limit",
        ),
        (QuotaTooLow("cpu", 500), "needs 500m more cpu, which only a higher quota gives"),
        (
            QuotaTooLow(MAX_JOBS, 1000),
            "needs a limit that is higher by 1 job: nobody else holds what it lacks",
        ),
        (
            QuotaTooLow(PREEMPTIBLE_JOBS, 2000),
            "needs a limit that is higher by 2 jobs that may be preempted: nobody else holds what it lacks",
        ),
        (StartsBy(61.4), "it may start in 61 s, when running gangs reach their run-time limits"),
        (
            KeptForOthers(),
            "what is free is kept for gangs ahead of it; it starts when they have started and enough is left",
        ),
        (StartUnknown(("team-a/train",)), "its start time is unknown: team-a/train has no run-time limit"),
        (StartUnknown(("a/x", "b/y")), "its start time is unknown: a/x, b/y have no run-time limit"),
    ],
)
def test_what_is_in_the_way_is_said_in_words(blocker: Blocker, said: str) -> None:
    assert render(blocker) == said


@pytest.mark.parametrize(
    ("blockers", "said"),
    [
        ([QuotaMissing("cpu", 2000, 1)], "needs 2 more cpu and 1 job before it"),
        ([QuotaMissing("cpu", 2000), QuotaMissing("gpu", 4000)], "needs 2 more cpu and 4 more gpu"),
        (
            [QuotaMissing("cpu", 2000, 1), QuotaMissing("gpu", 4000, 2), QuotaMissing("pods", 1000, 1)],
            "needs 2 more cpu, 4 more gpu and 1 more pod, and 2 jobs before it",
        ),
        (
            [QuotaTooLow("cpu", 2000), QuotaMissing("gpu", 4000), QuotaMissing(MAX_JOBS, 1000)],
            "needs 2 more cpu, which only a higher quota gives; needs 4 more gpu; "
            "needs one fewer job running there, or a higher limit",
        ),
        (
            [QuotaMissing("gpu", 1000, flavor="a"), QuotaMissing("gpu", 3000, flavor="b"), KeptForOthers()],
            "needs 1 more gpu of flavor a and 3 more gpu of flavor b; what is free is kept for gangs ahead of it; "
            "it starts when they have started and enough is left",
        ),
    ],
)
def test_several_that_are_in_the_way_are_said_in_one_sentence_where_others_hold_them(
    blockers: list[Blocker], said: str
) -> None:
    assert render_all(blockers) == said
