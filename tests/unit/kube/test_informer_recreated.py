"""An object that is deleted and created again under its name is another object."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing

pytestmark = pytest.mark.virtual_time


async def test_a_successor_seen_in_a_list_is_a_deletion_then_an_addition(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 2, uid="first")], 3
    informer = start()
    await settle()
    api.objects, api.version = [thing("a", 6, uid="second")], 7
    await informer.reread()
    assert start.changes == [(None, "a@2"), ("a@2", None), (None, "a@6")]


async def test_a_successor_seen_in_a_watch_is_a_deletion_then_an_addition(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    api.now.say("ADDED", thing("a", 4, uid="first"))
    api.now.say("ADDED", thing("a", 6, uid="second"))
    await settle()
    assert start.changes == [(None, "a@4"), ("a@4", None), (None, "a@6")]


async def test_the_late_deletion_of_the_predecessor_does_not_touch_the_successor(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.say("ADDED", thing("a", 6, uid="second"))
    api.now.say("DELETED", thing("a", 5, uid="first"))
    await settle()
    record = informer.get("team", "a")
    assert record is not None
    assert record.uid == "second"
