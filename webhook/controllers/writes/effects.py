"""Writes to jobs and to pods behind our gates: the effects of decisions already written in the ledger.

Each is one conditional patch of a job, or conditional writes to some of its pods, carried out concurrently with others
and never repeated blindly: after any failure the next cycle looks at what is stored and derives the effect again
(ledger rules 3 and 6).
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from webhook import metrics
from webhook.controllers.gang_record import GangRecords, Writes
from webhook.controllers.writes.rehearsal import Rehearsal
from webhook.core.model.pods import PodRecord
from webhook.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.rest_paths import object_path
from webhook.jobs.reading.record import JobRecord
from webhook.kube.api import JSON_PATCH, METADATA, Api

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 30.0
REFUSALS_MEANT: Final = 4
"""So many refusals in a row are meant. With the waits between them that is 48 seconds: whatever was sent before the
first and never answered has arrived by then or never will."""

REBUILD: Final = "rebuild"
"""The name of what a rebuild writes on all that waits. It is no stop's: no entry says stopping yet."""

GONE: Final = sys.maxsize
"""The version of a pod that is known to be gone: whatever is read of it is older."""


class Denied(Forbidden):
    """A write was answered as if the job or pod were another, or gone, and it is there as read: somebody says no."""


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
    starts: bool = False
    """Pods come of it, which have to pass the webhook."""


class Effects:
    """Carries out effects and tells when a job may be looked at again."""

    def __init__(
        self,
        api: Api,
        kinds: Mapping[str, JobKind],
        gangs: GangRecords,
        in_flight_max: int,
        on_done: Callable[[Effect, ApiError | None], None],
    ) -> None:
        """``on_done`` is told each outcome; None means that the patch is stored."""
        self._api = api
        self._kinds = kinds
        self._slots = asyncio.Semaphore(in_flight_max)
        self._on_done = on_done
        self._gangs = gangs
        self._rehearsal = Rehearsal()
        self._tasks: set[asyncio.Task[None]] = set()

    def busy(self, uid: str) -> bool:
        """Return whether a patch of this job is under way."""
        return self._writes(uid).task is not None

    def stale(self, job: JobRecord) -> bool:
        """Return whether ``job`` is older than what our own last patch of it stored."""
        return job.resource_version < self._writes(job.uid).stored_version

    def stale_pods(self, uid: str, pods: Iterable[PodRecord]) -> bool:
        """Return whether one of the gang's ``pods`` is older than what our own last write to it stored."""
        writes = self._writes(uid)
        if not writes.stored_pods:
            return False
        stored = writes.stored_pods
        writes.stored_pods = {pod.uid: stored[pod.uid] for pod in pods if pod.resource_version < stored.get(pod.uid, 0)}
        return bool(writes.stored_pods)

    def settled(self, uid: str) -> bool:
        """Return whether the last patch of this job is stored, or was refused in a way that would be repeated."""
        return not self._writes(uid).open

    def refused(self, uid: str) -> str | None:
        """Return why every write of this job is refused, once that has happened often enough; None otherwise."""
        writes = self._writes(uid)
        return writes.why if writes.refusals >= REFUSALS_MEANT else None

    def given_up(self, job: JobRecord) -> str | None:
        """Return why every write of a job is refused, if that has happened often enough of the job as it is now."""
        return self.refused(job.uid) if self._writes(job.uid).denied_version in (0, job.resource_version) else None

    def why_open(self, uid: str) -> str:
        """Return what the last write of this job was answered, if it is not known to be stored or refused."""
        writes = self._writes(uid)
        return writes.why if writes.open else ""

    def resting(self, job: JobRecord) -> bool:
        """Return whether a job is to be left alone after its last failure."""
        writes = self._writes(job.uid)
        news = writes.denied_version not in (0, job.resource_version)
        return not news and asyncio.get_running_loop().time() < writes.rests_until

    def retry_delay_seconds(self, uid: str) -> float:
        """Return how long to leave a job alone after its last failure."""
        return _delay_seconds(self._writes(uid).failures)

    def start(self, effect: Effect) -> None:
        """Carry out ``effect`` in the background. One at a time a job."""
        uid = effect.job.uid
        writes = self._gangs.of(uid).writes
        assert writes.task is None, f"two effects on {effect.job.key} at once"
        task = asyncio.create_task(self._carry_out(effect, writes), name=f"{effect.name} {effect.job.key}")
        writes.task = task
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if writes.task is task:
                writes.task = None

        task.add_done_callback(ended)

    async def drain(self) -> None:
        """Wait for everything under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Abandon everything under way, and return when it has ended; whether each patch lands is unknown."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, effect: Effect, writes: Writes) -> None:
        job = effect.job
        if effect.pods:
            outcomes = await asyncio.gather(*(self._write_pod(write, writes) for write in effect.pods))
            # One that is known to have failed tells less than one whose outcome nobody knows.
            failures = sorted((f for f in outcomes if f is not None), key=lambda f: not isinstance(f, Unavailable))
            failure = failures[0] if failures else None
        else:
            failure = await self._patch_job(effect, writes)
        outcome = "stored" if failure is None else type(failure).__name__.lower()
        metrics.EFFECTS.labels(effect.name, outcome).inc()
        _count(writes, failure, 0 if effect.pods else job.resource_version)
        if failure is not None and not isinstance(failure, (Conflict, NotFound)):
            log.warning("effect.failed", effect=effect.name, job=job.key, kind=job.kind, error=str(failure))
        writes.task = None
        self._on_done(effect, failure)

    async def _patch_job(self, effect: Effect, writes: Writes) -> ApiError | None:
        job = effect.job
        kind = self._kinds[job.kind].at(job.version)
        path = object_path(kind, job.namespace, job.name)
        path = f"{path}/{effect.subresource}" if effect.subresource else path
        body = orjson.dumps(effect.patch)

        async def patch(query: Mapping[str, str] | None = None) -> bytes:
            return await self._api.request(
                "PATCH", path, query=query, body=body, content_type=JSON_PATCH, accept=METADATA
            )

        try:
            async with self._slots:
                if effect.starts:
                    await self._rehearsal.passed(lambda: patch({"dryRun": "All"}))
                raw = await patch()
        except (Conflict, NotFound) as error:
            again = writes.denied_version == job.resource_version
            stored = again and await self._stored_version(object_path(kind, job.namespace, job.name))
            return _denied(error) if again and stored == job.resource_version else error
        except ApiError as error:
            return error
        writes.stored_version = _version(raw)
        return None

    async def _stored_version(self, path: str) -> int | ApiError:
        """Return the version of what is stored at ``path``, by the API server's own word: the watch may have stopped.

        ``GONE`` where nothing is; the error where it cannot be read, which counts as one of the write.
        """
        try:
            return _version(await self._api.request("GET", path, accept=METADATA))
        except NotFound:
            return GONE
        except ApiError as error:
            return error

    async def _write_pod(self, write: PodWrite, writes: Writes) -> ApiError | None:
        pod = write.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            async with self._slots:
                if write.patch is None:
                    only_this = {"uid": pod.uid, "resourceVersion": str(pod.resource_version)}
                    raw = await self._api.request("DELETE", path, body=orjson.dumps({"preconditions": only_this}))
                else:
                    body = orjson.dumps(write.patch)
                    raw = await self._api.request("PATCH", path, body=body, content_type=JSON_PATCH, accept=METADATA)
        except (Conflict, NotFound) as error:
            # Both are rare. Whoever denies what we write may answer so too, for ever.
            stored = await self._stored_version(path)
            if isinstance(stored, ApiError):
                return stored
            if stored == pod.resource_version:
                return _denied(error)
            # It was written since it was read, or what was asked for has come about: until the watch says so too it
            # would be asked for again at once.
            writes.stored_pods[pod.uid] = stored
            return None if stored == GONE else error
        except ApiError as error:
            return error
        writes.stored_pods[pod.uid] = _version(raw)
        return None

    def _writes(self, uid: str) -> Writes:
        record = self._gangs.find(uid)
        return Writes() if record is None else record.writes


def _denied(error: ApiError) -> Denied:
    return Denied(error.status, error.reason, error.message)


def _count(writes: Writes, failure: ApiError | None, version: int) -> None:
    """Note what became of a write of ``version`` of a job, 0 for its pods, and how long to leave the job alone."""
    writes.open = isinstance(failure, (Conflict, Denied, Unavailable))
    refused = isinstance(failure, (Forbidden, Invalid))
    writes.refusals, writes.why = writes.refusals + 1 if refused else 0, "" if failure is None else str(failure)
    behind, before = isinstance(failure, (Conflict, NotFound)), writes.denied_version
    writes.denied_version = version if behind or isinstance(failure, Denied) else 0
    if failure is None or (behind and not (version and version == before)):
        # It only means that our picture is old: the watch brings the new one. If it does not, somebody else says so.
        writes.failures, writes.rests_until = 0, 0.0
    else:
        writes.failures += 3 if not (behind or isinstance(failure, Unavailable)) else 1
        # The timer that ends the rest may fire a hair before its time.
        delay_seconds = _delay_seconds(writes.failures)
        writes.rests_until = asyncio.get_running_loop().time() + 0.9 * delay_seconds


def _delay_seconds(failures: int) -> float:
    return min(RETRY_MAX_SECONDS, RETRY_SECONDS * 2.0 ** min(failures - 1, 10)) if failures else 0.0


def _version(raw: bytes) -> int:
    return int(orjson.loads(raw)["metadata"].get("resourceVersion") or 0)
