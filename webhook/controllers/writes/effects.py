"""Writes to jobs and to pods behind our gates: the effects of decisions already written in the ledger.

Each is one conditional patch of a job, or conditional writes to some of its pods, carried out concurrently with others
and never repeated blindly: after any failure the next cycle looks at what is stored and derives the effect anew (ledger
rules 3 and 6).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from webhook import metrics
from webhook.core.model.pods import PodRecord
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import object_path
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import JSON_PATCH, Api

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 30.0
REFUSALS_MEANT: Final = 4
"""So many refusals in a row are meant. With the waits between them that is 48 seconds: whatever was sent before the
first and never answered has arrived by then or never will."""


@dataclass(frozen=True, slots=True)
class PodWrite:
    """One write to one pod of a gang."""

    pod: PodRecord
    patch: Sequence[Mapping[str, Any]] | None
    """None deletes the pod."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One patch of one job, or writes to its pods."""

    name: str
    job: JobRecord
    patch: Sequence[Mapping[str, Any]] = ()
    subresource: str = ""
    """Where the patch goes, if not to the job itself: ``status``."""
    pods: tuple[PodWrite, ...] = ()


class Effects:
    """Carries out effects and tells when a job may be looked at again."""

    def __init__(
        self,
        api: Api,
        kinds: Mapping[str, JobKind],
        in_flight_max: int,
        on_done: Callable[[Effect, ApiError | None], None],
    ) -> None:
        """``on_done`` is told each outcome; None means that the patch is stored."""
        self._api = api
        self._kinds = kinds
        self._slots = asyncio.Semaphore(in_flight_max)
        self._on_done = on_done
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stored_version: dict[str, int] = {}
        self._stored_pods: dict[str, dict[str, int]] = {}
        """The same for the pods of a gang, by their uids."""
        self._failures: dict[str, int] = {}
        self._resting: dict[str, float] = {}
        """Loop time before which a job is left alone."""
        self._refusals: dict[str, tuple[int, str]] = {}
        """How often in a row a job's patches were refused, and why."""
        self._open: set[str] = set()
        """Jobs whose last patch met another version, or whose outcome nobody knows."""

    def busy(self, uid: str) -> bool:
        """Return whether a patch of this job is under way."""
        return uid in self._tasks

    def stale(self, job: JobRecord) -> bool:
        """Return whether ``job`` is older than what our own last patch of it stored."""
        return job.resource_version < self._stored_version.get(job.uid, 0)

    def stale_pods(self, uid: str, pods: Iterable[PodRecord]) -> bool:
        """Return whether one of the gang's ``pods`` is older than what our own last write to it stored."""
        stored = self._stored_pods.get(uid)
        if not stored:
            return False
        behind = {pod.uid: stored[pod.uid] for pod in pods if pod.resource_version < stored.get(pod.uid, 0)}
        self._stored_pods[uid] = behind
        return bool(behind)

    def settled(self, uid: str) -> bool:
        """Return whether the last patch of this job is stored, or was refused in a way that would be repeated."""
        return uid not in self._open

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job that is gone."""
        self._stored_version.pop(uid, None)
        self._stored_pods.pop(uid, None)
        for table in (self._failures, self._resting, self._refusals):
            table.pop(uid, None)
        self._open.discard(uid)

    def refused(self, uid: str) -> str | None:
        """Return why every write of this job is refused, for so long that it is meant; None where that is not so."""
        times, why = self._refusals.get(uid, (0, ""))
        return why if times >= REFUSALS_MEANT else None

    def resting(self, uid: str) -> bool:
        """Return whether a job is to be left alone after its last failure."""
        return asyncio.get_running_loop().time() < self._resting.get(uid, 0.0)

    def retry_delay_seconds(self, uid: str) -> float:
        """Return how long to leave a job alone after its last failure."""
        failures = self._failures.get(uid, 0)
        return min(RETRY_MAX_SECONDS, RETRY_SECONDS * 2.0 ** min(failures - 1, 10)) if failures else 0.0

    def start(self, effect: Effect) -> None:
        """Carry out ``effect`` in the background. One at a time a job."""
        uid = effect.job.uid
        assert uid not in self._tasks, f"two effects on {effect.job.key} at once"
        task = asyncio.create_task(self._carry_out(effect), name=f"{effect.name} {effect.job.key}")
        self._tasks[uid] = task
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    async def drain(self) -> None:
        """Wait for everything under way."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def stop(self) -> None:
        """Abandon everything under way, and return when it has ended; whether each patch lands is unknown."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, effect: Effect) -> None:
        job = effect.job
        if effect.pods:
            outcomes = await asyncio.gather(*(self._write_pod(job.uid, write) for write in effect.pods))
            # One that is known to have failed tells less than one whose outcome nobody knows.
            failures = sorted((f for f in outcomes if f is not None), key=lambda f: not isinstance(f, Unavailable))
            failure = failures[0] if failures else None
        else:
            failure = await self._patch_job(effect)
        outcome = "stored" if failure is None else type(failure).__name__.lower()
        metrics.EFFECTS.labels(effect.name, outcome).inc()
        self._count(job.uid, failure)
        if isinstance(failure, (Conflict, Unavailable)):
            self._open.add(job.uid)
        else:
            self._open.discard(job.uid)
        if failure is not None and not isinstance(failure, (Conflict, NotFound)):
            log.warning("effect.failed", effect=effect.name, job=job.key, kind=job.kind, error=str(failure))
        self._tasks.pop(job.uid, None)
        self._on_done(effect, failure)

    async def _patch_job(self, effect: Effect) -> ApiError | None:
        job = effect.job
        path = object_path(self._kinds[job.kind].at(job.version), job.namespace, job.name)
        path = f"{path}/{effect.subresource}" if effect.subresource else path
        try:
            async with self._slots:
                raw = await self._api.request("PATCH", path, body=orjson.dumps(effect.patch), content_type=JSON_PATCH)
        except ApiError as error:
            return error
        self._stored_version[job.uid] = _version(raw)
        return None

    async def _write_pod(self, gang: str, write: PodWrite) -> ApiError | None:
        pod = write.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            async with self._slots:
                if write.patch is None:
                    only_this = {"uid": pod.uid, "resourceVersion": str(pod.resource_version)}
                    raw = await self._api.request("DELETE", path, body=orjson.dumps({"preconditions": only_this}))
                else:
                    body = orjson.dumps(write.patch)
                    raw = await self._api.request("PATCH", path, body=body, content_type=JSON_PATCH)
        except NotFound:
            return None
        except ApiError as error:
            return error
        self._stored_pods.setdefault(gang, {})[pod.uid] = _version(raw)
        return None

    def _count(self, uid: str, failure: ApiError | None) -> None:
        if isinstance(failure, (Forbidden, Invalid)):
            self._refusals[uid] = (self._refusals.get(uid, (0, ""))[0] + 1, str(failure))
        else:
            self._refusals.pop(uid, None)
        if failure is None or isinstance(failure, (Conflict, NotFound)):
            # Both only mean that our picture is old: the watch brings the new one.
            self._failures.pop(uid, None)
            self._resting.pop(uid, None)
        else:
            self._failures[uid] = self._failures.get(uid, 0) + (1 if isinstance(failure, Unavailable) else 3)
            # The timer that ends the rest may fire a hair before its time.
            self._resting[uid] = asyncio.get_running_loop().time() + 0.9 * self.retry_delay_seconds(uid)


def _version(raw: bytes) -> int:
    return int(orjson.loads(raw)["metadata"].get("resourceVersion") or 0)
