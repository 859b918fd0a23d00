"""A namespace that makes thousands of events delays and displaces its own."""

import asyncio
from typing import Any

import orjson
import pytest

from webhook.controllers.reporting.event_queue import EventQueue
from webhook.controllers.reporting.events import EventRecorder, Regarding


def taken(queue: EventQueue[str], count: int) -> list[str]:
    return [queue.take() for _ in range(count)]


def test_namespaces_take_turns_and_each_keeps_its_order() -> None:
    queue = EventQueue[str](100)
    for number in range(3):
        queue.put("loud", f"loud-{number}")
    queue.put("quiet", "quiet-0")
    assert taken(queue, 4) == ["loud-0", "quiet-0", "loud-1", "loud-2"]
    assert len(queue) == 0


def test_who_has_most_loses_its_oldest_when_there_are_too_many() -> None:
    queue = EventQueue[str](10)
    quiet = [queue.put("quiet", f"quiet-{number}") for number in range(2)]
    loud = [queue.put("loud", f"loud-{number}") for number in range(50)]
    assert all(quiet)
    assert loud.count(False) == 42
    assert len(queue) == 10
    assert taken(queue, 4) == ["quiet-0", "loud-42", "quiet-1", "loud-43"]


def test_an_event_of_another_namespace_is_the_next_but_one_however_many_wait() -> None:
    queue = EventQueue[str](2000)
    for number in range(2000):
        queue.put("loud", str(number))
    queue.put("quiet", "quiet")
    assert "quiet" in taken(queue, 2)


class Taken:
    """An API server that takes events."""

    def __init__(self) -> None:
        self.namespaces: list[str] = []

    async def request(self, method: str, path: str, *, body: bytes, **_more: Any) -> bytes:
        self.namespaces.append(orjson.loads(body)["metadata"]["namespace"])
        return b"{}"


@pytest.mark.virtual_time
async def test_an_event_is_written_at_once_though_another_namespace_made_thousands() -> None:
    api = Taken()
    recorder = EventRecorder(api, "me", lambda: 0.0, 20)  # type: ignore[arg-type]
    for namespace in ["loud"] * 5000 + ["quiet"]:
        recorder.note(Regarding("batch/v1", "Job", namespace, "train", "uid"), "Queued", "waits")
    writing = asyncio.create_task(recorder.run())
    await asyncio.sleep(0.2)
    writing.cancel()
    assert "quiet" in api.namespaces[:2]
