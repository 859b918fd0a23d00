"""An elastic Indexed Job that ended in part, was stopped and started again: no more runs than is reserved for it, and
it grows back to what it was.
"""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import apply, load, record_of, reservation_of
from tests.unit.server.jobs.test_children import update
from tests.unit.server.reviews import ALICE, view, with_ledger
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.notation import names
from webhook.core.reasons.eviction import PREEMPTED
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches import job as patches
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.gang import read_gang
from webhook.jobs.reading.record import Requeue
from webhook.server.jobs.growth import growth, taken_back

JOB = KINDS["Job.batch"]
SIZE = 8


class Elastic:
    """A Job as its controller, Tutti and its owner write it."""

    def __init__(self, size: int = SIZE) -> None:
        self.obj: dict[str, Any] = load("job")
        self.obj["metadata"] |= {"namespace": "team-a", "uid": "job-1", "resourceVersion": "1"}
        self.obj["spec"] |= {"completionMode": "Indexed", "suspend": True}
        self.ended: set[int] = set()
        self.held: Reservation | None = None
        self._write(size)

    @property
    def size(self) -> int:
        return int(self.obj["spec"]["completions"])

    @property
    def left(self) -> int:
        """How many pods its controller runs, or would."""
        return self.size - len(self.ended)

    @property
    def room(self) -> int:
        """What is charged for it."""
        assert self.held is not None
        return self.held.counts["main"] - record_of(self.obj).given_back(self.held).get("main", 0)

    def _write(self, size: int) -> None:
        """Write its size; its controller forgets the indexes beyond that."""
        self.obj["spec"] |= {"parallelism": size, "completions": size}
        self.ended = {index for index in self.ended if index < size}
        self.obj["status"] = {"completedIndexes": ",".join(map(str, sorted(self.ended))), "succeeded": len(self.ended)}

    def end(self, index: int) -> None:
        if index < self.size:
            self.ended.add(index)
            self._write(self.size)

    @property
    def runs(self) -> bool:
        return not self.obj["spec"]["suspend"]

    def reserve(self) -> None:
        record = record_of(self.obj)
        assert record.asks is not None
        self.held = reservation_of(record, dict(record.asks.counts))

    def start(self) -> None:
        """Start it, after its owner may have written it once more since there is room for it."""
        if self.held is None:
            self.reserve()
        assert self.held is not None
        self.obj = apply(self.obj, patches.start(record_of(self.obj), self.held, (3, 1), {}))

    def stop(self) -> None:
        self.obj = apply(self.obj, patches.stop(record_of(self.obj), Requeue(PREEMPTED, 0.0)))
        self.held = None

    def refused(self, size: int) -> str | None:
        """Return why its owner may not give it that size now; else it has it."""
        new = copy.deepcopy(self)
        new._write(size)
        # Its status is as it was when the owner writes.
        sent = new.obj | {"status": self.obj["status"]}
        before, now = (read_gang(JOB, obj, ReadContext()) for obj in (self.obj, sent))
        assert now.asks is not None
        if self.held is not None:
            found = growth(before.asks, now.asks, self.held)
            found = found or taken_back(before, now, self.held, suspended=not self.runs)
            if found is not None:
                return found
        self._write(size)
        return None


STEPS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, SIZE - 1)),
    st.tuples(st.just("resize"), st.integers(1, SIZE + 2)),
    st.tuples(st.sampled_from(["reserve", "start"]), st.none()),
    st.tuples(st.just("stop"), st.none()),
)


@given(st.lists(STEPS, max_size=20))
def test_never_more_run_than_is_charged_and_what_was_given_back_stays_so(steps: list[tuple[str, int | None]]) -> None:
    job, given_back = Elastic(), 0
    for what, number in steps:
        if what in ("reserve", "start") and job.held is None and job.left:
            job.reserve()
            given_back = 0
        if what == "start" and job.held is not None and not job.runs:
            job.start()
        elif what == "stop" and job.held is not None:
            job.stop()
        elif what == "end" and job.runs and number is not None:
            job.end(number)
        elif what == "resize" and number is not None:
            job.refused(number)
        if job.held is not None:
            assert job.left <= job.room
            now = record_of(job.obj).given_back(job.held).get("main", 0)
            assert now >= given_back, "others may have it"
            given_back = now


@given(
    st.sets(st.integers(0, SIZE - 1), max_size=SIZE - 1),
    st.sets(st.integers(0, SIZE - 1), max_size=SIZE),
    st.lists(st.integers(1, SIZE), max_size=4),
)
def test_it_shrinks_and_grows_back_as_long_as_nothing_that_has_ended_would_run_again(
    before: set[int], after: set[int], sizes: list[int]
) -> None:
    job = Elastic()
    job.start()
    for index in before:
        job.end(index)
    job.stop()
    job.start()
    assert job.held is not None
    assert job.held.counts["main"] == SIZE - len(before), "it does not ask again for what has ended"
    for index in after:
        job.end(index)
    charged = job.room
    assert charged == job.left, "what has ended is given back at once"
    for size in (*(size for size in sizes if size > max(job.ended, default=-1)), SIZE):
        assert job.refused(size) is None
        assert job.room == charged, "by a size nothing is given back"


@pytest.mark.parametrize("through", [7, 5, 4])
async def test_one_that_was_stopped_in_part_done_grows_back_in_reviews(through: int) -> None:
    job = Elastic()
    job.end(3)
    job.start()
    assert job.held is not None
    small = copy.deepcopy(job)
    assert small.refused(through) is None
    for old, new in ((job, small), (small, job)):
        seen = with_ledger(view(), job.held)
        seen.put_job(record_of(old.obj))
        answer = await update(seen, old.obj, new.obj, ALICE)
        assert answer.allowed, answer.message


def test_what_a_start_was_spared_is_written_on_the_job_and_counts_for_that_start_alone() -> None:
    job = Elastic()
    job.end(3)
    job.start()
    assert job.held is not None
    record = record_of(job.obj)
    assert record.admission is not None
    assert record.admission.spared == {"main": 1}
    assert '"spared":{"main":1}' in job.obj["metadata"]["annotations"][names.ADMISSION]
    small = copy.deepcopy(job)
    small._write(4)
    assert record_of(small.obj).given_back(job.held) == {}
    # Of another start, which had room for it.
    later = replace(reservation_of(record, {"main": 8}), since_seconds=2000.0)
    assert record_of(small.obj).given_back(later) == {"main": 1}


async def test_before_it_is_started_it_gives_nothing_back_and_its_size_goes_down_and_up_again() -> None:
    job = Elastic()
    for index in range(4):
        job.end(index)
    job.reserve()
    assert job.held is not None
    small = copy.deepcopy(job)
    assert small.refused(6) is None
    assert small.room == job.room == 4, "how many it is spared is known once it is started"
    for known in (with_ledger(view(), job.held), view()):
        # A replica that has not read of the reservation answers the same.
        known.put_job(record_of(small.obj))
        assert (await update(known, small.obj, job.obj, ALICE)).allowed
    small.start()
    assert small.room == small.left == 2
    job.start()
    assert job.refused(6) is None
    assert job.room == 4
    job.obj = apply(job.obj, patches.stop(record_of(job.obj), Requeue(PREEMPTED, 0.0)))
    assert job.room == 4, "what its start was spared is known when it is stopped, too"


@pytest.mark.parametrize("restored", [False, True], ids=["as it ran", "with the completions that it had before"])
def test_one_that_was_started_smaller_takes_nothing_back_when_it_is_stopped(restored: bool) -> None:
    job = Elastic()
    job.obj["metadata"]["annotations"] = {names.MIN_PARALLELISM: "2", names.COMPLETIONS_FOLLOW: "true"}
    job.held = reservation_of(record_of(job.obj), {"main": 4})
    job.start()
    job.end(0)
    job.end(1)
    assert job.room == job.left == 2
    # It may change its templates again once its controller reports it stopped; pods may still be stopping then.
    job.obj["status"] |= {"terminating": 2} | ({} if restored else {"active": 2})
    job.obj = apply(job.obj, patches.stop(record_of(job.obj), Requeue(PREEMPTED, 0.0)))
    if restored:
        job.obj["status"] |= {"conditions": [{"type": "Suspended", "status": "True"}]}
        job.obj = apply(job.obj, patches.stop(record_of(job.obj), Requeue(PREEMPTED, 0.0)))
    assert job.size == (8 if restored else 4)
    assert job.room == 2
    asked = record_of(job.obj).asks
    assert asked is not None
    assert asked.counts == {"main": 8}, "its completions count what has ended"


def shrinking(ended: int) -> tuple[Elastic, Elastic]:
    """Return a started Job of four pods of which so many have ended, and the same with three."""
    job = Elastic(4)
    job.start()
    job.end(ended)
    small = copy.deepcopy(job)
    small._write(3)
    return job, small


@pytest.mark.parametrize(
    ("forgets", "seen", "allowed"),
    [
        (True, Ledger(3, 0), False),
        (True, None, False),
        # Nothing is held: nor was anything given back.
        (True, Ledger(3, 1), True),
        (False, Ledger(3, 0), True),
    ],
    ids=["behind", "without a ledger", "all is read", "nothing is forgotten"],
)
async def test_who_has_not_read_what_it_holds_lets_it_forget_nothing(
    forgets: bool, seen: Ledger | None, allowed: bool
) -> None:
    job, small = shrinking(3 if forgets else 0)
    replica = view()
    replica.set_ledger(seen)
    replica.put_job(record_of(job.obj))
    answer = await update(replica, job.obj, small.obj | {"status": job.obj["status"]}, ALICE)
    assert answer.allowed is allowed
    assert allowed or (answer.code, answer.message.endswith("it is retried")) == (503, True)


@pytest.mark.parametrize(
    ("earlier", "version", "forgets", "code"),
    [
        (True, (3, 0), True, 503),
        # What one commit writes on several pages is read one after another.
        (True, (3, 1), True, 503),
        (True, (3, 0), False, None),
        (False, (3, 0), True, 503),
        (False, (3, 1), True, 403),
    ],
    ids=["an earlier entry", "its own page not read", "nothing is forgotten", "not so far", "all is read"],
)
async def test_who_has_read_only_what_it_held_before_lets_it_forget_nothing_either(
    earlier: bool, version: tuple[int, int], forgets: bool, code: int | None
) -> None:
    """It was stopped and started again since: the start that is known here was spared what has ended by now."""
    job, small = shrinking(3 if forgets else 0)
    assert job.held is not None
    held = replace(job.held, since_seconds=job.held.since_seconds - 100) if earlier else job.held
    if earlier:
        # As if all that has ended had been spared: then nothing of it was given back.
        held = replace(held, pod_sets=tuple(replace(each, count=3) for each in held.pod_sets))
    replica = with_ledger(view(), held, epoch=version[0], seq=version[1])
    replica.put_job(record_of(job.obj))
    answer = await update(replica, job.obj, small.obj | {"status": job.obj["status"]}, ALICE)
    assert (None if answer.allowed else answer.code) == code
