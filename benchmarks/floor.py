"""The least any suspend-based controller must do: watch, one patch a Job, one ledger write every 20 ms.

Nothing else: no webhook, no events, no preemption, a greedy sum per cohort in place of an engine. What it reaches is
the ceiling that the machine allows; Tutti is measured against it in the same run.
"""

import asyncio
import heapq
import sys
from contextlib import suppress
from typing import Any, Final

import orjson
import uvloop

from benchmarks.load import BY_NAME, JOBS, NAMESPACE, NOMINAL_CPU, QUEUES_PER_COHORT, changed_jobs
from webhook.errors import Conflict
from webhook.kube.api import JSON_PATCH, MERGE_PATCH
from webhook.kube.connecting import connect
from webhook.kube.http import HttpApi

CYCLE_SECONDS: Final = 0.02
LEDGER: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/floor-ledger"
JOBS_A_LEDGER: Final = 1000
"""After so many admissions another ledger is begun: the least possible has no ceiling."""


class Floor:
    """Greedy admission by cohort."""

    def __init__(self, api: HttpApi, room: int = NOMINAL_CPU * QUEUES_PER_COHORT) -> None:
        """``room`` is what each cohort has."""
        self._api = api
        self._room = room
        self._admitted = 0
        self._ledgers: dict[str, int] = {}
        """Name of a job to the number of the ledger that holds it."""
        self._waiting: dict[str, list[tuple[int, str, str, int]]] = {}
        self._free: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._known: set[str] = set()
        self._changed: dict[str, str | None] = {}
        self._slots = asyncio.Semaphore(48)

    async def run(self) -> None:
        """Admit until ended."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._cycles(tasks))

    async def _watch(self) -> None:
        listed = orjson.loads(await self._api.request("GET", JOBS))
        for item in listed["items"]:
            self._seen(item)
        version = listed["metadata"]["resourceVersion"]
        print("ready", flush=True)
        async for item in changed_jobs(self._api, version):
            self._seen(item)

    def _seen(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        cohort = queue.split("-")[1]
        if any(c["type"] == "Complete" for c in job["status"].get("conditions", ())):
            held = self._held.pop(name, None)
            if held is not None:
                self._free[held[0]] += held[1]
                self._changed[name] = None
        elif name not in self._known:
            self._known.add(name)
            self._free.setdefault(cohort, self._room)
            job_class = BY_NAME[job["metadata"]["labels"]["bench/class"]]
            version = job["metadata"]["resourceVersion"]
            heapq.heappush(self._waiting.setdefault(cohort, []), (-job_class.priority, name, version, job_class.cpu))

    async def _cycles(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(CYCLE_SECONDS)
            starts = []
            for cohort, waiting in self._waiting.items():
                passed = []
                while waiting:
                    entry = heapq.heappop(waiting)
                    if entry[3] <= self._free[cohort]:
                        self._free[cohort] -= entry[3]
                        self._held[entry[1]] = (cohort, entry[3])
                        self._changed[entry[1]] = f"{entry[3]} of {cohort}"
                        starts.append(entry)
                    else:
                        passed.append(entry)
                self._waiting[cohort] = passed
            if self._changed:
                changed, self._changed = self._changed, {}
                await self._write(changed)
            for _, name, version, _cpu in starts:
                tasks.create_task(self._start(name, version))

    async def _write(self, changed: dict[str, str | None]) -> None:
        by_ledger: dict[int, dict[str, str | None]] = {}
        for name, text in changed.items():
            if text is not None:
                if self._admitted % JOBS_A_LEDGER == 0:
                    await self._create(self._admitted // JOBS_A_LEDGER)
                self._ledgers[name] = self._admitted // JOBS_A_LEDGER
                self._admitted += 1
            number = self._ledgers[name] if text is not None else self._ledgers.pop(name)
            by_ledger.setdefault(number, {})[name] = text
        patches = (
            self._api.request(
                "PATCH", f"{LEDGER}-{number}", body=orjson.dumps({"data": data}), content_type=MERGE_PATCH
            )
            for number, data in by_ledger.items()
        )
        await asyncio.gather(*patches)

    async def _create(self, number: int) -> None:
        metadata = {"name": f"floor-ledger-{number}", "namespace": NAMESPACE}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        with suppress(Conflict):
            await self._api.request("POST", LEDGER.rpartition("/")[0], body=orjson.dumps(body))

    async def _start(self, name: str, version: str) -> None:
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/spec/suspend", "value": False},
        ]
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}"
        async with self._slots:
            await self._api.request(
                "PATCH", path, body=orjson.dumps(patch), content_type=JSON_PATCH, timeout_seconds=60
            )


async def _main(kubeconfig: str, *room: str) -> None:
    await Floor(await connect(kubeconfig), *map(int, room)).run()


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
