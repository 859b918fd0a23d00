"""A watch that ends, breaks or falls silent is resumed from where it was: the normal case."""

import asyncio

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing
from webhook import errors
from webhook.kube.list_watch import UNANSWERED_SECONDS_MAX

pytestmark = pytest.mark.virtual_time


async def test_an_ended_watch_resumes_at_once_from_the_last_event(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    api.now.say("ADDED", thing("a", 9))
    await settle(10)
    api.now.end()
    await settle(0.01)
    assert [watch.query["resourceVersion"] for watch in api.watches] == ["1", "9"]
    assert len(api.lists) == 1


async def test_a_silent_watch_is_given_up_and_resumed(api: FakeApi, start: Started) -> None:
    start(idle_seconds=60)
    await settle(59)
    assert len(api.watches) == 1
    await settle(2)
    assert len(api.watches) == 2
    assert len(api.lists) == 1


async def test_it_says_up_to_when_it_knows_all_there_was(api: FakeApi, start: Started) -> None:
    informer, loop = start(), asyncio.get_running_loop()
    assert informer.heard_seconds == float("-inf")
    await settle()
    listed = informer.heard_seconds
    assert float("-inf") < listed <= loop.time()
    await settle(20)
    assert informer.heard_seconds == listed, "silence says nothing"
    api.now.bookmark(77)
    await settle(1)
    assert informer.heard_seconds >= listed + 20


async def test_watches_that_end_at_once_are_not_started_in_a_storm(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    for _ in range(200):
        api.now.end()
        await settle(1)
    waits = [later - earlier for earlier, later in zip(api.times[1:], api.times[2:], strict=False)]
    assert len(api.watches) < 30
    assert max(waits) > 14


async def test_a_server_that_cannot_serve_the_watch_is_asked_again_without_a_list(api: FakeApi, start: Started) -> None:
    start()
    await settle()
    api.faults = [errors.Unavailable(503, "ServiceUnavailable", "starting") for _ in range(4)]
    api.now.end()
    await settle(60)
    assert len(api.lists) == 1
    assert not api.faults
    assert api.now.query["resourceVersion"] == "1"


async def test_a_server_that_was_gone_for_long_is_followed_again_soon_after_it_is_back(
    api: FakeApi, start: Started
) -> None:
    """One that answers that it has too much to do is asked ever more rarely instead."""
    start()
    await settle()
    api.faults = [errors.Unavailable(0, "ConnectionFailed", "gone") for _ in range(400)]
    api.now.end()
    await settle(600)
    waits = [later - earlier for earlier, later in zip(api.times[3:], api.times[4:], strict=False)]
    assert max(waits) <= UNANSWERED_SECONDS_MAX
    assert len(api.lists) == 1
    api.faults = [errors.Unavailable(429, "TooManyRequests", "busy") for _ in range(8)]
    asked = len(api.times)
    await settle(120)
    assert max(later - earlier for earlier, later in zip(api.times[asked:], api.times[asked + 1 :], strict=False)) > 10
