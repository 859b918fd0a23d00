"""Tutti's webhook and reconciler as processes of their own: ``python -m webhook ... --config``, as in a pod.

They never outlive the demo: they are ended when it ends, and the kernel ends them when it is killed.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from webhook.errors import TuttiError

READY_SECONDS: Final = 40.0
GRACE_SECONDS: Final = 2.0
_PR_SET_PDEATHSIG: Final = 1
_PRCTL: Final = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class ProcessFailed(TuttiError):
    """One of the processes did not become ready, or ended; carries the end of its log."""


class Processes:
    """The processes of one demo, with their logs in ``directory``. Use it as an async context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> "Processes":
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._running.values():
            _send(process, signal.SIGTERM)
        for process in self._running.values():
            try:
                await asyncio.wait_for(process.wait(), GRACE_SECONDS)
            except TimeoutError:
                _send(process, signal.SIGKILL)
                await process.wait()

    async def start(self, role: str, config: dict[str, Any]) -> None:
        """Start ``webhook`` or ``reconciler`` with this configuration."""
        path = self._directory / f"{role}.yaml"
        path.write_text(yaml.safe_dump(config))
        parent = os.getpid()
        with self._log(role).open("wb") as log:
            self._running[role] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "webhook", role, "--config", str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is ours to answer: a group of their own keeps the terminal's signal from them.
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )

    async def wait_ready(self, role: str, health_port: int) -> None:
        """Wait until a process says that it is ready. Raises ProcessFailed."""
        try:
            async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
                while not await _ready(session, health_port):
                    self.check()
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise ProcessFailed(f"the {role} is not ready after {READY_SECONDS:.0f} s\n{self._tail(role)}") from error

    def check(self) -> None:
        """Raise ProcessFailed when a process has ended."""
        for role, process in self._running.items():
            if process.returncode is not None:
                raise ProcessFailed(f"the {role} ended with status {process.returncode}\n{self._tail(role)}")

    def _log(self, role: str) -> Path:
        return self._directory / f"{role}.log"

    def _tail(self, role: str) -> str:
        return "\n".join(self._log(role).read_text(errors="replace").splitlines()[-15:])


def free_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _ready(session: aiohttp.ClientSession, health_port: int) -> bool:
    try:
        async with session.get(f"http://127.0.0.1:{health_port}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)


def _die_with(parent: int) -> None:
    """Make the kernel kill this child when its parent dies; runs between fork and exec."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
