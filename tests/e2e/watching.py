"""A record of every change of some objects, for tests that must hold at each instant and not only when they look."""

import json
import subprocess
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.e2e.kubectl import Kubectl, wait_until


@dataclass(frozen=True, slots=True)
class Change:
    """One watch event: when it arrived (monotonic seconds), ADDED, MODIFIED or DELETED, and the object then."""

    at_seconds: float
    kind: str
    item: dict[str, Any]


class Watch:
    """Records a namespace's changes of one resource while the ``with`` block runs."""

    def __init__(self, kubectl: Kubectl, resource: str = "pods", group: str = "/api/v1") -> None:
        self.namespace = kubectl.namespace
        self._kubectl = kubectl
        self._path = f"{group}/namespaces/{kubectl.namespace}/{resource}"
        self._changes: list[Change] = []
        self._error = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def changes(self) -> list[Change]:
        """Everything seen so far, in order; raises AssertionError when the watch broke, for then events are missing."""
        assert not self._error, f"the watch of {self._path} ended: {self._error}"
        return list(self._changes)

    def __enter__(self) -> Self:
        version = json.loads(self._kubectl("get", "--raw", f"{self._path}?limit=1"))["metadata"]["resourceVersion"]
        address = f"{self._path}?watch=1&resourceVersion={version}&timeoutSeconds=3600"
        command = [str(self._kubectl.program), f"--kubeconfig={self._kubectl.kubeconfig}", "get", "--raw", address]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        process.kill()
        process.wait()

    def live(self) -> list[tuple[float, dict[str, dict[str, Any]]]]:
        """Return, for the instant after each change, the objects that existed then by name."""
        existing: dict[str, dict[str, Any]] = {}
        states = []
        for change in self.changes:
            name = change.item["metadata"]["name"]
            if change.kind == "DELETED":
                existing.pop(name, None)
            else:
                existing[name] = change.item
            states.append((change.at_seconds, dict(existing)))
        return states

    def settle(self, quiet_seconds: float = 1, timeout_seconds: float = 30) -> None:
        """Wait until nothing has changed for a while."""

        def quiet() -> bool:
            return not self.changes or time.monotonic() - self.changes[-1].at_seconds > quiet_seconds

        wait_until(quiet, timeout_seconds, what=f"{self._path} is quiet")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            event = json.loads(line)
            self._changes.append(Change(time.monotonic(), event["type"], event["object"]))
        if self._process is process:
            self._error = process.stderr.read() or "the server closed it"
