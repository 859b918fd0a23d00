"""When the position is too old, everything is read again and the difference told."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing
from webhook import errors

pytestmark = pytest.mark.virtual_time
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


async def test_an_expired_watch_lists_again_and_tells_the_difference(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 2), thing("b", 3)], 3
    start()
    await settle()
    start.changes.clear()
    api.objects, api.version = [thing("b", 9), thing("c", 8)], 9
    api.now.say("ERROR", EXPIRED)
    await settle()
    assert sorted(start.changes, key=str) == [("a@2", None), ("b@3", "b@9"), (None, "c@8")]
    assert api.now.query["resourceVersion"] == "9"


async def test_a_watch_that_is_refused_as_too_old_lists_again(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    api.faults = [errors.Gone(410, "Expired", "too old")]
    api.version = 30
    api.now.end()
    await settle(2)
    assert len(api.lists) == 2
    assert api.now.query["resourceVersion"] == "30"


async def test_a_server_whose_watches_always_expire_is_listed_ever_more_slowly(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    for _ in range(300):
        api.now.say("ERROR", EXPIRED)
        await settle(1)
    assert len(api.lists) < 40


async def test_another_error_in_the_watch_resumes_it_without_a_list(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    api.now.bookmark(5)
    api.now.say("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"})
    await settle(2)
    assert len(api.lists) == 1
    assert api.now.query["resourceVersion"] == "5"
