"""Lists come in pages, and only a complete one proves that something is gone."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing
from webhook import errors

pytestmark = pytest.mark.virtual_time


async def test_all_pages_are_read(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing(f"o{number}", number + 1) for number in range(1203)], 2000
    informer = start()
    await informer.synced.wait()
    assert len(informer.records) == 1203
    assert [query.get("continue") for query in api.lists] == [None, "500", "1000"]
    assert {query["limit"] for query in api.lists} == {"500"}


async def test_it_is_not_synced_before_the_last_page(api: FakeApi, start: Started) -> None:
    api.objects = [thing(f"o{number}", 1) for number in range(900)]
    informer = start()
    await settle(0.0015)
    assert len(api.lists) == 2
    assert not informer.synced.is_set()
    await settle()
    assert informer.synced.is_set()


async def test_an_expired_page_starts_over_and_deletes_nothing_meanwhile(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing(f"o{number}", 1) for number in range(5)], 5
    informer = start(page_size=2)
    await settle()
    start.changes.clear()
    informer.relist()
    await settle(0.0015)
    api.faults = [errors.Gone(410, "Expired", "continue token")]
    await settle(2)
    assert len(informer.records) == 5
    assert not start.changes
    assert "limit" not in api.lists[-1]


async def test_after_an_unpaged_list_lists_are_paged_again(api: FakeApi, start: Started) -> None:
    api.objects = [thing(f"o{number}", 1) for number in range(5)]
    informer = start(page_size=2)
    await settle(0.0015)
    api.faults = [errors.Gone(410, "Expired", "continue token")]
    await settle(2)
    await informer.reread()
    assert "limit" in api.lists[-1]


async def test_a_list_of_the_past_is_not_believed(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 40)], 50
    informer = start()
    await settle()
    api.objects, api.version = [], 30
    informer.relist()
    await settle(0.1)
    assert informer.get("team", "a") is not None
    api.objects, api.version = [thing("a", 40)], 51
    await settle(30)
    assert informer.position == 51
    assert start.changes == [(None, "a@40")]


async def test_a_past_that_persists_is_a_restored_server(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 40), thing("b", 41)], 50
    informer = start()
    await settle()
    api.objects, api.version = [thing("a", 20)], 30
    await informer.reread()
    record = informer.get("team", "a")
    assert record is not None
    assert record.resource_version == 20
    assert informer.get("team", "b") is None
    assert informer.position == 30


async def test_a_page_too_long_to_be_read_is_asked_for_with_half_as_many(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing(f"o{number}", number + 1) for number in range(10)], 20
    api.objects_max = 3
    informer = start(page_size=8)
    await informer.synced.wait()
    assert len(informer.records) == 10
    assert [query["limit"] for query in api.lists[:3]] == ["8", "4", "2"]
    api.objects_max = 100
    await informer.reread()
    assert api.lists[-2]["limit"] == "8"


async def test_one_object_too_long_to_be_read_is_asked_for_slowly(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("huge", 1)], 2
    api.objects_max = 0
    informer = start(page_size=8)
    await settle(60)
    assert not informer.synced.is_set()
    assert len(api.lists) < 30
