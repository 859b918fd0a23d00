"""Each cluster has one try with a gang, by whatever name, and a member that lies about its cluster has few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.failed_in import CLUSTERS_OF_A_NAME, FailedIn, note, tried

NAMES, CLUSTERS = ("a", "b", "c"), tuple("pqrstuvwxyz")
LEADS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("", *CLUSTERS)))
PLACES = st.lists(st.builds(FailedIn, st.sampled_from(NAMES), st.sampled_from(("", *CLUSTERS))), max_size=40)


def failed(*places: FailedIn) -> tuple[FailedIn, ...]:
    found: tuple[FailedIn, ...] = ()
    for each in places:
        found = note(found, [each])
    return found


@pytest.mark.parametrize(
    ("there", "clusters", "expected"),
    [
        ([FailedIn("a", "x")], {"a": "x", "b": "y"}, {"a"}),
        ([FailedIn("a", "x")], {"b": "y", "new": "x"}, {"a", "new"}),
        ([FailedIn("a", "x")], {"a": "y", "b": "x"}, {"b"}),
        ([FailedIn("a", "x")], {"a": "", "b": "y"}, {"a"}),
        ([FailedIn("a", "")], {"a": "x", "b": "x"}, {"a"}),
        ([FailedIn("a", str(number)) for number in range(CLUSTERS_OF_A_NAME)], {"a": "z", "b": "w"}, {"a"}),
    ],
    ids=["by its name", "renamed", "swapped", "silent", "disputed", "says another one each time"],
)
def test_who_has_had_their_try(there: list[FailedIn], clusters: dict[str, str], expected: set[str]) -> None:
    assert tried(failed(*there), clusters) == expected


@given(PLACES, LEADS)
def test_a_noted_cluster_is_not_tried_again_by_any_name(places: list[FailedIn], clusters: dict[str, str]) -> None:
    noted = failed(*places)
    had = tried(noted, clusters)
    assert all(name in had for name, cluster in clusters.items() if cluster in {each.cluster for each in noted} - {""})
    assert had <= clusters.keys() | {each.member for each in noted}


@given(PLACES)
def test_what_is_noted_of_one_name_is_bounded(places: list[FailedIn]) -> None:
    noted = failed(*places)
    assert len(set(noted)) == len(noted)
    assert all(sum(each.member == name for each in noted) <= CLUSTERS_OF_A_NAME for name in NAMES)


def test_a_gang_is_noted_to_have_failed_once_in_one_place() -> None:
    granted = Dispatch().offered(3, "a", "x").granted("copy", "17")
    again = granted.failed_over("failed").proven_gone().offered(3, "a", "x").granted("copy", "17").failed_over("again")
    assert again.failed == (FailedIn("a", "x"),)
