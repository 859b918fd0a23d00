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
from webhook.kube.http import HttpApi, connect

CYCLE_SECONDS: Final = 0.02
LEDGER: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/floor-ledger"


class Floor:
    """Greedy admission by cohort."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        self._waiting: dict[str, list[tuple[int, str, str, int]]] = {}
        self._free: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._known: set[str] = set()
        self._changed: dict[str, str | None] = {}
        self._slots = asyncio.Semaphore(48)

    async def run(self) -> None:
        """Admit until ended."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "floor-ledger", "namespace": NAMESPACE}}
        with suppress(Conflict):
            await self._api.request("POST", LEDGER.rpartition("/")[0], body=orjson.dumps(body))
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
            self._free.setdefault(cohort, NOMINAL_CPU * QUEUES_PER_COHORT)
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
                await self._api.request("PATCH", LEDGER, body=orjson.dumps({"data": changed}), content_type=MERGE_PATCH)
            for _, name, version, _cpu in starts:
                tasks.create_task(self._start(name, version))

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


async def _main(kubeconfig: str) -> None:
    await Floor(await connect(kubeconfig)).run()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
