"""Waits grow, stay bounded and can be repeated."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.backoff import FIRST_SECONDS, MOST_SECONDS, Backoff


@given(seed=st.integers(), failures=st.integers(1, 40))
def test_every_wait_is_positive_and_bounded(seed: int, failures: int) -> None:
    backoff = Backoff(Random(seed))
    waits = [backoff.next_seconds() for _ in range(failures)]
    assert all(FIRST_SECONDS / 2 <= wait <= MOST_SECONDS for wait in waits)


@given(seed=st.integers())
def test_bounds_double_until_the_most(seed: int) -> None:
    backoff = Backoff(Random(seed), first_seconds=1, most_seconds=8)
    for bound in (1, 2, 4, 8, 8):
        assert bound / 2 <= backoff.next_seconds() <= bound


def test_a_success_starts_the_schedule_again() -> None:
    backoff = Backoff(Random(1), first_seconds=1, most_seconds=8)
    for _ in range(5):
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() <= 1


def test_a_seed_repeats_the_waits() -> None:
    first, second = Backoff(Random(7)), Backoff(Random(7))
    assert [first.next_seconds() for _ in range(9)] == [second.next_seconds() for _ in range(9)]
