"""The jobs of a load that lets thousands run at once: creates them, sees them start, ends them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import orjson

from benchmarks.load import JOBS, NAMESPACE, JobClass, changed_jobs, complete, job
from webhook.kube.api import Api

PODS: Final = 4
CREATING: Final = 24
"""Creations under way at once."""
STALLED_SECONDS: Final = 45.0
CLASS: Final = JobClass("small", 1, 50, 0, 0, 0)


class Stalled(Exception):
    """Nothing was admitted for long."""


class Running:
    """The jobs of one side: creates them, sees them start, ends them."""

    def __init__(self, api: Api, prefix: str, queues: list[tuple[str, str]]) -> None:
        self._api = api
        self._prefix = prefix
        self._queues = queues
        self._number = 0
        self._created: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.running: list[str] = []
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Take note of every start, until cancelled."""
        listed = orjson.loads(await self._api.request("GET", JOBS, query={"limit": "1"}))
        async for document in changed_jobs(self._api, listed["metadata"]["resourceVersion"]):
            name = document["metadata"]["name"]
            if name in self._created and name not in self.started and not document["spec"].get("suspend"):
                self.started[name] = asyncio.get_running_loop().time()
                self.running.append(name)
                self._changed.set()

    async def burst(self, count: int) -> float:
        """Create ``count`` jobs as fast as may be; return how many a second have started. Raises Stalled."""
        began, names = asyncio.get_running_loop().time(), [self._name() for _ in range(count)]
        slots = asyncio.Semaphore(CREATING)

        async def create(name: str) -> None:
            async with slots:
                await self._create(name)

        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(create(name))
        await self._all_started(names)
        return count / (max(self.started[name] for name in names) - began)

    async def steady(self, per_second: float, seconds: float) -> tuple[float, list[float]]:
        """End and create so many jobs a second; return admissions a second, and each wait. Raises Stalled."""
        loop, names, rng = asyncio.get_running_loop(), [], random.Random(7)
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - loop.time()))
                place = rng.randrange(len(self.running))
                self.running[place], self.running[-1] = self.running[-1], self.running[place]
                tasks.create_task(complete(self._api, self.running.pop(), pods=PODS))
                names.append(self._name())
                tasks.create_task(self._create(names[-1]))
        await self._all_started(names)
        waits = [self.started[name] - self._created[name] for name in names]
        return len(names) / (max(self.started[name] for name in names) - began), waits

    def _name(self) -> str:
        self._number += 1
        return f"{self._prefix}-{self._number}"

    async def _create(self, name: str) -> None:
        _, queue = self._queues[int(name.rpartition("-")[2]) % len(self._queues)]
        document = job(queue, CLASS, 0, PODS)
        document["metadata"]["name"] = name
        self._created[name] = asyncio.get_running_loop().time()
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        await self._api.request("POST", path, body=orjson.dumps(document), timeout_seconds=60)

    async def _all_started(self, names: list[str]) -> None:
        while any(name not in self.started for name in names):
            self._changed.clear()
            try:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self._changed.wait()
            except TimeoutError as error:
                raise Stalled from error


@asynccontextmanager
async def followed(jobs: Running) -> AsyncIterator[Running]:
    """Take note of the starts of jobs inside."""
    following = asyncio.create_task(jobs.follow())
    await asyncio.sleep(1)
    try:
        yield jobs
    finally:
        following.cancel()
