"""Everything here runs in virtual time, each test in a cluster of its own."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import orjson
import pytest

from webhook.simulated.api import SimulatedApi
from webhook.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "unit/simulated" in str(item.path) and "real_sockets" not in item.nodeid:
            item.add_marker(pytest.mark.virtual_time)


class Client:
    """JSON in, JSON out, over the same seam that production code uses."""

    def __init__(self, api: SimulatedApi) -> None:
        self.api = api

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        raw = await self.api.request(method, path, body=None if body is None else orjson.dumps(body), **more)
        return orjson.loads(raw)

    async def get(self, path: str, **query: str) -> Any:
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: Any, **query: str) -> Any:
        return await self.call("POST", path, body, query=query)

    async def put(self, path: str, body: Any) -> Any:
        return await self.call("PUT", path, body)

    async def merge(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body, content_type="application/merge-patch+json")

    async def json_patch(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body, content_type="application/json-patch+json")

    async def delete(self, path: str, body: Any = None) -> Any:
        return await self.call("DELETE", path, body)


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(Random(1), namespaces=["team-a", "team-b"]) as running:
        yield running


@pytest.fixture
def client(cluster: SimulatedCluster) -> Client:
    return Client(cluster.api())
