"""Whatever a server does to its watches, an informer ends up knowing what the server has, and told nothing twice.

The server here keeps a real history: every write gets the next version, watches replay it, old parts are compacted.
Hypothesis writes the story: objects come, change, go and come back under their name, while connections break, events
arrive twice, pages expire and requests fail.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import async_solipsism
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kube.fake_api import Thing, decode_thing, thing
from webhook import errors
from webhook.kube.api import JSON, REQUEST_TIMEOUT_SECONDS
from webhook.kube.informer import Informer

NAMES = ["a", "b", "c", "d"]
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["break", "compact", "repeat", "fail", "relist"]), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.2, 3.0, 200.0])),
)


class HistoryApi:
    """One collection with its history."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, bytes]] = []
        self.compacted = 0
        self.failures = 0
        self.moved = asyncio.Event()
        self.epoch = 0
        """Raised to break all connections."""

    def write(self, name: str) -> None:
        known = self.objects.get(name)
        self.version += 1
        uid = known["metadata"]["uid"] if known else f"uid-{name}-{self.version}"
        self.objects[name] = thing(name, self.version, uid=uid)
        self._happened("MODIFIED" if known else "ADDED", self.objects[name])

    def delete(self, name: str) -> None:
        if name in self.objects:
            gone = self.objects.pop(name)
            self.version += 1
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._happened("DELETED", gone)

    def _happened(self, event_type: str, document: dict[str, Any]) -> None:
        self.history.append((self.version, json.dumps({"type": event_type, "object": document}).encode()))
        self.wake()

    def wake(self) -> None:
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bytes:
        await self._arrive()
        query = query or {}
        # A page token names the snapshot it belongs to; compaction makes it expire.
        snapshot, _, start = (query.get("continue") or f"{self.version}:0").partition(":")
        if query.get("continue") and (int(snapshot) <= self.compacted or int(snapshot) != self.version):
            raise errors.Gone(410, "Expired", "the page token is too old")
        first, limit = int(start), int(query.get("limit") or 1000)
        items = [self.objects[name] for name in sorted(self.objects)]
        token = f"{snapshot}:{first + limit}" if first + limit < len(items) else ""
        metadata = {"resourceVersion": snapshot, "continue": token}
        return json.dumps({"metadata": metadata, "items": items[first : first + limit]}).encode()

    async def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncGenerator[bytes, None]:
        await self._arrive()
        position, epoch = int(query["resourceVersion"]), self.epoch
        if position < self.compacted:
            raise errors.Gone(410, "Expired", "too old")
        while epoch == self.epoch:
            for version, line in [entry for entry in self.history if entry[0] > position]:
                position = version
                yield line
            moved = self.moved
            try:
                async with asyncio.timeout(idle_seconds):
                    await moved.wait()
            except TimeoutError:
                return
            if position < self.compacted:
                yield json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}).encode()
                return

    async def _arrive(self) -> None:
        await asyncio.sleep(0.01)
        if self.failures:
            self.failures -= 1
            raise errors.Unavailable(503, "ServiceUnavailable", "down")

    async def close(self) -> None:
        """Nothing to release."""


class Follower:
    """Keeps a copy from what it is told alone."""

    def __init__(self) -> None:
        self.copy: dict[str, Thing] = {}

    def note(self, old: Thing | None, new: Thing | None) -> None:
        name = (new or old).name  # type: ignore[union-attr]
        assert self.copy.get(name) == old, "a change was told that does not follow from the last one"
        assert new is None or old is None or new.uid == old.uid
        if new is None:
            del self.copy[name]
        else:
            self.copy[name] = new


async def live_through(story: list[tuple[str, Any]], seed: int) -> None:
    api, follower = HistoryApi(), Follower()
    informer = Informer(api, "/things", decode_thing, rng=random.Random(seed), on_change=follower.note, page_size=2)
    running = asyncio.create_task(informer.run())
    for step, argument in story:
        match step:
            case "write":
                api.write(argument)
            case "delete":
                api.delete(argument)
            case "break":
                api.epoch += 1
                api.wake()
            case "compact":
                api.compacted, api.history = api.version, []
            case "repeat" if api.history:
                api.history.append((api.version, random.Random(seed).choice(api.history)[1]))
            case "fail":
                api.failures += 2
            case "relist":
                informer.relist()
            case "wait":
                await asyncio.sleep(argument)
    await asyncio.sleep(300)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    expected = {name: decode_thing(json.dumps(document).encode()) for name, document in api.objects.items()}
    assert {name: record for (_, name), record in informer.records.items()} == expected
    assert follower.copy == expected
    assert informer.counts.listener_failures == 0


@settings(max_examples=150)
@given(story=st.lists(STEPS, max_size=40), seed=st.integers(0, 1000))
def test_it_ends_up_knowing_what_the_server_has(story: list[tuple[str, Any]], seed: int) -> None:
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        runner.run(live_through(story, seed))
