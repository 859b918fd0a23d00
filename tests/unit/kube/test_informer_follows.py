"""An informer lists, then follows: the everyday case."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing

pytestmark = pytest.mark.virtual_time


async def test_it_lists_then_watches_from_the_version_of_the_list(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 3), thing("b", 5)], 7
    informer = start()
    await informer.synced.wait()
    await settle()
    assert {key[1] for key in informer.records} == {"a", "b"}
    assert api.now.query["resourceVersion"] == "7"
    assert api.now.query["allowWatchBookmarks"] == "true"
    assert informer.served


async def test_events_add_change_and_delete(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.say("ADDED", thing("a", 10))
    api.now.say("MODIFIED", thing("a", 11, value="new"))
    await settle()
    record = informer.get("team", "a")
    assert record is not None
    assert record.value == "new"
    api.now.say("DELETED", thing("a", 12))
    await settle()
    assert informer.get("team", "a") is None
    assert start.changes == [(None, "a@10"), ("a@10", "a@11"), ("a@11", None)]
    assert informer.position == 12


async def test_selectors_are_part_of_every_list_and_watch(api: FakeApi, start: Started) -> None:
    start(label_selector="team=a", field_selector="metadata.name=x")
    await settle()
    for query in (api.lists[-1], api.now.query):
        assert query["labelSelector"] == "team=a"
        assert query["fieldSelector"] == "metadata.name=x"


async def test_an_object_that_decodes_to_nothing_counts_as_absent(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 3), thing("b", 4, value="ignored")], 5
    informer = start()
    await settle()
    api.now.say("MODIFIED", thing("a", 6, value="ignored"))
    await settle()
    assert not informer.records
    assert start.changes == [(None, "a@3"), ("a@3", None)]
