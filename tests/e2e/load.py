"""Requests that go on while something is broken or replaced, and what became of them."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.e2e.controlplane.api import Api, ApiError
from tests.e2e.controlplane.cluster import Cluster


def api_of(cluster: Cluster, user: str) -> Api:
    """Return raw requests as a user, who has only the rights that RBAC gives."""
    keys, name = cluster.directory / "users", user.replace(":", "_")
    cluster.authority.client(user).write(keys, name)
    return Api(cluster.server, cluster.directory / "keys" / "ca.crt", keys / f"{name}.crt", keys / f"{name}.key")


class Load:
    """Posts objects one after the other from a thread while the ``with`` block runs."""

    def __init__(self, api: Api, path: str, make: Callable[[int], dict[str, Any]], pause_seconds: float = 0.05) -> None:
        """``make`` returns the object of a number; with ``?dryRun=All`` in the path nothing is stored."""
        self._api = api
        self._path = path
        self._make = make
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.stored: list[dict[str, Any]] = []
        """What the API server answered, in order."""
        self.failures: list[str] = []
        self.slowest_seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(40)

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            began = time.monotonic()
            try:
                self.stored.append(self._api.post(self._path, self._make(len(self.stored))))
            except (ApiError, OSError) as error:
                self.failures.append(str(error))
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
