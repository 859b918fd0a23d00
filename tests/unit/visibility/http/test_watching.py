"""A watch with a selector that goes on from a version says what left the selection and what came into it since."""

import asyncio
import json
import random
from typing import Any

import pytest

from tests.unit.visibility.documents.test_watch_cache import Clock, document, events, key, told
from tests.unit.visibility.reflector import Reflector
from webhook.core.model.gang import Requirement
from webhook.core.model.policy import LabelSelector
from webhook.visibility.documents import watch_cache as caches
from webhook.visibility.documents.watch_cache import Expired, WatchCache
from webhook.visibility.http.selecting import Selection, selection
from webhook.visibility.http.watching import Watch, WatchRequest

OF_X = Selection("workloads", "team", LabelSelector(match_expressions=(Requirement("team", "In", ("x",)),)))


def of(name: str, team: str) -> dict[str, Any]:
    return document(name, 1, {"team": team})


async def lines(cache: WatchCache, chosen: Selection, version: int) -> list[dict[str, Any]]:
    """All that a watch tells before it has to wait."""
    request = WatchRequest(chosen, version, seconds=1)
    return [json.loads(line) async for line in Watch(cache, request, Clock().now).lines()]


@pytest.mark.virtual_time
async def test_what_left_the_selection_before_the_watch_began_is_deleted() -> None:
    cache = WatchCache(Clock().now)
    for name, team in (("leaves", "x"), ("leaves-and-goes", "x"), ("twice", "x"), ("stays", "x"), ("other", "y")):
        cache.put(key(name), of(name, team))
    version = cache.advance()
    for name in ("leaves", "leaves-and-goes", "twice"):
        cache.put(key(name), of(name, "y"))
    cache.put(key("twice"), of("twice", "z"))
    cache.drop(key("leaves-and-goes"))
    cache.put(key("other"), of("other", "z"))
    found = [told(event) for event in await lines(cache, OF_X, version)]
    assert found == [("DELETED", "leaves"), ("DELETED", "twice"), ("DELETED", "leaves-and-goes")]


@pytest.mark.virtual_time
async def test_what_was_selected_only_between_two_reads_is_not_told() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("passes"), of("passes", "y"))
    version = cache.advance()
    cache.put(key("passes"), of("passes", "x"))
    cache.put(key("passes"), of("passes", "y"))
    cache.put(key("flash"), of("flash", "x"))
    cache.drop(key("flash"))
    assert await lines(cache, OF_X, version) == []


@pytest.mark.virtual_time
async def test_what_comes_into_the_selection_is_added_and_what_stays_in_it_is_modified() -> None:
    cache = WatchCache(Clock().now)
    for name, team in (("comes", "y"), ("stays", "x")):
        cache.put(key(name), of(name, team))
    version = cache.advance()
    cache.put(key("comes"), of("comes", "x"))
    cache.put(key("stays"), document("stays", 2, {"team": "x"}))
    found = [told(event) for event in await lines(cache, OF_X, version)]
    assert found == [("ADDED", "comes"), ("MODIFIED", "stays")]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("spec.queueName", {"spec": {"queueName": "a"}}, {"spec": {"queueName": "b"}}),
        ("status.admission.clusterQueue", {"status": {"admission": {"clusterQueue": "a"}}}, {"status": {}}),
    ],
)
async def test_fields_that_change_select_as_labels_do(field: str, before: Any, after: Any) -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("job"), document("job", 1) | before)
    version = cache.advance()
    cache.put(key("job"), document("job", 1) | after)
    found = await lines(cache, selection("workloads", "team", {"fieldSelector": f"{field}=a"}), version)
    assert [told(event) for event in found] == [("DELETED", "job")]


@pytest.mark.virtual_time
async def test_what_another_replica_noticed_a_little_earlier_is_deleted_too() -> None:
    clock = Clock()
    mine, other = WatchCache(clock.now, 1), WatchCache(clock.now, 2)
    clock.seconds += 60
    other.put(key("goes"), of("goes", "x"))
    other.put(key("leaves"), of("leaves", "x"))
    version = other.advance()
    clock.seconds += 0.5
    mine.put(key("goes"), of("goes", "x"))
    mine.put(key("leaves"), of("leaves", "x"))
    mine.drop(key("goes"))
    mine.put(key("leaves"), of("leaves", "y"))
    found = [told(event) for event in await lines(mine, OF_X, version)]
    assert found == [("DELETED", "goes"), ("DELETED", "leaves")]


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(20))
async def test_who_follows_a_selection_holds_what_is_selected_at_whatever_replica(seed: int) -> None:
    """The reader starts over from the last version that it was told, at times at the other of two replicas.

    Both notice each change within a second.
    """
    chance, clock = random.Random(seed), Clock()
    replicas = [WatchCache(clock.now, number) for number in (1, 2)]
    clock.seconds += 60
    client = Reflector()

    async def write(name: str, team: str) -> None:
        for cache in chance.sample(replicas, 2):
            if team:
                cache.put(key(name), of(name, team))
            else:
                cache.drop(key(name))
            pause = chance.choice((0, 0.2, 1))
            clock.seconds += pause
            await asyncio.sleep(pause)

    for _ in range(150):
        begins = client.version is None
        request = WatchRequest(OF_X, client.version, bookmarks=True, initial_end=begins, seconds=1)
        await client.follow(Watch(chance.choice(replicas), request, clock.now))
        standing = (it.parse() for _, it in replicas[0].documents("workloads", None))
        assert client.held == {it["metadata"]["name"] for it in standing if it["metadata"]["labels"]["team"] == "x"}
        for _ in range(chance.randrange(4)):
            await write(chance.choice("abcde"), chance.choice(("x", "y", "z", "")))


@pytest.mark.virtual_time
async def test_a_watch_that_is_open_says_what_was_deleted_and_made_again() -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), of("a", "x"))
    version = cache.advance()
    cache.drop(key("a"))
    cache.put(key("a"), of("a", "y"))
    assert [told(event) for event in await events(Watch(cache, WatchRequest(OF_X, version), Clock().now), 1)] == [
        ("DELETED", "a")
    ]


def test_how_documents_were_is_forgotten_by_number_and_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WatchCache(Clock().now)
    cache.put(key("a"), of("a", "x"))
    versions = [cache.advance()]
    for team in "yzyz":
        cache.put(key("a"), of("a", team))
        versions.append(cache.advance())
    assert [len(cache.held("workloads", "team", version)) for version in versions] == [1] * 5
    stood = cache.get(key("a"))
    assert stood is not None
    monkeypatch.setattr(caches, "PAST_BYTES_MAX", 2 * len(stood.packed))
    cache.put(key("a"), of("a", "y"))
    for version in versions[:3]:
        with pytest.raises(Expired):
            cache.held("workloads", "team", version)
    assert [len(cache.held("workloads", "team", version)) for version in versions[3:]] == [1, 1]
    monkeypatch.setattr(caches, "PAST_MAX", 1)
    cache.put(key("a"), of("a", "z"))
    with pytest.raises(Expired):
        cache.held("workloads", "team", versions[4])


def long_labels(team: str) -> dict[str, str]:
    """What does not get shorter by being packed."""
    chance = random.Random(team)
    return {"team": team, **{f"{chance.randbytes(20).hex()}": chance.randbytes(30).hex() for _ in range(1_000)}}


@pytest.mark.virtual_time
async def test_documents_however_long_make_no_watch_list_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "PAST_BYTES_MAX", caches.PAST_TEXT_MAX * 10)
    cache = WatchCache(Clock().now)
    for index in range(10):
        cache.put(key(f"long{index}", "long"), document(f"long{index}", 1, long_labels("x")))
        cache.put(key(f"wide{index}", "long"), document(f"wide{index}", 1) | {"spec": {"podSets": ["x" * 10_000]}})
    cache.put(key("a"), of("a", "x"))
    version = cache.advance()
    for index in range(10):
        cache.put(key(f"long{index}", "long"), document(f"long{index}", 1, long_labels("y")))
        cache.drop(key(f"wide{index}", "long"))
    cache.drop(key("a"))
    assert [told(event) for event in await lines(cache, OF_X, version)] == [("DELETED", "a")]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("query", "are_told"),
    [
        ({}, ["long", "wide"]),
        ({"labelSelector": "team=x"}, ["long", "wide"]),
        # What its labels were is not known any more.
        ({"labelSelector": "team=y"}, ["long"]),
        ({"fieldSelector": "spec.queueName=q"}, ["long", "wide"]),
        ({"fieldSelector": "spec.queueName=r"}, []),
        ({"fieldSelector": "metadata.name=wide"}, ["wide"]),
    ],
)
@pytest.mark.parametrize("include", [None, "Object"])
async def test_of_a_long_document_is_remembered_what_it_was_selected_by(
    query: dict[str, str], are_told: list[str], include: str | None
) -> None:
    cache = WatchCache(Clock().now)
    spec, status = {"queueName": "q"}, {"conditions": [], "pods": {"wanted": 1, "present": 1}}
    for name, labels, pod_sets in (("long", long_labels("x"), []), ("wide", {"team": "x"}, ["x" * 10_000])):
        made = document(name, 1, labels) | {"spec": spec | {"podSets": pod_sets}, "status": status}
        made["metadata"]["uid"] = f"uid-{name}"
        cache.put(key(name), made)
    version = cache.advance()
    for name in ("long", "wide"):
        cache.drop(key(name))
    request = WatchRequest(selection("workloads", "team", query), version, include, seconds=1)
    found = [json.loads(line) async for line in Watch(cache, request, Clock().now).lines()]
    documents = [event["object"] if include is None else event["object"]["rows"][0]["object"] for event in found]
    assert [event["type"] for event in found] == ["DELETED"] * len(are_told)
    assert [each["metadata"]["name"] for each in documents] == are_told
    assert [each["metadata"]["uid"] for each in documents] == [f"uid-{name}" for name in are_told]


def test_a_document_is_remembered_in_few_bytes_whatever_is_long_in_it() -> None:
    cache = WatchCache(Clock().now)
    chance = random.Random(0)
    text = chance.randbytes(20_000).hex()
    cache.put(
        key("a"),
        {
            "metadata": {"name": "a", "namespace": "team", "uid": text, "labels": {"a": text}},
            "spec": {"queueName": text},
            "status": {"admission": {"clusterQueue": text}, "conditions": [text]},
        },
    )
    version = cache.advance()
    cache.drop(key("a"))
    [(_, was)] = cache.held("workloads", "team", version)
    assert len(was.packed) < 300
    assert was.parse()["metadata"]["name"] == "a"
