"""Each test has a cluster of its own."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.unit.laboratory.simulated.clients import Client
from webhook.laboratory.simulated.cluster import SimulatedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(Random(1), namespaces=["team-a", "team-b"]) as running:
        yield running


@pytest.fixture
def client(cluster: SimulatedCluster) -> Client:
    return Client(cluster.api())
