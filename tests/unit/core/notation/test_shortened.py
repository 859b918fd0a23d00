"""What is left of a long text: whole words of its beginning and of its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.notation.shortened import shortened

INVALID = 'Job.batch "train" is invalid: spec.template: Invalid value: ' + "core.PodTemplateSpec{}, " * 20
WHY = "field is immutable"


def test_what_is_short_stays_as_it_is() -> None:
    assert shortened("no room", 7) == "no room"


def test_of_what_is_long_the_beginning_and_the_end_are_left() -> None:
    assert shortened(INVALID + WHY, 120) == (
        'Job.batch "train" is invalid: spec.template: Invalid value: ... field is immutable'
    )


@pytest.mark.parametrize("long", ["x" * 300, f"{'x' * 300} y", f"x {'y' * 300}"])
def test_a_word_that_is_too_long_is_cut(long: str) -> None:
    assert 64 <= len(shortened(long, 100)) <= 100


@given(st.text(), st.integers(min_value=20, max_value=60))
def test_it_is_never_longer_than_is_allowed(text: str, characters: int) -> None:
    assert len(shortened(text, characters)) <= characters


@given(st.lists(st.text("abc", min_size=1, max_size=9), min_size=30), st.integers(min_value=40, max_value=60))
def test_its_words_are_whole(words: list[str], characters: int) -> None:
    assert set(shortened(" ".join(words), characters).split()) <= {*words, "..."}
