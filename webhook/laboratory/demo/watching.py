"""What the demo sees: queues and gangs as the API shows them to anybody. Nothing is asked of Tutti's insides.

A gang is waiting, starting, running or stopping by its reservation in the ledger and by its pods; why it waits is told
by the event on its job.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from webhook.cluster.ledger_book import LedgerBook
from webhook.core.ledger.pages import Found, PagesMismatch
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.jobs.plain_pods import pod as pod_record
from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.kube.plain import Plain, plain

GPU: Final = "nvidia.com/gpu"
State = Literal["waiting", "starting", "running", "stopping", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class Queue:
    """One team's queue. Amounts are GPUs."""

    name: str
    nominal: int
    reserved: int
    waiting: int
    """Gangs, not GPUs."""

    @property
    def borrowed(self) -> int:
        """What is reserved beyond the team's own."""
        return max(0, self.reserved - self.nominal)


@dataclass(frozen=True, slots=True)
class Gang:
    """One job at one moment."""

    namespace: str
    name: str
    queue: str
    size: int
    """Pods it consists of."""
    gpus: int
    """What all its pods ask."""
    state: State
    reserved: int
    """GPUs that the ledger holds for it, less what its ended pods will not need again."""
    pods: int
    """Pods that exist and have not ended."""
    running: int
    reason: str
    """Why it waits."""
    stopped_for: str
    """Why it was stopped last."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything at one moment."""

    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]

    @property
    def gpus_in_use(self) -> int:
        """GPUs of all pods that exist and have not ended."""
        return sum(gang.pods * gang.gpus // gang.size for gang in self.gangs)


class Watcher:
    """Follows the teams' jobs, pods and events and the ledger by list and watch."""

    def __init__(self, api: Api, queues: Mapping[str, tuple[str, int]]) -> None:
        """``queues`` says of each team's namespace the name of its queue and its nominal GPUs."""
        self._queues = queues
        rng = Random(0)  # noqa: S311 - jitter
        self._jobs: list[Informer[Plain]] = []
        self._pods: list[Informer[PodRecord]] = []
        self._events: list[Informer[Plain]] = []
        for namespace in queues:
            self._jobs.append(Informer(api, f"/apis/batch/v1/namespaces/{namespace}/jobs", plain, rng=rng))
            self._pods.append(Informer(api, f"/api/v1/namespaces/{namespace}/pods", pod_record.decode, rng=rng))
            path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
            self._events.append(Informer(api, path, plain, rng=rng))
        self._ledger: Informer[Plain] = Informer(
            api,
            f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps",
            plain,
            rng=rng,
            field_selector=f"metadata.name={names.LEDGER_NAME}",
        )
        self._pages: Informer[Plain] = Informer(
            api,
            f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps",
            plain,
            rng=rng,
            label_selector=f"{names.LEDGER_PAGE}={names.LEDGER_NAME}",
        )
        self._book, self._read = LedgerBook(), Ledger()

    async def follow(self) -> list[asyncio.Task[None]]:
        """Start following and wait until everything was read once; the caller cancels the tasks."""
        informers: list[Informer[Any]] = [*self._jobs, *self._pods, *self._events, self._ledger, self._pages]
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced.wait()
        return tasks

    def look(self) -> Picture:
        """Return what is there now."""
        reservations = self._reservations()
        said = self._said()
        gangs = tuple(
            self._gang(job, reservations.entries.get(job.uid), said)
            for informer in self._jobs
            for job in sorted(informer.records.values(), key=lambda job: (_created(job), job.name))
        )
        queues = []
        for queue, nominal in self._queues.values():
            reserved = sum(gang.reserved for gang in gangs if gang.queue == queue)
            waiting = sum(gang.queue == queue and gang.state == "waiting" for gang in gangs)
            queues.append(Queue(queue, nominal, reserved, waiting))
        return Picture(tuple(queues), gangs)

    def _reservations(self) -> Ledger:
        """Return the ledger; while index and pages do not belong together yet, as it was read before."""
        index = next(iter(self._ledger.records.values()), None)
        self._book.index = None if index is None else index.document.get("data")
        self._book.pages = {
            page.name: Found(page.uid, page.document.get("data") or {}) for page in self._pages.records.values()
        }
        try:
            self._read = self._book.read() or Ledger()
        except LedgerCorrupt:
            self._read = Ledger()
        except PagesMismatch:
            pass
        return self._read

    def _said(self) -> dict[tuple[str, str], str]:
        """Return the newest note of each reason ("Queued", "Evicted") about each job, by uid and reason."""
        newest: dict[tuple[str, str], tuple[str, str]] = {}
        for informer in self._events:
            for event in informer.records.values():
                document = event.document
                if document.get("reportingController") == "tutti.dev/reconciler":
                    said = (document.get("eventTime") or "", document.get("note") or "")
                    uid = (document.get("regarding") or document.get("involvedObject") or {}).get("uid", "")
                    key = (uid, document.get("reason") or "")
                    newest[key] = max(newest.get(key, ("", "")), said)
        return {key: note for key, (_, note) in newest.items()}

    def _gang(self, job: Plain, reservation: Reservation | None, said: Mapping[tuple[str, str], str]) -> Gang:
        spec = job.document["spec"]
        size = int(spec.get("parallelism", 1))
        per_pod = int(spec["template"]["spec"]["containers"][0]["resources"]["requests"].get(GPU, 0))
        pods = [pod for informer in self._pods for pod in informer.records.values() if pod.owner_uid == job.uid]
        running = sum(pod.phase == "Running" and not pod.terminating for pod in pods)
        ended = sum(pod.phase == "Succeeded" for pod in pods)
        state = _state(job, reservation, running + ended >= size)
        return Gang(
            namespace=job.namespace,
            name=job.name,
            queue=self._queues[job.namespace][0],
            size=size,
            gpus=size * per_pod,
            state=state,
            reserved=0 if reservation is None else (size - ended) * per_pod,
            pods=sum(not pod.terminal for pod in pods),
            running=running,
            reason=said.get((job.uid, "Queued"), "") if state == "waiting" else "",
            stopped_for=said.get((job.uid, "Evicted"), ""),
        )


def _state(job: Plain, reservation: Reservation | None, whole: bool) -> State:
    for condition in job.document.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return "finished" if condition["type"] == "Complete" else "failed"
    if reservation is None:
        return "waiting"
    if reservation.stopping is not None:
        return "stopping"
    return "running" if whole else "starting"


def _created(job: Plain) -> str:
    return str(job.document["metadata"].get("creationTimestamp") or "")
