"""What is wrong is told with the value that is, as far as anybody reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.notation.problem import shown

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner, max_size=30),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "absent"),
        ("two", "two"),
        (2, "2"),
        ({"a": [1, None, "x"]}, '{"a": [1, null, "x"]}'),
        ([], "[]"),
        ("x" * 81, "x" * 79 + "…"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, …"),
        ({(1, 2): 3}, "a dict that is too deep to show"),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_what_is_too_deep_is_not_shown() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep).startswith("[[[[")


@given(JSON)
def test_it_is_never_long(value: object) -> None:
    assert len(shown(value)) <= 80


def test_of_a_long_value_no_more_is_written_than_is_shown() -> None:
    """Of 30,000 names in the place of a number it took 50 ms."""
    written = 0

    class Amount:
        def __str__(self) -> str:
            nonlocal written
            written += 1
            return "9P"

    for value in ({f"a.b/{number}": Amount() for number in range(30_000)}, [Amount()] * 30_000):
        assert shown(value).endswith("…")
    assert written < 50
