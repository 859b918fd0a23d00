"""Sends events on one job of a hub; nothing depends on them."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from webhook.core.fleet.dispatch import Dispatch
from webhook.errors import ApiError
from webhook.fleet.jobs.events import bound
from webhook.fleet.jobs.fleet import Fleet
from webhook.jobs.kinds.kind import JobKind

Event = Callable[[float], dict[str, Any]]
"""Of the time."""


class Telling:
    """What one job is told."""

    def __init__(self, fleet: Fleet, kind: JobKind, namespace: str) -> None:
        self._fleet = fleet
        self._kind = kind
        self._path = f"/api/v1/namespaces/{namespace}/events"
        self._told_hour = -1.0
        """In which it was told what keeps it from going on."""

    async def where(self, job: Mapping[str, Any], dispatch: Dispatch) -> None:
        """Say where it runs."""
        with contextlib.suppress(ApiError):
            await self._send(bound(self._kind, job, dispatch, self._fleet.clock.now()))

    @property
    def due(self) -> bool:
        """Whether nothing was told in this hour."""
        return self._told_hour != self._fleet.clock.now() // 3600

    async def hourly(self, event: Event) -> None:
        """Say what keeps it from going on, once an hour."""
        if self.due:
            now = self._fleet.clock.now()
            with contextlib.suppress(ApiError):
                await self._send(event(now))
                self._told_hour = now // 3600

    async def _send(self, event: dict[str, Any]) -> None:
        await self._fleet.api.request("POST", self._path, body=orjson.dumps(event))
