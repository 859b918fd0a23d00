"""The jobs of a load that lets thousands run at once: creates them, sees them start, ends them, lets ended ones go.

What must not happen is told in ``faults``: a job that was admitted twice, was stopped, or is lost.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson

from benchmarks.load import JOBS, NAMESPACE, JobClass, changed_jobs, complete, job
from webhook.core.notation.names import ADMISSION
from webhook.errors import Conflict, NotFound, Unavailable
from webhook.kube.api import Api
from webhook.kube.finding import every

PODS: Final = 4
UNDER_WAY_MAX: Final = 24
"""Requests under way at once. The load's identity is exempt from priority and fairness: without a bound, an API server
that falls behind would answer nobody else, and no leader could take over. Deletions are bounded by themselves, so that
they need not wait for creations, which webhooks review.
"""
STALLED_SECONDS: Final = 45.0
TTL_SECONDS: Final = 10.0
"""How long a job that has ended stays stored while :meth:`Running.let_go` runs."""
AGAIN_SECONDS: Final = 0.5
AGAIN_MAX: Final = 60
"""A request that the API server could not take is sent again so often: who submits a job would do so, too."""
OF_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
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
        self.first_starts: dict[int, float] = {}
        """Epoch of the ledger to the loop time at which the first start under it was seen."""
        self.faults: list[str] = []
        self.refused: Counter[str] = Counter()
        """Requests that had to be sent again, by what the API server said."""
        self.ended = self.deleted = 0
        self._admissions: dict[str, tuple[int, int]] = {}
        """What each job that runs was started by: epoch and number of the ledger's write."""
        self._ended: deque[tuple[float, str]] = deque()
        """When jobs ended that are stored still, and their names."""
        self._changed = asyncio.Event()
        self._slots, self._deleting = asyncio.Semaphore(UNDER_WAY_MAX), asyncio.Semaphore(UNDER_WAY_MAX)

    async def follow(self) -> None:
        """Take note of every start, until cancelled."""
        listed = orjson.loads(await self._api.request("GET", JOBS, query={"limit": "1"}))
        async for document in changed_jobs(self._api, listed["metadata"]["resourceVersion"]):
            if document["metadata"]["name"] in self._created:
                self._seen(document)

    def _seen(self, document: Mapping[str, Any]) -> None:
        name, admission = document["metadata"]["name"], admission_of(document)
        if document["spec"].get("suspend"):
            if name in self.started:
                self.faults.append(f"{name} was stopped")
        elif name not in self.started:
            now = asyncio.get_running_loop().time()
            self.started[name] = now
            self.running.append(name)
            if admission is not None:
                self._admissions[name] = admission
                self.first_starts.setdefault(admission[0], now)
            self._changed.set()
        elif admission is not None and admission != self._admissions.get(name):
            self.faults.append(f"{name} was admitted twice: by {self._admissions.get(name)} and by {admission}")

    async def burst(self, count: int) -> float:
        """Create ``count`` jobs as fast as may be; return how many a second have started. Raises Stalled."""
        began, names = asyncio.get_running_loop().time(), [self._name() for _ in range(count)]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(self._create(name))
        await self._all_started(names)
        return count / (max(self.started[name] for name in names) - began)

    async def steady(
        self, per_second: float, seconds: float, enough: asyncio.Event | None = None
    ) -> tuple[float, list[float]]:
        """End and create so many jobs a second; return admissions a second, and each wait. Raises Stalled.

        It ends earlier once ``enough`` is set.
        """
        loop, names, rng = asyncio.get_running_loop(), [], random.Random(7)
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - loop.time()))
                if enough is not None and enough.is_set():
                    break
                if self.running:
                    place = rng.randrange(len(self.running))
                    self.running[place], self.running[-1] = self.running[-1], self.running[place]
                    tasks.create_task(self._end(self.running.pop()))
                names.append(self._name())
                tasks.create_task(self._create(names[-1]))
        await self._all_started(names)
        waits = [self.started[name] - self._created[name] for name in names]
        return len(names) / (max(self.started[name] for name in names) - began), waits

    async def let_go(self) -> None:
        """Delete each job some seconds after it has ended, as ``ttlSecondsAfterFinished`` would, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                before = asyncio.get_running_loop().time() - TTL_SECONDS
                while self._ended and self._ended[0][0] <= before:
                    tasks.create_task(self._delete(self._ended.popleft()[1]))
                await asyncio.sleep(0.1)

    async def delete_ended(self) -> None:
        """Delete all jobs that have ended."""
        gone = [name for _, name in self._ended]
        self._ended.clear()
        async with asyncio.TaskGroup() as tasks:
            for name in gone:
                tasks.create_task(self._delete(name))

    async def differences(self, ledgers: Iterable[Mapping[str, str]]) -> list[str]:
        """Return what is stored otherwise than it was seen, once no job waits: ``ledgers`` is the data of the ledger's
        objects. An end that the ledger has not taken in yet is a difference as well.
        """
        stored = {each["metadata"]["name"]: each async for each in every(self._api, OF_JOBS)}
        running = {name: stored[name]["metadata"]["uid"] for name in self.running if name in stored}
        reserved = Counter(uid for data in ledgers for uid in data if "-" in uid)
        found = [f"{name} is lost" for name in self.running if name not in stored]
        found += [f"{name} is suspended" for name in running if stored[name]["spec"].get("suspend")]
        found += [f"{name} runs without an entry" for name, uid in running.items() if not reserved[uid]]
        found += [f"the ledger has {uid} {count} times" for uid, count in reserved.items() if count > 1]
        found += [f"the ledger has {uid}, which does not run" for uid in reserved.keys() - set(running.values())]
        return found

    def _name(self) -> str:
        self._number += 1
        return f"{self._prefix}-{self._number}"

    async def _create(self, name: str) -> None:
        _, queue = self._queues[int(name.rpartition("-")[2]) % len(self._queues)]
        document = job(queue, CLASS, 0, PODS)
        document["metadata"]["name"] = name
        self._created[name] = asyncio.get_running_loop().time()

        async def create() -> None:
            await self._api.request("POST", OF_JOBS, body=orjson.dumps(document), timeout_seconds=60)

        # It may have been stored although the answer did not come.
        with suppress(Conflict):
            await self._taken(create, self._slots)

    async def _end(self, name: str) -> None:
        await self._taken(lambda: complete(self._api, name, pods=PODS), self._slots)
        self.ended += 1
        self._ended.append((asyncio.get_running_loop().time(), name))

    async def _delete(self, name: str) -> None:
        # In the foreground, as the TTL controller: the garbage collector has a part in it.
        query = {"propagationPolicy": "Foreground"}

        async def delete() -> None:
            await self._api.request("DELETE", f"{OF_JOBS}/{name}", query=query, timeout_seconds=60)

        with suppress(NotFound):
            await self._taken(delete, self._deleting)
        self.deleted += 1

    async def _taken(self, send: Callable[[], Awaitable[None]], slots: asyncio.Semaphore) -> None:
        """Send a request until the API server takes it. Raises ApiError where it refuses it, or never does."""
        for _ in range(AGAIN_MAX):
            try:
                async with slots:
                    return await send()
            except Unavailable as error:
                self.refused[error.reason] += 1
                await asyncio.sleep(AGAIN_SECONDS)
        return await send()

    async def _all_started(self, names: list[str]) -> None:
        while any(name not in self.started for name in names):
            self._changed.clear()
            try:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self._changed.wait()
            except TimeoutError as error:
                raise Stalled from error


def admission_of(document: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return by which write of the ledger a job was started (epoch and number), None where nothing says so."""
    text = (document["metadata"].get("annotations") or {}).get(ADMISSION)
    if text is None:
        return None
    admission = orjson.loads(text)
    return admission["epoch"], admission["seq"]


@asynccontextmanager
async def followed(jobs: Running) -> AsyncIterator[Running]:
    """Take note of the starts of jobs inside. Raises what ended that, such as an ApiError."""
    following = asyncio.create_task(jobs.follow())
    await asyncio.sleep(1)
    try:
        yield jobs
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
