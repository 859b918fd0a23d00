"""The watch cache numbers every change, forgets deletions in time, and never lets a watch miss anything."""

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.gang import Requirement
from webhook.core.model.policy import LabelSelector
from webhook.visibility.documents import watch_cache as caches
from webhook.visibility.documents.watch_cache import REPLICA_BITS, WORDS_BYTES_MAX, Expired, Key, WatchCache
from webhook.visibility.http.selecting import Selection
from webhook.visibility.http.watching import Watch, WatchRequest

EVERYTHING = Selection("workloads", None)


def key(name: str, namespace: str = "team") -> Key:
    return Key("workloads", namespace, name)


def document(name: str, value: int, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team", "labels": labels or {}}, "spec": {"value": value}}


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        return self.seconds


async def events(watch: Watch, number: int) -> list[dict[str, Any]]:
    """Take the next lines of a watch; fails when there are fewer within a virtual minute."""
    found: list[dict[str, Any]] = []
    lines = watch.lines()
    async with asyncio.timeout(60):
        while len(found) < number:
            found.append(json.loads(await anext(lines)))
    await lines.aclose()  # type: ignore[attr-defined]
    return found


def told(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def test_versions_grow_with_time_and_with_every_change() -> None:
    clock = Clock()
    cache = WatchCache(clock.now)
    cache.put(key("a"), document("a", 1))
    first = cache.version
    cache.put(key("a"), document("a", 2))
    assert cache.version > first
    clock.seconds += 10
    cache.put(key("a"), document("a", 3))
    assert cache.version >> REPLICA_BITS == int(clock.seconds * 1000)
    clock.seconds -= 3600
    before = cache.version
    cache.put(key("a"), document("a", 4))
    assert cache.version > before


def test_the_same_document_is_no_change() -> None:
    cache = WatchCache(Clock().now)
    assert cache.put(key("a"), document("a", 1))
    before = cache.version
    assert not cache.put(key("a"), document("a", 1))
    assert cache.version == before


def test_a_document_carries_the_version_of_its_last_change() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), document("a", 1))
    stored = cache.get(key("a"))
    assert stored is not None
    parsed = stored.parse()
    assert parsed["metadata"]["resourceVersion"] == str(cache.version)
    assert (parsed["apiVersion"], parsed["kind"]) == ("visibility.tutti.dev/v1alpha1", "Workload")
    assert parsed["spec"] == {"value": 1}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=60), st.integers(0, 60))
def test_who_lists_and_then_follows_holds_what_stands(changes: list[tuple[str, int]], listed_after: int) -> None:
    """Value 0 deletes. A client that lists at any moment and applies the changes since ends up with everything."""
    clock = Clock()
    cache = WatchCache(clock.now)
    held: dict[str, int] = {}
    version = cache.version
    for index, (name, value) in enumerate(changes):
        if index == listed_after:
            held = {k.name: d.parse()["spec"]["value"] for k, d in cache.documents("workloads", None)}
            version = cache.version
        clock.seconds += 0.001 * (value % 2)
        if value:
            cache.put(key(name), document(name, value))
        else:
            cache.drop(key(name))
    if listed_after >= len(changes):
        held = {k.name: d.parse()["spec"]["value"] for k, d in cache.documents("workloads", None)}
        version = cache.version
    for changed, stored in cache.changes("workloads", version):
        if stored.deleted:
            held.pop(changed.name, None)
        else:
            held[changed.name] = stored.parse()["spec"]["value"]
    assert held == {k.name: d.parse()["spec"]["value"] for k, d in cache.documents("workloads", None)}


def test_deletions_are_forgotten_oldest_first_and_then_a_watch_from_before_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caches, "PAST_MAX", 3)
    cache = WatchCache(Clock().now)
    versions = []
    for index in range(6):
        cache.put(key(f"j{index}"), document(f"j{index}", 1))
        versions.append(cache.version)
        cache.drop(key(f"j{index}"))
    with pytest.raises(Expired):
        cache.changes("workloads", versions[1])
    assert [k.name for k, _ in cache.changes("workloads", versions[3])] == ["j3", "j4", "j5"]


def test_a_version_from_before_this_process_expires() -> None:
    clock = Clock()
    cache = WatchCache(clock.now)
    with pytest.raises(Expired):
        cache.position((int(clock.seconds - 60) * 1000) << REPLICA_BITS)


def test_a_version_of_another_replica_is_told_the_last_seconds_again() -> None:
    clock = Clock()
    mine, other = WatchCache(clock.now, 1), WatchCache(clock.now, 2)
    clock.seconds += 60
    other.put(key("a"), document("a", 1))
    clock.seconds += 1
    mine.put(key("a"), document("a", 1))
    clock.seconds += 1
    listed = other.version
    assert mine.position(mine.version) == mine.version
    assert [k.name for k, _ in mine.changes("workloads", mine.position(listed))] == ["a"]
    clock.seconds += 3600
    other.put(key("b"), document("b", 1))
    assert mine.position(other.version) <= mine.version


def test_a_version_that_this_replica_has_not_given_out_yet_expires() -> None:
    clock = Clock()
    cache = WatchCache(clock.now)
    clock.seconds += 60
    cache.advance()
    with pytest.raises(Expired, match="in the future"):
        cache.position(cache.version + (1 << REPLICA_BITS))
    assert cache.position(cache.version + 1) <= cache.version, "another replica's clock may be ahead"


def test_what_another_replica_lists_can_be_watched_from_though_nothing_changed_since_it_started() -> None:
    clock = Clock()
    first = WatchCache(clock.now, 1)
    clock.seconds += 60
    second = WatchCache(clock.now, 2)
    clock.seconds += 60
    assert second.position(first.advance()) <= second.version


@pytest.mark.virtual_time
async def test_a_watch_without_version_begins_with_what_stands() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), document("a", 1))
    watch = Watch(cache, WatchRequest(EVERYTHING, None, initial_end=True), Clock().now)
    found = await events(watch, 2)
    assert told(found[0]) == ("ADDED", "a")
    assert found[1]["type"] == "BOOKMARK"
    assert found[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert found[1]["object"]["metadata"]["resourceVersion"] == str(cache.version)


@pytest.mark.virtual_time
async def test_a_watch_from_a_version_tells_what_changed_since_and_goes_on() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), document("a", 1))
    cache.put(key("gone"), document("gone", 1))
    version = cache.version
    cache.put(key("a"), document("a", 2))
    cache.drop(key("gone"))
    cache.put(key("flash"), document("flash", 1))
    cache.drop(key("flash"))

    async def later() -> None:
        await asyncio.sleep(5)
        cache.put(key("b"), document("b", 1))

    task = asyncio.create_task(later())
    found = await events(Watch(cache, WatchRequest(EVERYTHING, version), Clock().now), 3)
    await task
    assert [told(event) for event in found] == [("MODIFIED", "a"), ("DELETED", "gone"), ("ADDED", "b")]


@pytest.mark.virtual_time
async def test_an_object_that_stops_being_selected_is_deleted_for_that_watch() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), document("a", 1, {"team": "x"}))
    chosen = Selection("workloads", "team", LabelSelector(match_expressions=(Requirement("team", "In", ("x",)),)))
    watch = Watch(cache, WatchRequest(chosen, cache.version), Clock().now)

    async def changes() -> None:
        for labels in ({"team": "y"}, {"team": "z"}, {"team": "x"}):
            await asyncio.sleep(1)
            cache.put(key("a"), document("a", 1, labels))

    task = asyncio.create_task(changes())
    found = await events(watch, 2)
    await task
    assert [event["type"] for event in found] == ["DELETED", "ADDED"]


@pytest.mark.virtual_time
async def test_bookmarks_come_when_asked_for_and_a_watch_ends_in_time() -> None:
    cache = WatchCache(Clock().now)
    quiet = [
        line async for line in Watch(cache, WatchRequest(EVERYTHING, cache.version, seconds=100), Clock().now).lines()
    ]
    assert quiet == []
    request = WatchRequest(EVERYTHING, cache.version, bookmarks=True, seconds=100)
    marks = [json.loads(line) async for line in Watch(cache, request, Clock().now).lines()]
    assert [mark["type"] for mark in marks] == ["BOOKMARK"] * 3
    versions = [int(mark["object"]["metadata"]["resourceVersion"]) for mark in marks]
    assert versions == sorted(set(versions)), "each says a later version, though nothing changed"


@pytest.mark.virtual_time
@pytest.mark.parametrize("bookmarks", [False, True])
async def test_a_watch_that_is_told_nothing_does_not_look(monkeypatch: pytest.MonkeyPatch, bookmarks: bool) -> None:
    cache, looks = WatchCache(Clock().now), list[float]()
    changes = cache.changes

    def noted(resource: str, after: int) -> list[tuple[Key, caches.Document]]:
        looks.append(asyncio.get_running_loop().time())
        return changes(resource, after)

    monkeypatch.setattr(cache, "changes", noted)
    request = WatchRequest(EVERYTHING, cache.version, bookmarks=bookmarks, seconds=100)
    assert len([line async for line in Watch(cache, request, Clock().now).lines()]) == (3 if bookmarks else 0)
    assert len(looks) == (4 if bookmarks else 1)


@pytest.mark.virtual_time
async def test_a_watch_of_tables_tells_its_columns_once() -> None:
    cache = WatchCache(Clock().now)
    for name in ("a", "b"):
        full = document(name, 1) | {"status": {"conditions": [], "pods": {"present": 0, "wanted": 1}}}
        cache.put(key(name), full)
    found = await events(Watch(cache, WatchRequest(EVERYTHING, None, include="Object"), Clock().now), 2)
    assert [event["object"]["kind"] for event in found] == ["Table", "Table"]
    assert ["columnDefinitions" in event["object"] for event in found] == [True, False]
    assert [event["object"]["rows"][0]["cells"][0] for event in found] == ["a", "b"]


@pytest.mark.virtual_time
async def test_watches_end_when_the_replica_stops() -> None:
    cache = WatchCache(Clock().now)
    watch = Watch(cache, WatchRequest(EVERYTHING, cache.version), Clock().now)
    following = asyncio.create_task(anext(watch.lines(), None))  # type: ignore[call-overload]
    await asyncio.sleep(1)
    cache.end()
    assert await following is None


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(20))
async def test_a_slow_reader_misses_nothing_however_changes_and_lines_fall_together(seed: int) -> None:
    """The reader applies what it is told and, at times, starts over from the last version that it was told.

    As clients do, it takes no version from a list that is not complete.
    """
    chance, clock = random.Random(seed), Clock()
    cache = WatchCache(clock.now)
    held: dict[str, int] = {}
    version: int | None = None

    async def write() -> None:
        for _ in range(300):
            name, value = chance.choice("abcde"), chance.randrange(4)
            clock.seconds += chance.choice((0, 0.001, 1))
            if value:
                cache.put(key(name), document(name, value))
            else:
                cache.drop(key(name))
            await asyncio.sleep(chance.choice((0, 0.1, 7)))

    async def read() -> None:
        nonlocal version
        while True:
            request = WatchRequest(EVERYTHING, version, bookmarks=True, initial_end=version is None, seconds=40)
            async for line in Watch(cache, request, clock.now).lines():
                await asyncio.sleep(chance.choice((0, 0.05, 3)))
                event = json.loads(line)
                metadata = event["object"]["metadata"]
                if version is not None or event["type"] == "BOOKMARK":
                    version = int(metadata["resourceVersion"])
                if event["type"] == "DELETED":
                    held.pop(metadata["name"], None)
                elif event["type"] != "BOOKMARK":
                    held[metadata["name"]] = event["object"]["spec"]["value"]
                if version is not None and chance.random() < 0.02:
                    break

    reading = asyncio.create_task(read())
    await write()
    await asyncio.sleep(500)
    reading.cancel()
    assert held == {k.name: d.parse()["spec"]["value"] for k, d in cache.documents("workloads", None)}


@pytest.mark.virtual_time
async def test_what_changes_while_a_bookmark_is_on_its_way_comes_after_it() -> None:
    cache = WatchCache(Clock().now)
    watch = Watch(cache, WatchRequest(EVERYTHING, cache.version, bookmarks=True), Clock().now)
    lines = watch.lines()
    # A change is noticed only at the time of the bookmark, so that both are sent together.
    cache.moved = asyncio.sleep  # type: ignore[method-assign]
    first = asyncio.create_task(anext(lines))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    cache.put(key("a"), document("a", 1))
    found = [json.loads(await first)]
    cache.put(key("b"), document("b", 1))
    found += [json.loads(await anext(lines)) for _ in range(2)]
    assert [event["type"] for event in found] == ["ADDED", "BOOKMARK", "ADDED"]


def test_documents_are_packed_by_one_that_was_written_not_by_one_that_is_remembered() -> None:
    packed = []
    for remembered in ([], ["brief"]):
        cache = WatchCache(lambda: 1_000.0)
        for name in remembered:
            was = cache.remember(key(name), document(name, 0))
            assert was.parse()["metadata"]["name"] == name
        for name in ("a", "b"):
            cache.put(key(name), document(name, 1, {"some-label": "some-value"}))
        standing = cache.get(key("b"))
        assert standing is not None
        packed.append(standing.packed)
    assert packed[0] == packed[1]


def test_a_first_document_however_long_is_not_read_again_with_every_other() -> None:
    cache = WatchCache(lambda: 1_000.0)
    for name, labels in (("long", {f"label-{number}": "x" for number in range(5_000)}), ("short", {})):
        cache.put(Key("workloads", "team-a", name), {"metadata": {"name": name, "labels": labels}})
    for name, count in (("long", 5_000), ("short", 0)):
        found = cache.get(Key("workloads", "team-a", name))
        assert found is not None
        assert len(found.words) <= WORDS_BYTES_MAX
        assert len(found.parse()["metadata"]["labels"]) == count
