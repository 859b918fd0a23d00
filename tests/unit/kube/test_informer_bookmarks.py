"""Bookmarks move the position, so that a resumed watch misses nothing and is not too old."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing

pytestmark = pytest.mark.virtual_time


async def test_a_watch_resumes_from_the_last_bookmark(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.bookmark(77)
    api.now.end()
    await settle()
    assert api.now.query["resourceVersion"] == "77"
    assert informer.position == 77
    assert len(api.lists) == 1


async def test_a_bookmark_is_not_an_object(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.bookmark(77)
    await settle()
    assert not informer.records
    assert not start.changes


async def test_a_position_never_goes_back(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.bookmark(77)
    api.now.say("ADDED", thing("a", 50))
    api.now.end()
    await settle()
    assert informer.position == 77
    assert api.now.query["resourceVersion"] == "77"
