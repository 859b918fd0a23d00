"""Whoever lists and watches, however much and for whatever, leaves the event loop to others in between."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from tests.unit.visibility.http.test_routes import TABLE, Client, app_of
from tests.unit.visibility.world import World
from webhook.visibility.documents.reporter import Reporter
from webhook.visibility.documents.watch_cache import Document, Key, WatchCache
from webhook.visibility.http import app as apps
from webhook.visibility.http import listing, pace
from webhook.visibility.http.group import ROOT
from webhook.visibility.http.pace import Busy, Pace, Seats
from webhook.visibility.http.selecting import Selection
from webhook.visibility.http.watching import Watch, WatchRequest

COUNT = 200
OF_TEAM = f"{ROOT}/namespaces/team/workloads"
EVERYTHING = Selection("workloads", "team")


def document(name: str, value: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team"}
    return {
        "metadata": metadata,
        "spec": {"value": value},
        "status": {"conditions": [], "pods": {"present": 0, "wanted": 1}},
    }


def fill(cache: WatchCache, value: int = 1, count: int = COUNT) -> None:
    for number in range(count):
        cache.put(Key("workloads", "team", f"job-{number:03}"), document(f"job-{number:03}", value))


class Turns:
    """Counts the turns of the event loop, and the documents that are read in each."""

    def __init__(self) -> None:
        self.now = 0
        self.read: Counter[int] = Counter()

    async def run(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)


@pytest.fixture
async def turns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Turns]:
    made, parse, render = Turns(), Document.parse, Document.render

    def noted_parse(self: Document) -> dict[str, Any]:
        made.read[made.now] += 1
        return parse(self)

    def noted_render(self: Document) -> bytes:
        made.read[made.now] += 1
        return render(self)

    monkeypatch.setattr(Document, "parse", noted_parse)
    monkeypatch.setattr(Document, "render", noted_render)
    monkeypatch.setattr(pace, "STRETCH", 10 * pace.DOCUMENT_WORK)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    async def as_it_is(*_: object) -> None:
        return

    monkeypatch.setattr(Reporter, "fresh", as_it_is)
    made = World()
    fill(made.cache)
    return made


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app_of(world))) as made:
        yield made


NONE = {"labelSelector": "none=x"}
WATCH = {"watch": "1", "timeoutSeconds": "1"}


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ({}, ""),
        ({}, TABLE),
        ({"includeObject": "Object"}, TABLE),
        (NONE, ""),
        ({"fieldSelector": "spec.queueName=nobody"}, ""),
        (WATCH, ""),
        (WATCH | NONE, ""),
        (WATCH | NONE | {"resourceVersion": "now"}, ""),
    ],
)
async def test_all_reads_together_look_at_a_few_documents_in_a_turn(
    client: Client, world: World, turns: Turns, query: dict[str, str], accept: str
) -> None:
    query = query | ({"resourceVersion": str(world.cache.version)} if "resourceVersion" in query else {})

    async def ask() -> None:
        async with client.get(OF_TEAM, params=query, headers={"Accept": accept}) as answer:
            assert answer.status == 200
            await answer.read()

    await asyncio.gather(*(ask() for _ in range(5)))
    assert turns.read.total() >= 5 * COUNT
    # Each is parsed to be compared, and rendered to be shown.
    assert max(turns.read.values()) <= 2 * 10


async def test_watches_that_are_told_of_many_changes_at_once_look_at_a_few_in_a_turn(turns: Turns) -> None:
    cache, shared = WatchCache(lambda: 1_000.0), Pace()
    cache.put(Key("workloads", "team", "first"), document("first", 1))

    async def follow() -> None:
        found = Watch(cache, WatchRequest(EVERYTHING, cache.version), lambda: 1_000.0, shared).lines()
        for _ in range(COUNT):
            await anext(found)

    following = [asyncio.create_task(follow()) for _ in range(5)]
    await asyncio.sleep(0.05)
    fill(cache)
    await asyncio.gather(*following)
    assert turns.read.total() == 5 * COUNT
    assert max(turns.read.values()) <= 10


@pytest.mark.parametrize("terms", [0, 64, 2000])
async def test_the_more_a_document_is_compared_with_and_the_longer_it_is_the_fewer_are_looked_at(terms: int) -> None:
    cache = WatchCache(lambda: 1_000.0)
    fill(cache)
    one = next(it for _, it in cache.documents("workloads", "team"))
    assert one.size > len(one.packed)
    most = -(-pace.STRETCH // (pace.DOCUMENT_WORK + one.size + pace.TERM_WORK * terms))
    found = [it async for it in Pace().stretches(cache.documents("workloads", "team"), terms)]
    assert [len(it) for it in found[:-1]] == [most] * (len(found) - 1)
    assert [pair for it in found for pair in it] == cache.documents("workloads", "team")


@pytest.mark.virtual_time
async def test_reads_rest_for_as_long_as_they_work_however_many_they_are() -> None:
    cache, shared = WatchCache(lambda: 1_000.0), Pace()
    fill(cache, count=1_000)
    loop, found = asyncio.get_running_loop(), cache.documents("workloads", "team")

    async def read() -> None:
        async for _ in shared.stretches(found, 0):
            pass

    began = loop.time()
    await asyncio.gather(*(read() for _ in range(5)))
    work = 5 * sum(pace.DOCUMENT_WORK + it.size for _, it in found)
    assert work * pace.WORK_SECONDS - pace.LEAST_REST_SECONDS * 2 < loop.time() - began < work * pace.WORK_SECONDS


@pytest.mark.virtual_time
async def test_small_reads_do_not_wait_for_each_others_rest() -> None:
    cache, shared = WatchCache(lambda: 1_000.0), Pace()
    fill(cache, count=1)
    began = asyncio.get_running_loop().time()
    for _ in range(50):
        assert [it async for it in shared.stretches(cache.documents("workloads", "team"), 0)]
    assert asyncio.get_running_loop().time() == began


async def listed(pieces: AsyncIterator[bytes]) -> Any:
    return json.loads(b"".join([piece async for piece in pieces]))


@pytest.mark.parametrize("include", [None, "Object"])
async def test_a_list_shows_what_stood_at_its_version_whatever_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, include: str | None
) -> None:
    monkeypatch.setattr(pace, "STRETCH", 1)
    monkeypatch.setattr(listing, "PIECE_BYTES", 1)
    cache = WatchCache(lambda: 1_000.0)
    fill(cache, count=20)
    before = cache.version
    pieces = listing.pieces(cache, Pace(), EVERYTHING, lambda: 1_000.0, include)
    head = await anext(pieces)
    for number in range(0, 20, 2):
        cache.put(Key("workloads", "team", f"job-{number:03}"), document(f"job-{number:03}", 2))
        cache.drop(Key("workloads", "team", f"job-{number + 1:03}"))
        cache.put(Key("workloads", "team", f"new-{number}"), document(f"new-{number}", 1))
    answer = json.loads(head + b"".join([piece async for piece in pieces]))
    items = answer["items"] if include is None else [each["object"] for each in answer["rows"]]
    assert [(it["metadata"]["name"], it["spec"]["value"]) for it in items] == [(f"job-{n:03}", 1) for n in range(20)]
    version = int(answer["metadata"]["resourceVersion"])
    assert version > before
    told = {key.name for key, _ in cache.changes("workloads", version)}
    assert told == {f"job-{n:03}" for n in range(20)} | {f"new-{n}" for n in range(0, 20, 2)}


async def test_a_list_that_waits_for_its_turn_shows_nothing_newer_than_its_version() -> None:
    cache = WatchCache(lambda: 1_000.0)
    fill(cache, count=1)
    asking = asyncio.create_task(listed(listing.pieces(cache, Pace(), EVERYTHING, lambda: 1_000.0, None)))
    await asyncio.sleep(0)
    fill(cache, 2, count=1)
    answer = await asking
    (item,) = answer["items"]
    assert item["spec"]["value"] == 2
    assert int(item["metadata"]["resourceVersion"]) <= int(answer["metadata"]["resourceVersion"])


@pytest.mark.parametrize("version_known", [False, True])
async def test_a_watch_that_begins_slowly_tells_what_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, version_known: bool
) -> None:
    monkeypatch.setattr(pace, "STRETCH", 1)
    cache = WatchCache(lambda: 1_000.0)
    fill(cache, count=20)
    request = WatchRequest(EVERYTHING, cache.version if version_known else None)
    lines = Watch(cache, request, lambda: 1_000.0).lines()
    beginning = asyncio.create_task(anext(lines, b""))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    fill(cache, 2, count=20)
    held: dict[str, int] = {}
    line = await beginning
    while sum(held.values()) < 40:
        shown = json.loads(line)["object"]
        held[shown["metadata"]["name"]] = shown["spec"]["value"]
        line = await anext(lines) if sum(held.values()) < 40 else b""
    assert set(held.values()) == {2}


@pytest.mark.virtual_time
async def test_what_changes_while_a_watch_sends_is_told_at_once() -> None:
    cache = WatchCache(lambda: 1_000.0)
    lines = Watch(cache, WatchRequest(EVERYTHING, cache.version), lambda: 1_000.0).lines()
    first = asyncio.create_task(anext(lines))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    fill(cache, count=1)
    await first
    fill(cache, 2, count=1)
    began = asyncio.get_running_loop().time()
    assert json.loads(await anext(lines))["object"]["spec"]["value"] == 2
    assert asyncio.get_running_loop().time() == began


async def test_a_list_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STRETCH", 1)
    monkeypatch.setattr(listing, "PIECE_BYTES", 1_000)
    cache = WatchCache(lambda: 1_000.0)
    fill(cache)
    found = [it async for it in listing.pieces(cache, Pace(), EVERYTHING, lambda: 1_000.0, None)]
    assert len(json.loads(b"".join(found))["items"]) == COUNT
    assert max(len(it) for it in found) < 1_500


async def test_an_empty_list_and_an_empty_table_can_be_read() -> None:
    cache = WatchCache(lambda: 1_000.0)
    for include, items in ((None, "items"), ("Object", "rows")):
        answer = await listed(listing.pieces(cache, Pace(), EVERYTHING, lambda: 1_000.0, include))
        assert answer[items] == []


# -- how many at once ------------------------------------------------------------------------------------------------


class Gate:
    """Where reads of namespace ``team`` wait before they are answered."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0

    async def passed(self) -> None:
        self.waiting += 1
        try:
            await self.opened.wait()
        finally:
            self.waiting -= 1

    async def holds(self, reads: int) -> None:
        while self.waiting != reads:
            await asyncio.sleep(0.001)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, world: World) -> Gate:
    made = Gate()

    async def at_the_gate(_: Reporter, __: str, namespace: str | None = None) -> None:
        if namespace == "team":
            await made.passed()

    monkeypatch.setattr(Reporter, "fresh", at_the_gate)
    monkeypatch.setattr(apps, "LISTS_MAX", (2, 3))
    monkeypatch.setattr(apps, "WATCHES_MAX", (2, 3))
    return made


@pytest.mark.parametrize("query", [{}, WATCH])
async def test_one_namespace_is_read_by_so_many_at_once_and_others_still_are(
    gate: Gate, client: Client, query: dict[str, str]
) -> None:
    async def ask() -> tuple[int, str | None, Any]:
        async with client.get(OF_TEAM, params=query) as answer:
            text = await answer.text()
            return answer.status, answer.headers.get("Retry-After"), text

    held = [asyncio.create_task(ask()) for _ in range(2)]
    await gate.holds(2)
    code, retry, text = await ask()
    status = json.loads(text)
    assert (code, retry, status["reason"], status["details"]["retryAfterSeconds"]) == (429, "1", "TooManyRequests", 1)
    assert status["message"].endswith("s of namespace team under way: 2, the most at once; try again later")
    async with client.get(f"{ROOT}/namespaces/other/workloads", params=query) as answer:
        assert answer.status == 200
        await answer.read()
    gate.opened.set()
    assert [code for code, _, _ in await asyncio.gather(*held)] == [200, 200]
    code, _, _ = await ask()
    assert code == 200


async def test_who_goes_away_leaves_a_seat(gate: Gate, world: World) -> None:
    async with TestServer(app_of(world), handler_cancellation=True) as server:
        url = server.make_url(OF_TEAM)
        async with ClientSession() as session:
            held = [asyncio.create_task(session.get(url)) for _ in range(2)]
            await gate.holds(2)
            for each in held:
                each.cancel()
            await gate.holds(0)
        await asyncio.gather(*held, return_exceptions=True)
        gate.opened.set()
        async with ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200


def test_so_many_are_let_in_in_all() -> None:
    seats = Seats("lists", 2, 3)
    with seats.taken("a"), seats.taken("b"):
        with seats.taken(None), pytest.raises(Busy, match="lists under way: 3"), seats.taken("c"):
            pass
        with seats.taken("c"), pytest.raises(Busy), seats.taken("d"):
            pass
    with (
        seats.taken("a"),
        seats.taken("a"),
        pytest.raises(Busy, match="lists of namespace a under way: 2"),
        seats.taken("a"),
    ):
        pass
    with (
        seats.taken(None),
        seats.taken(None),
        pytest.raises(Busy, match="of all namespaces under way: 2"),
        seats.taken(None),
    ):
        pass


# -- what is asked for -----------------------------------------------------------------------------------------------


async def test_a_watch_from_the_future_lists_again(client: Client, world: World) -> None:
    version = world.cache.version + (1 << 10)
    async with client.get(OF_TEAM, params=WATCH | {"resourceVersion": str(version)}) as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (410, "Expired")


async def test_a_head_request_starts_no_list_and_no_watch(client: Client) -> None:
    for query in ({}, WATCH):
        async with client.head(OF_TEAM, params=query) as answer:
            assert answer.status == 405


async def test_a_list_may_be_the_last_answer_of_its_connection(world: World) -> None:
    app = apps.build_app(
        world.cache, world.reporter, now=lambda: 0, refusal=lambda request: None, close_after=lambda request: True
    )
    async with TestClient(TestServer(app)) as made, made.get(OF_TEAM) as answer:
        assert answer.headers["Connection"] == "close"
        assert len((await answer.json())["items"]) == COUNT
