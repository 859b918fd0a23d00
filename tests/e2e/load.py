"""Requests that go on while something is broken or replaced, and what became of them."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.e2e.controlplane.api import Api, ApiError
from tests.e2e.controlplane.cluster import Cluster
from webhook import errors
from webhook.kube.connecting import connected
from webhook.kube.http import HttpApi

LISTERS: Final = 100
"""More than a small priority level has under way and queued for one user."""
AFTER_REFUSAL_SECONDS: Final = 0.1


def api_of(cluster: Cluster, user: str) -> Api:
    """Return raw requests as a user, who has only the rights that RBAC gives."""
    keys, name = cluster.directory / "users", user.replace(":", "_")
    cluster.authority.client(user).write(keys, name)
    return Api.with_keys(
        cluster.server, cluster.directory / "keys" / "ca.crt", keys / f"{name}.crt", keys / f"{name}.key"
    )


class _Beside:
    """Does something from a thread while the ``with`` block runs."""

    def __init__(self, run: Callable[[], object]) -> None:
        """``run`` ends once ``_stop`` is set."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(40)


class Load(_Beside):
    """Posts objects one after the other from a thread while the ``with`` block runs."""

    def __init__(self, api: Api, path: str, make: Callable[[int], dict[str, Any]], pause_seconds: float = 0.05) -> None:
        """``make`` returns the object of a number; with ``?dryRun=All`` in the path nothing is stored."""
        self._api = api
        self._path = path
        self._make = make
        self._pause_seconds = pause_seconds
        super().__init__(self._run)
        self.stored: list[dict[str, Any]] = []
        """What the API server answered, in order."""
        self.failures: list[str] = []
        self.slowest_seconds = 0.0

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            began = time.monotonic()
            try:
                self.stored.append(self._api.post(self._path, self._make(len(self.stored))))
            except (ApiError, OSError) as error:
                self.failures.append(str(error))
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)


class Lists(_Beside):
    """Lists one collection over and over, :data:`LISTERS` at a time, from a thread while the ``with`` block runs."""

    def __init__(self, kubeconfig: Path, path: str) -> None:
        self._kubeconfig = kubeconfig
        self._path = path
        super().__init__(lambda: asyncio.run(self._run()))
        self.answers: Counter[str] = Counter()
        """How often by HTTP status."""

    async def _run(self) -> None:
        async with connected(self._kubeconfig, "many lists") as api, asyncio.TaskGroup() as listers:
            for _ in range(LISTERS):
                listers.create_task(self._list(api))

    async def _list(self, api: HttpApi) -> None:
        while not self._stop.is_set():
            try:
                await api.request("GET", self._path)
                self.answers["200"] += 1
            except errors.ApiError as error:
                self.answers[str(error.status)] += 1
                await asyncio.sleep(AFTER_REFUSAL_SECONDS)
