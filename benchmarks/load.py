"""The load: Kueue's own baseline shape at a tenth (30 queues in 5 cohorts), its creator and its finisher.

The Job controller is off. A job that was un-suspended is marked complete after its run time, as Kueue's own test does.
"""

import asyncio
import itertools
import statistics
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from webhook.errors import ApiError, Conflict
from webhook.kube.api import MERGE_PATCH, Api

NAMESPACE: Final = "bench"
COHORTS: Final = 5
QUEUES_PER_COHORT: Final = 6
NOMINAL_CPU: Final = 20
BORROWING_CPU: Final = 100
JOBS: Final = "/apis/batch/v1/jobs"


@dataclass(frozen=True, slots=True)
class JobClass:
    """One size of job."""

    name: str
    cpu: int
    priority: int
    per_queue: int
    every_seconds: float
    runtime_seconds: float


CLASSES: Final = (
    JobClass("small", 1, 50, 35, 0.1, 0.2),
    JobClass("medium", 5, 100, 10, 0.5, 0.5),
    JobClass("large", 20, 200, 5, 1.2, 1.0),
)
BY_NAME: Final = {job_class.name: job_class for job_class in CLASSES}
TOTAL: Final = COHORTS * QUEUES_PER_COHORT * sum(job_class.per_queue for job_class in CLASSES)


def quota_limit_per_second() -> float:
    """Return how many jobs a second the quota alone would allow, were deciding and writing free."""
    unit_seconds = QUEUES_PER_COHORT * sum(c.per_queue * c.cpu * c.runtime_seconds for c in CLASSES)
    return TOTAL / (unit_seconds / (QUEUES_PER_COHORT * NOMINAL_CPU))


def queue_names() -> list[tuple[str, str]]:
    """Return (cohort, queue) of every queue."""
    return [(f"cohort-{c}", f"queue-{c}-{q}") for c, q in itertools.product(range(COHORTS), range(QUEUES_PER_COHORT))]


def policy(queues: list[tuple[str, str]] | None = None, cpu: int = NOMINAL_CPU) -> list[dict[str, Any]]:
    """Return what a load needs: flavor, priority classes, and ``queues`` (cohort, queue) that own ``cpu`` each."""
    version = "kueue.x-k8s.io/v1beta2"
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
    ]
    objects += [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"bench-{c.name}"},
            "value": c.priority,
        }
        for c in CLASSES
    ]
    for cohort, queue in queues or queue_names():
        resource = {"name": "cpu", "nominalQuota": str(cpu), "borrowingLimit": str(BORROWING_CPU)}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [resource]}]}]
        objects.append(
            {
                "apiVersion": version,
                "kind": "ClusterQueue",
                "metadata": {"name": queue},
                "spec": {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups},
            }
        )
        objects.append(
            {
                "apiVersion": version,
                "kind": "LocalQueue",
                "metadata": {"name": queue, "namespace": NAMESPACE},
                "spec": {"clusterQueue": queue},
            }
        )
    return objects


async def delete_jobs(api: Api) -> None:
    """Delete all jobs of a load, page by page: what was deleted is answered, and that may be long."""
    path, query = (
        JOBS.replace("/v1/", f"/v1/namespaces/{NAMESPACE}/"),
        {"propagationPolicy": "Background", "limit": "500"},
    )
    while orjson.loads(await api.request("DELETE", path, query=query, timeout_seconds=60)).get("items"):
        pass


def job(queue: str, job_class: JobClass, number: int, pods: int = 1) -> dict[str, Any]:
    """Return one Job of the load."""
    resources = {"requests": {"cpu": str(job_class.cpu)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{queue}-{job_class.name}-{number}",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": queue, "bench/class": job_class.name},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": True,
            "template": {
                "metadata": {"labels": {"bench/class": job_class.name}},
                "spec": {
                    "restartPolicy": "Never",
                    "priorityClassName": f"bench-{job_class.name}",
                    "containers": [{"name": "main", "image": "bench", "resources": resources}],
                },
            },
        },
    }


@dataclass(slots=True)
class Outcome:
    """What happened to the load."""

    created: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    own_writes: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From the first creation to the last job's end."""
        return max(self.finished.values()) - min(self.created.values())

    @property
    def per_second(self) -> float:
        """Jobs through the cluster a second, first creation to last admission."""
        return len(self.admitted) / (max(self.admitted.values()) - min(self.created.values()))

    def mean_wait_seconds(self) -> dict[str, float]:
        """Mean time from creation to admission by class."""
        waits: dict[str, list[float]] = {}
        for name, at in self.admitted.items():
            waits.setdefault(self.classes[name], []).append(at - self.created[name])
        return {name: statistics.mean(values) for name, values in waits.items()}


async def changed_jobs(api: Api, version: str) -> AsyncIterator[dict[str, Any]]:
    """Yield every job that is added or modified after ``version``; the API server ends slow watches as it likes."""
    while True:
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        async for line in api.watch(JOBS, query=query, idle_seconds=300):
            event = orjson.loads(line)
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def complete(api: Api, name: str, started: str = "", pods: int = 1) -> None:
    """Mark a job complete, as the Job controller would; raises ApiError, and RuntimeError after ten conflicts."""
    now = _now()
    condition = {
        "status": "True",
        "lastTransitionTime": now,
        "lastProbeTime": now,
        "reason": "Bench",
        "message": "",
    }
    status = {
        "startTime": started or now,
        "completionTime": now,
        "succeeded": pods,
        "conditions": [condition | {"type": "SuccessCriteriaMet"}, condition | {"type": "Complete"}],
    }
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}/status"
    for _ in range(10):
        try:
            await api.request(
                "PATCH", path, body=orjson.dumps({"status": status}), content_type=MERGE_PATCH, timeout_seconds=60
            )
            return
        except Conflict:
            continue
        except ApiError as error:
            print(f"could not finish {name}: {error}")
            raise
    raise RuntimeError(f"could not finish {name}: ten conflicts in a row")


class Load:
    """Creates the jobs on schedule, watches them start, marks them complete when their time is over."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.outcome = Outcome()
        self._done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, timeout_seconds: float) -> Outcome:
        """Run the whole load; raises TimeoutError when it does not finish in time."""
        async with asyncio.timeout(timeout_seconds), asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(self._watch())
            await asyncio.sleep(0.2)
            creators = [
                tasks.create_task(self._create(queue, job_class)) for _, queue in queue_names() for job_class in CLASSES
            ]
            await asyncio.gather(*creators)
            await self._done.wait()
            watcher.cancel()
        return self.outcome

    async def _create(self, queue: str, job_class: JobClass) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for number in range(job_class.per_queue):
            await asyncio.sleep(max(0.0, begin + number * job_class.every_seconds - loop.time()))
            manifest = job(queue, job_class, number)
            name = manifest["metadata"]["name"]
            self.outcome.classes[name] = job_class.name
            self.outcome.created[name] = loop.time()
            path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
            await self._api.request("POST", path, body=orjson.dumps(manifest), timeout_seconds=60)
            self._count("POST jobs")

    async def _watch(self) -> None:
        version = orjson.loads(await self._api.request("GET", JOBS, query={"limit": "1"}))["metadata"][
            "resourceVersion"
        ]
        async for document in changed_jobs(self._api, version):
            self._seen(document)

    def _seen(self, document: Mapping[str, Any]) -> None:
        name = document["metadata"]["name"]
        if document["spec"].get("suspend") or name in self.outcome.admitted or name not in self.outcome.created:
            return
        self.outcome.admitted[name] = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._finish(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, name: str) -> None:
        started = _now()
        await asyncio.sleep(BY_NAME[self.outcome.classes[name]].runtime_seconds)
        await complete(self._api, name, started)
        self._count("PATCH jobs/status")
        self.outcome.finished[name] = asyncio.get_running_loop().time()
        if len(self.outcome.finished) == TOTAL:
            self._done.set()

    def _count(self, what: str) -> None:
        self.outcome.own_writes[what] = self.outcome.own_writes.get(what, 0) + 1
