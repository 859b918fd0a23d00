"""A running informer over a scripted API server."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.unit.kube.fake_api import FakeApi, Thing, decode_thing
from webhook.kube.informer import Informer


@pytest.fixture
def api() -> FakeApi:
    """Return an empty scripted API server."""
    return FakeApi()


class Started:
    """Informers of one test, and what they told."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.changes: list[tuple[str | None, str | None]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, decode: Callable[[bytes], Thing | None] = decode_thing, **options: Any) -> Informer[Thing]:
        informer = Informer(
            self.api, "/apis/test/v1/things", decode, rng=random.Random(1), on_change=self._note, **options
        )
        self.tasks.append(asyncio.create_task(informer.run()))
        return informer

    def _note(self, old: Thing | None, new: Thing | None) -> None:
        self.changes.append((_short(old), _short(new)))


def _short(thing: Thing | None) -> str | None:
    return None if thing is None else f"{thing.name}@{thing.resource_version}"


@pytest.fixture
async def start(api: FakeApi) -> AsyncIterator[Started]:
    """Start informers over ``api``; they end with the test."""
    started = Started(api)
    yield started
    for task in started.tasks:
        task.cancel()
    await asyncio.gather(*started.tasks, return_exceptions=True)


async def settle(seconds: float = 0.5) -> None:
    """Let everything happen that happens within that virtual time."""
    await asyncio.sleep(seconds)
