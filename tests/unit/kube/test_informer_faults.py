"""One bad object, one failing listener or one garbled answer never ends an informer."""

import asyncio
from itertools import pairwise

import orjson
import pytest
from structlog.testing import capture_logs

from tests.unit.kube.conftest import Started, settle
from tests.unit.kube.fake_api import FakeApi, Thing, thing
from webhook import errors
from webhook.kube.informer import NAMED_MAX

pytestmark = pytest.mark.virtual_time


async def test_an_unreadable_object_is_counted_and_the_others_read(api: FakeApi, start: Started) -> None:
    api.objects, api.version = [thing("a", 2), thing("bad", 3, value="unreadable"), thing("c", 4)], 5
    informer = start()
    await informer.synced.wait()
    assert {name for _, name in informer.records} == {"a", "c"}
    assert informer.counts.unreadable == 1


async def test_an_object_that_becomes_unreadable_keeps_its_last_record(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    api.now.say("ADDED", thing("a", 3))
    api.now.say("MODIFIED", thing("a", 4, value="unreadable"))
    await settle()
    record = informer.get("team", "a")
    assert record is not None
    assert record.resource_version == 3
    api.objects, api.version = [thing("a", 4, value="unreadable")], 9
    await informer.reread()
    assert informer.get("team", "a") is record
    assert informer.counts.unreadable == 2


@pytest.mark.parametrize("levels", [200, 900, 1_100, 10_000])
async def test_an_object_nested_deeper_than_python_recurses_hides_no_other(
    api: FakeApi, start: Started, levels: int
) -> None:
    deep = {**thing("deep", 3), "spec": "DEEP"}
    api.deep = b'{"x":' * levels + b"1" + b"}" * levels
    api.objects, api.version = [thing("a", 2), deep, thing("c", 4)], 5
    informer = start()
    await settle()
    assert {name for _, name in informer.records} == {"a", "deep", "c"}
    api.now.lines.put_nowait(
        orjson.dumps({"type": "ADDED", "object": {**thing("e", 6), "spec": "DEEP"}}).replace(b'"DEEP"', api.deep)
    )
    api.now.say("ADDED", thing("f", 7))
    await settle()
    assert {name for _, name in informer.records} == {"a", "deep", "c", "e", "f"}
    assert (len(api.lists), informer.counts.unreadable) == (1, 0)


async def test_something_stands_in_for_an_object_that_was_never_readable(api: FakeApi, start: Started) -> None:
    def stand_in(raw: bytes, error: Exception) -> Thing:
        return Thing("team", orjson.loads(raw)["metadata"]["name"], "uid-bad", 3, str(error))

    api.objects, api.version = [thing("bad", 3, value="unreadable"), thing("c", 4)], 5
    informer = start(stand_in=stand_in)
    await settle()
    stood_in = informer.get("team", "bad")
    assert stood_in is not None
    assert stood_in.value == "cannot be read"
    assert list(informer.unreadable) == [("team", "bad")]
    api.now.say("MODIFIED", thing("bad", 6))
    await settle()
    readable = informer.get("team", "bad")
    assert readable is not None
    assert (readable.value, informer.unreadable) == ("", {})


async def test_a_failing_listener_does_not_keep_others_from_hearing(api: FakeApi, start: Started) -> None:
    def fail(old: Thing | None, new: Thing | None) -> None:
        raise RuntimeError("listener")

    heard: list[Thing | None] = []
    informer = start()
    informer.subscribe(fail)
    informer.subscribe(lambda old, new: heard.append(new))
    await settle()
    api.now.say("ADDED", thing("a", 3))
    api.now.say("DELETED", thing("a", 4))
    await settle()
    assert [thing and thing.name for thing in heard] == ["a", None]
    assert informer.counts.listener_failures == 2


@pytest.mark.parametrize("line", [b"garbage", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{}}', b"\xff\xfe"])
async def test_a_garbled_watch_line_reads_everything_again(api: FakeApi, start: Started, line: bytes) -> None:
    informer = start()
    await settle()
    api.objects, api.version = [thing("a", 8)], 9
    api.now.lines.put_nowait(line)
    await settle(2)
    assert informer.get("team", "a") is not None
    assert len(api.lists) == 2


async def test_failures_before_the_first_list_only_delay_it(api: FakeApi, start: Started) -> None:
    api.faults = [errors.Unavailable(0, "Timeout", "no answer") for _ in range(5)]
    api.objects = [thing("a", 1)]
    informer = start()
    await informer.synced.wait()
    assert informer.counts.failures == 5
    assert informer.get("team", "a") is not None


async def test_other_tasks_run_while_a_large_batch_is_taken_in(api: FakeApi, start: Started) -> None:
    informer = start()
    await settle()
    turns: list[int] = []

    async def neighbour() -> None:
        while len(informer.records) < 5000:
            turns.append(len(informer.records))
            await asyncio.sleep(0)

    for number in range(5000):
        api.now.say("ADDED", thing(f"o{number}", 10 + number))
    await neighbour()
    steps = [later - earlier for earlier, later in pairwise(turns)]
    assert max(steps) <= 200


async def test_a_log_says_of_each_unreadable_object_once_what_is_wrong_and_of_so_many_at_most(
    api: FakeApi, start: Started
) -> None:
    """Whoever may write one may do so all the time."""
    api.objects, api.version = [thing("a", 2)], 2
    with capture_logs() as logged:
        informer = start()
        await settle()
        for version in range(3, 3 + 5 * NAMED_MAX):
            api.now.say("MODIFIED", thing(f"bad-{version % (2 * NAMED_MAX)}", version, value="unreadable"))
        await settle()
    assert informer.counts.unreadable == 5 * NAMED_MAX
    assert sum(line["event"] == "informer.unreadable" for line in logged) == NAMED_MAX
