"""Writes to jobs: the effects of decisions already written in the ledger.

Each is one conditional patch, carried out concurrently with others, and never repeated blindly: after any failure the
next cycle looks at what is stored and derives the effect anew (ledger rules 3 and 6).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from webhook import metrics
from webhook.errors import ApiError, Conflict, NotFound, Unavailable
from webhook.jobs.kinds import JobKind
from webhook.jobs.record import JobRecord
from webhook.jobs.rest_paths import object_path
from webhook.kube.api import JSON_PATCH, Api

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One patch of one job."""

    name: str
    job: JobRecord
    patch: Sequence[Mapping[str, Any]]


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
        self._failures: dict[str, int] = {}
        self._open: set[str] = set()
        """Jobs whose last patch met another version, or whose outcome nobody knows."""

    def busy(self, uid: str) -> bool:
        """Return whether a patch of this job is under way."""
        return uid in self._tasks

    def stale(self, job: JobRecord) -> bool:
        """Return whether ``job`` is older than what our own last patch of it stored."""
        return job.resource_version < self._stored_version.get(job.uid, 0)

    def settled(self, uid: str) -> bool:
        """Return whether the last patch of this job is stored, or was refused in a way that would be repeated."""
        return uid not in self._open

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job that is gone."""
        self._stored_version.pop(uid, None)
        self._failures.pop(uid, None)
        self._open.discard(uid)

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

    def cancel(self) -> None:
        """Abandon everything under way; whether each patch lands is unknown."""
        for task in self._tasks.values():
            task.cancel()

    async def _carry_out(self, effect: Effect) -> None:
        job, failure = effect.job, None
        async with self._slots:
            try:
                raw = await self._api.request(
                    "PATCH",
                    object_path(self._kinds[job.kind], job.namespace, job.name),
                    body=orjson.dumps(effect.patch),
                    content_type=JSON_PATCH,
                )
            except ApiError as error:
                failure = error
            else:
                self._stored_version[job.uid] = int(orjson.loads(raw)["metadata"]["resourceVersion"])
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

    def _count(self, uid: str, failure: ApiError | None) -> None:
        if failure is None or isinstance(failure, (Conflict, NotFound)):
            # Both only mean that our picture is old: the watch brings the new one.
            self._failures.pop(uid, None)
        else:
            self._failures[uid] = self._failures.get(uid, 0) + (1 if isinstance(failure, Unavailable) else 3)
