"""A store never goes back in time, and tells each change once."""

from dataclasses import replace

from tests.unit.kube.fake_api import Thing
from webhook.kube.store import TOMBSTONES_MAX, Store

FIRST = Thing("team", "a", "uid-1", 10, "")
KEY = ("team", "a")


def filled() -> Store[Thing]:
    store: Store[Thing] = Store()
    store.put(FIRST)
    return store


def test_a_newer_state_replaces_an_older_one() -> None:
    newer = replace(FIRST, resource_version=11)
    assert filled().put(newer) == ((FIRST, newer),)


def test_an_older_state_is_ignored() -> None:
    store = filled()
    assert store.put(replace(FIRST, resource_version=9)) == ()
    assert store.records[KEY] is FIRST


def test_the_same_state_again_is_no_change() -> None:
    assert filled().put(replace(FIRST, value="other")) == ()


def test_a_successor_of_the_same_name_is_a_deletion_and_an_addition() -> None:
    successor = replace(FIRST, uid="uid-2", resource_version=12)
    assert filled().put(successor) == ((FIRST, None), (None, successor))


def test_a_predecessor_of_the_same_name_is_ignored() -> None:
    assert filled().put(replace(FIRST, uid="uid-0", resource_version=8)) == ()


def test_a_deletion_of_another_object_of_that_name_is_ignored() -> None:
    store = filled()
    assert store.drop(KEY, "uid-0", 20) == ()
    assert store.records[KEY] is FIRST


def test_an_event_older_than_the_deletion_does_not_bring_the_object_back() -> None:
    store = filled()
    assert store.drop(KEY, "uid-1", 20) == ((FIRST, None),)
    assert store.put(replace(FIRST, resource_version=19)) == ()
    assert not store.records


def test_an_object_that_left_a_selection_may_come_back_newer() -> None:
    store = filled()
    store.drop(KEY, "uid-1", 20)
    again = replace(FIRST, resource_version=21)
    assert store.put(again) == ((None, again),)


def test_deletions_are_remembered_in_bounded_memory() -> None:
    store: Store[Thing] = Store()
    gone = [Thing("team", str(number), f"uid-{number}", number, "") for number in range(3 * TOMBSTONES_MAX)]
    for each in gone:
        store.drop((each.namespace, each.name), each.uid, each.resource_version)
    brought_back = [each for each in gone if store.put(each)]
    assert brought_back == gone[:-TOMBSTONES_MAX]


def test_what_a_complete_list_does_not_name_is_gone() -> None:
    store = filled()
    other = replace(FIRST, name="b", uid="uid-b")
    store.begin_list()
    assert store.put_listed(other) == ((None, other),)
    assert store.end_list() == ((FIRST, None),)


def test_a_list_that_says_what_is_known_changes_nothing() -> None:
    store = filled()
    store.begin_list()
    assert store.put_listed(replace(FIRST)) == ()
    assert store.end_list() == ()


def test_a_list_replaces_a_record_that_now_reads_differently() -> None:
    store = filled()
    reread = replace(FIRST, value="other")
    store.begin_list()
    assert store.put_listed(reread) == ((FIRST, reread),)


def test_an_unreadable_object_in_a_list_keeps_its_record() -> None:
    store = filled()
    store.begin_list()
    assert store.keep_listed(KEY, "uid-1") == ()
    assert store.end_list() == ()
    assert store.records[KEY] is FIRST


def test_an_unreadable_successor_ends_its_predecessor() -> None:
    store = filled()
    store.begin_list()
    assert store.keep_listed(KEY, "uid-2") == ((FIRST, None),)
    assert store.end_list() == ()
