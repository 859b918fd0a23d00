"""Kubernetes events on jobs: queued with the reason, admitted, evicted.

Events are for people and may be dropped: they are written one by one, slower than decisions when there are many, and a
job that was admitted before its "Queued" event was due never gets one. Those about Tutti itself wait until they are
answered.

They are written as core/v1, since events.k8s.io/v1 takes no ``lastTimestamp``, by which people sort them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import orjson
import structlog

from webhook import metrics
from webhook.controllers.reporting.event_queue import EventQueue
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.errors import ApiError, Unavailable
from webhook.kube.api import METADATA, Api
from webhook.wire.times import micro_time_text

log = structlog.get_logger(__name__)

BACKLOG_MAX: Final = 2000
NOTE_CHARACTERS_MAX: Final = 1000
"""The API server refuses longer notes (1 kB)."""
AGAIN_SECONDS: Final = 10.0
"""How long after a try that was not answered an event about Tutti itself is written again (client-go's pause)."""
NONE: Final[Mapping[str, str]] = MappingProxyType({})
_COMPONENT: Final = "tutti.dev/reconciler"


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


THE_LEDGER: Final = Regarding("v1", "ConfigMap", names.SYSTEM_NAMESPACE, names.LEDGER_NAME, "")
"""What events about Tutti itself are about."""


@dataclass(frozen=True, slots=True)
class _Event:
    regarding: Regarding
    reason: str
    note: str
    warning: bool
    at_seconds: float
    annotations: Mapping[str, str]
    serial: int
    """Makes its name its own: what is written again after a lost answer is the same event."""


class EventRecorder:
    """Writes events at a bounded rate; of the namespace that has most the newest win when there are too many."""

    def __init__(self, api: Api, identity: str, now: Callable[[], float], per_second: float) -> None:
        self._api = api
        self._identity = identity
        self._now = now
        self._interval_seconds = 1 / per_second if per_second > 0 else None
        self._backlog = EventQueue[_Event](BACKLOG_MAX)
        self._wake = asyncio.Event()
        self._serial = 0

    def note(
        self,
        regarding: Regarding,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        annotations: Mapping[str, str] = NONE,
    ) -> None:
        """Queue one event."""
        if self._interval_seconds is None:
            return
        self._serial += 1
        self._queue(_Event(regarding, reason, note, warning, self._now(), annotations, self._serial))

    def _queue(self, event: _Event) -> None:
        if not self._backlog.put(event.regarding.namespace, event):
            metrics.EVENTS_DROPPED.inc()
        self._wake.set()

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            await self._wake.wait()
            if not self._backlog:
                self._wake.clear()
                continue
            event = self._backlog.take()
            try:
                await self._write(event)
            except ApiError as error:
                # An event about an object of a namespace that is going away has nowhere to go.
                log.info("event.not_written", reason=event.reason, error=str(error))
                if isinstance(error, Unavailable) and event.regarding.namespace == names.SYSTEM_NAMESPACE:
                    # That a lease was lost is news above all while the API server does not answer.
                    asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._queue, event)
            assert self._interval_seconds is not None
            await asyncio.sleep(self._interval_seconds)

    async def _write(self, event: _Event) -> None:
        regarding = event.regarding
        seen = time_text(int(event.at_seconds))
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:200]}.{int(event.at_seconds * 1e6):x}{event.serial:x}",
                "namespace": regarding.namespace,
                **({"annotations": dict(event.annotations)} if event.annotations else {}),
            },
            "eventTime": micro_time_text(event.at_seconds),
            "firstTimestamp": seen,
            "lastTimestamp": seen,
            "count": 1,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._identity[:128],
            "action": event.reason,
            "reason": event.reason,
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
            "message": event.note[:NOTE_CHARACTERS_MAX],
            "type": "Warning" if event.warning else "Normal",
        }
        path = f"/api/v1/namespaces/{regarding.namespace}/events"
        await self._api.request("POST", path, body=orjson.dumps(body), accept=METADATA)
