"""Paths into objects of any shape."""

import pytest

from webhook.untyped import paths

TREE = {"a": [{"b": 1}, {"0": 2}]}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ((), TREE),
        (("a", 0, "b"), 1),
        (("a", "0", "b"), 1),
        (("a", "1", "0"), 2),
        (("a", 1, 0), None),
        (("a", 2), None),
        (("a", "b"), None),
        (("a", "9" * 5000), None),
        (("b", "c"), None),
        (("a", 0, "b", "c"), None),
    ],
)
def test_a_place_leads_through_lists_and_nowhere_where_something_is_missing(place, found):
    assert paths.find_at(TREE, place) == found
