"""An ``Api`` in memory whose answers a test scripts: pages, watches that say what they are told, and faults."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook import errors
from webhook.kube.api import JSON, REQUEST_TIMEOUT_SECONDS


def thing(name: str, version: int, *, uid: str = "", namespace: str = "team", value: str = "") -> dict[str, Any]:
    """Return one object; its uid follows from its name unless given."""
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "value": value}


@dataclass(frozen=True, slots=True)
class Thing:
    """What the informers under test remember of an object."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    value: str


def decode_thing(raw: bytes) -> Thing | None:
    """Project an object; ``value`` may ask for the cases that go wrong."""
    document = json.loads(raw)
    metadata, value = document["metadata"], document["value"]
    if value == "unreadable":
        raise ValueError("cannot be read")
    if value == "ignored":
        return None
    return Thing(metadata["namespace"], metadata["name"], metadata["uid"], int(metadata["resourceVersion"]), value)


@dataclass
class Watch:
    """One watch in progress."""

    query: Mapping[str, str]
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def say(self, event_type: str, document: Mapping[str, Any]) -> None:
        """Send one event."""
        self.lines.put_nowait(json.dumps({"type": event_type, "object": document}).encode())

    def bookmark(self, version: int) -> None:
        """Send a bookmark."""
        self.say("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def end(self) -> None:
        """End the watch without a word."""
        self.lines.put_nowait(None)


class FakeApi:
    """Serves one collection: ``objects`` at ``version``, in pages, and watches the test speaks through."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.version = 1
        self.objects_max = 1_000_000
        """A page of more is too long."""
        self.deep: bytes = b"null"
        """Stands in lists where an object says "DEEP"."""
        self.faults: list[errors.ApiError] = []
        """Raised by the next requests, one each, whatever they ask."""
        self.watches_fail: errors.ApiError | None = None
        self.lists_fail: errors.ApiError | None = None
        """Raised by each of them, as long as it is there."""
        self.lists: list[Mapping[str, str]] = []
        """Queries of all list requests."""
        self.watches: list[Watch] = []
        """All watches ever started; the last is the current one."""
        self.times: list[float] = []
        """Loop time of every request."""

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
        assert method == "GET"
        query = query or {}
        self.lists.append(query)
        self._arrived()
        if self.lists_fail is not None:
            raise self.lists_fail
        await asyncio.sleep(0.001)
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 1_000_000)
        if len(self.objects[start : start + limit]) > self.objects_max:
            raise errors.TooLarge(200, "TooLarge", "a page of a list is too long")
        token = str(start + limit) if start + limit < len(self.objects) else ""
        metadata = {"resourceVersion": str(self.version), "continue": token}
        page = json.dumps({"metadata": metadata, "items": self.objects[start : start + limit]}).encode()
        return page.replace(b'"DEEP"', self.deep)

    async def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncGenerator[bytes, None]:
        watch = Watch(query)
        self.watches.append(watch)
        self._arrived()
        if self.watches_fail is not None:
            raise self.watches_fail
        while True:
            try:
                async with asyncio.timeout(idle_seconds):
                    line = await watch.lines.get()
            except TimeoutError:
                return
            if line is None:
                return
            yield line

    async def close(self) -> None:
        """Nothing to release."""

    def _arrived(self) -> None:
        self.times.append(asyncio.get_running_loop().time())
        if self.faults:
            raise self.faults.pop(0)

    @property
    def now(self) -> Watch:
        """The current watch."""
        return self.watches[-1]
