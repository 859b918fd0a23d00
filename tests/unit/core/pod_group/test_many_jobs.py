"""Thousands of jobs that share one PodGroup: whoever writes jobs may, and patch any of them all the time."""

import pytest

from tests.fuzz.costs import counted
from tests.unit.core.pod_group.test_ensemble_engine import Shared, job
from tests.unit.core.worlds import queue
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.reasons.reasons import Code


@pytest.mark.parametrize("quorum", [1_000_000, 1_000, 1])
def test_thousands_that_share_one_cost_no_more_than_as_many_that_do_not(quorum: int) -> None:
    """One change has all of them settled again; with 5,000 that took six seconds, in each process that knows them."""
    world = Shared(queue("q", 4))
    world.submit(*(job(f"job-{number}", pods=1, quorum=quorum, created=float(number)) for number in range(3_000)))

    def change() -> None:
        world.submit(job("job-0", pods=1, quorum=quorum, labels={"changed": "again"}))
        for number in range(10):
            assert len(world.why(f"job-{number * 300}")) < 1_000
        assert len(world.engine.waiting()) == 3_000

    counted(change)


def test_more_pod_sets_than_are_decided_in_one_go_wait_until_fewer_are_needed() -> None:
    world = Shared(queue("q", 2_000))
    wide = tuple(PodSet(f"set-{number}", 1, PodPrice({"cpu": 1000})) for number in range(400))
    for quorum, starts in ((1_200, []), (800, ["a", "b"])):
        world.submit(*(job(name, quorum=quorum, pod_sets=wide, created=float(ord(name))) for name in "abc"))
        assert world.start() == starts
        if not starts:
            assert world.code("a") is Code.ENTRY_TOO_LARGE
            assert "have 1200 pod sets, more than 1024" in world.why("c")


def test_thousands_that_start_each_by_itself_are_counted_for_none_of_the_others() -> None:
    """All that share the PodGroup were counted for each, though nobody is stopped: nine seconds with 2,000."""
    world = Shared(queue("q", 1_000))
    world.submit(*(job(f"job-{number}", pods=1, quorum=1, created=float(number)) for number in range(400)))
    assert world.start() == ["job-0"], "the group runs, and each of the others is a gang of its own"
    assert len(counted(world.start)) == 399
