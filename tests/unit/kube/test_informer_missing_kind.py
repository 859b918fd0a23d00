"""A kind whose CRD is not installed costs one slow question and starts to deliver when it appears."""

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, thing
from webhook import errors

pytestmark = pytest.mark.virtual_time


def missing() -> errors.NotFound:
    return errors.NotFound(404, "NotFound", "the server could not find the requested resource")


async def test_it_counts_as_synced_and_empty_but_not_served(api: FakeApi, start: Started) -> None:
    api.faults = [missing()]
    informer = start()
    await settle()
    assert informer.synced.is_set()
    assert not informer.served
    assert not informer.records


async def test_it_is_asked_for_slowly(api: FakeApi, start: Started) -> None:
    api.faults = [missing() for _ in range(1000)]
    start(missing_retry_seconds=10)
    await settle(105)
    assert len(api.lists) == 11
    assert not api.watches


async def test_it_delivers_once_it_appears(api: FakeApi, start: Started) -> None:
    api.faults = [missing(), missing()]
    api.objects, api.version = [thing("a", 3)], 4
    informer = start()
    await settle(11)
    assert informer.served
    assert start.changes == [(None, "a@3")]


async def test_a_kind_that_goes_away_takes_its_objects_with_it(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 3)], 4
    informer = start()
    await settle()
    api.faults = [missing() for _ in range(100)]
    api.now.end()
    await settle(20)
    assert not informer.served
    assert start.changes == [(None, "a@3"), ("a@3", None)]


async def test_one_not_found_of_a_starting_server_empties_nothing(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 3)], 4
    informer = start()
    await settle()
    api.faults = [missing(), missing()]
    api.now.say("ADDED", thing("b", 5))
    api.objects, api.version = [thing("a", 3), thing("b", 5)], 5
    api.now.end()
    await settle(30)
    assert informer.served
    assert start.changes == [(None, "a@3"), (None, "b@5")]


async def test_a_refused_list_is_not_an_empty_one(api: FakeApi, start: Started) -> None:
    api.faults = [errors.Forbidden(403, "Forbidden", "no") for _ in range(3)]
    informer = start()
    await settle(0.2)
    assert not informer.synced.is_set()
    await settle(30)
    assert informer.synced.is_set()


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (errors.Forbidden(403, "Forbidden", "no"), True),
        (errors.Unavailable(500, "InternalError", "conversion webhook failed"), True),
        (errors.Unavailable(429, "TooManyRequests", "busy"), False),
        (errors.Unavailable(403, "Forbidden", "not yet ready to handle request"), False),
        (errors.Unavailable(0, "", "connection reset"), False),
    ],
)
async def test_a_server_that_is_busy_or_starts_refuses_nothing(
    api: FakeApi, start: Started, error: errors.ApiError, refused: bool
) -> None:
    """What cannot be read is called so after some refusals, and its jobs wait; under load it is read a little later."""
    informer = start()
    await settle()
    api.faults = [error for _ in range(8)]
    api.now.end()
    await settle(20)
    assert bool(informer.refusal) is refused


BUSY = errors.Unavailable(429, "TooManyRequests", "storage is (re)initializing")


async def test_a_kind_whose_watches_are_put_off_because_it_cannot_be_read_any_more_is_refused(
    api: FakeApi, start: Started
) -> None:
    """An API server has nothing to follow where a conversion webhook has died, and says so as if it were busy."""
    informer = start()
    await settle()
    api.watches_fail, api.lists_fail = BUSY, errors.Unavailable(500, "InternalError", "conversion webhook failed")
    api.now.end()
    await settle(20)
    assert "conversion webhook failed" in informer.refusal
    api.watches_fail = api.lists_fail = None
    await settle(60)
    assert not informer.refusal


async def test_a_server_that_puts_off_watches_and_lists_all_the_same_is_listed_ever_more_rarely(
    api: FakeApi, start: Started
) -> None:
    informer = start()
    await settle()
    api.watches_fail = BUSY
    api.now.end()
    await settle(3600)
    assert 3 <= len(api.lists) <= 8
    assert not informer.refusal
