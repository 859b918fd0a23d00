"""Reading everything again on demand, because the same objects now mean something else."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, Thing, decode_thing, thing
from webhook import errors

pytestmark = pytest.mark.virtual_time


async def test_records_that_read_differently_are_told(api: FakeApi, start: Started) -> None:
    meaning = "old"

    def decode(raw: bytes) -> Thing | None:
        document = json.loads(raw)
        return decode_thing(json.dumps(document | {"value": meaning}).encode())

    api.objects, api.version = [thing("a", 3)], 4
    informer = start(decode)
    await settle()
    meaning = "new"
    await informer.reread()
    record = informer.get("team", "a")
    assert record is not None
    assert record.value == "new"
    assert start.changes == [(None, "a@3"), ("a@3", "a@3")]


async def test_many_wishes_are_one_list(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    for _ in range(50):
        informer.relist()
    await settle()
    assert len(api.lists) == 2
    assert len(api.watches) == 2


async def test_a_wish_during_a_list_has_it_read_again_once_it_is_whole(api: FakeApi, start: Started) -> None:
    api.objects = [thing(f"o{number}", 1) for number in range(9)]
    informer = start(page_size=3)
    await settle(0.0015)
    informer.relist()
    await settle()
    assert [query.get("continue") for query in api.lists] == [None, "3", "6", None, "3", "6"]
    assert len(informer.records) == 9


async def test_wishes_that_come_faster_than_a_list_is_read_do_not_keep_it_from_ending(
    api: FakeApi, start: Started
) -> None:
    """A new namespace every second, say, each of them a reason to read all jobs again."""
    api.objects = [thing(f"o{number}", 1) for number in range(9)]
    informer = start(page_size=3)
    await settle()
    api.objects, api.version = [thing(f"o{number}", 1) for number in range(8)], 9
    for _ in range(20):
        informer.relist()
        await settle(0.0015)
    assert len(informer.records) == 8, "that one is gone is known when a list is whole"


async def test_it_waits_for_a_list_that_began_after_the_call(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle(0.0005)
    assert len(api.lists) == 1
    api.objects, api.version = [thing("late", 8)], 9
    await informer.reread()
    assert len(api.lists) == 2
    assert informer.get("team", "late") is not None


async def test_it_does_not_overrule_the_back_off(api: FakeApi, start: Started) -> None:
    api.faults = [errors.Unavailable(503, "ServiceUnavailable", "down") for _ in range(1000)]
    informer = start()
    for _ in range(600):
        informer.relist()
        await settle(0.1)
    assert len(api.lists) < 10


async def test_a_reread_of_a_missing_kind_returns(api: FakeApi, start: Started) -> None:
    api.faults = [errors.NotFound(404, "NotFound", "no such kind") for _ in range(10)]
    informer = start()
    await informer.reread()
    assert not informer.served


async def test_a_reread_of_a_missing_kind_does_not_wait_until_it_would_be_asked_for_again(
    api: FakeApi, start: Started
) -> None:
    api.faults = [errors.NotFound(404, "NotFound", "no such kind") for _ in range(10)]
    informer = start(missing_retry_seconds=15.0)
    await informer.synced.wait()
    async with asyncio.timeout(1):
        await informer.reread()


async def gaps_of(api: FakeApi, start: Started, list_seconds: float) -> list[float]:
    """Return how long it is from the end of one list to the next, where each takes so long."""
    asked, answer = list[float](), api.request

    async def slow(*of_it: Any, **how: Any) -> bytes:
        asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(list_seconds)
        return await answer(*of_it, **how)

    api.request = slow  # type: ignore[method-assign]
    start(audit_seconds=300)
    await settle(30_000)
    return [after - before - list_seconds for before, after in itertools.pairwise(asked)]


@pytest.mark.parametrize(("list_seconds", "usual"), [(0.1, 300), (10, 1000), (50, 3000)])
async def test_an_audit_comes_about_its_interval_after_the_last_list_or_a_hundred_times_what_that_took_but_ten_at_most(
    api: FakeApi, start: Started, list_seconds: float, usual: float
) -> None:
    gaps = await gaps_of(api, start, list_seconds)
    assert len(gaps) >= 8
    assert all(0.79 * usual <= gap <= 1.21 * usual for gap in gaps)
    # So those who began together do not go on together.
    assert max(gaps) - min(gaps) > 0.1 * usual


async def test_an_audit_begins_anew_to_wait_after_any_list(api: FakeApi, start: Started) -> None:
    informer = start(audit_seconds=300)
    await settle(150)
    await informer.reread()
    await settle(230)
    assert len(api.lists) == 2
    await settle(140)
    assert len(api.lists) == 3


async def test_a_list_that_is_just_ending_does_not_count_as_a_reread(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 3)], 4
    informer = start()
    rereads: list[asyncio.Task[None]] = []
    informer.subscribe(lambda old, new: rereads.append(asyncio.create_task(informer.reread())))
    await informer.synced.wait()
    (reread,) = rereads
    await reread
    assert len(api.lists) == 2


async def test_a_watch_that_a_wish_may_cut_short_is_no_task_of_its_own(api: FakeApi, start: Started) -> None:
    """There are fifty in a process, and each begins again every few minutes."""
    before = len(asyncio.all_tasks())
    start()
    await settle()
    assert len(api.watches) == 1
    assert len(asyncio.all_tasks()) == before + 1


async def test_a_wish_that_comes_while_a_watch_begins_is_heard_once(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    for number in range(10):
        informer.relist()
        await asyncio.sleep(0)
        informer.relist()
        await settle()
        assert len(api.lists) <= 3 + 2 * number
    assert len(api.watches) == len(api.lists)
