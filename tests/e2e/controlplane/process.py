"""Processes that never outlive us, and waits that say what went wrong."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PRCTL: Final = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
GO_COLLECTS_LESS: Final = {"GOGC": "400"}
"""Kubernetes' programs take an eighth less of a core, for some hundred MiB more each."""


class ComponentError(Exception):
    """A component did not start, did not become ready, or ended; the message carries the tail of its log."""


class Component:
    """One program of the cluster, with its log file; can be stopped, killed, frozen and started again."""

    def __init__(
        self, name: str, command: Sequence[str | Path], logs: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = logs / f"{name}.log"
        self._environment = {**GO_COLLECTS_LESS, **os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Component":
        """Start the program in a process group of its own; it dies with us whatever happens to us.

        Call it from a thread that lives as long as the program should: the kernel counts that thread as the parent.
        """
        if self.running:
            raise ComponentError(f"{self.name} runs already")
        parent = os.getpid()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509 - one system call, resolved before the fork
            )
        return self

    @property
    def running(self) -> bool:
        """Whether the process is alive (a frozen one is)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id; raises ComponentError before the first start."""
        if self._process is None:
            raise ComponentError(f"{self.name} was never started")
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is still alive."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process group at once, with SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL, 10)

    def stop(self, grace_seconds: float = 10) -> None:
        """Ask the process to end, then kill what is left of its group."""
        if self.running:
            os.kill(self.pid, signal.SIGCONT)
            self._end(signal.SIGTERM, grace_seconds)
        if self.running:
            self.kill()

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def failure(self, problem: str) -> ComponentError:
        """Return an error that says what happened and what the component said last."""
        code = self._process.poll() if self._process else None
        state = "" if code is None else f" (it ended with code {code})"
        return ComponentError(f"{self.name}: {problem}{state}\n--- last lines of {self.log}\n{self.tail()}")

    def _end(self, number: signal.Signals, timeout_seconds: float) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        # The child leads its own group, so the group's id is its pid: nothing else can be hit.
        os.killpg(self._process.pid, number)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            if number == signal.SIGKILL:
                raise self.failure("does not end") from None


def wait_ready(
    component: Component, what: str, ready: Callable[[], bool], timeout_seconds: float = 60, poll_seconds: float = 0.05
) -> None:
    """Wait until ``ready()``; raises ComponentError when the component ends or the time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        if not component.running:
            raise component.failure(f"ended before {what}")
        if time.monotonic() > deadline:
            raise component.failure(f"{what}: not within {timeout_seconds:.0f} s")
        time.sleep(poll_seconds)


def _die_with(parent: int) -> None:
    """Make the kernel kill this child when its parent dies; runs between fork and exec."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
