"""The reconciler as its process runs it, over a connection to a simulated API server: its watchdog and its clock."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import Clock
from webhook.config import Config, Listen
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.http import HttpFrontEnd
from webhook.laboratory.simulated.requests.identity import ADMIN
from webhook.processes import reconciler as reconciling
from webhook.processes.reconciler import address_of

PATIENCE_SECONDS = 30.0


class Noted:
    """A watchdog that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.fed = asyncio.Event()

    def start(self) -> None:
        self.told.append("start")

    def feed(self, deadline: float) -> None:
        assert deadline > asyncio.get_running_loop().time()
        self.told.append("feed")
        self.fed.set()

    def disarm(self) -> None:
        self.told.append("disarm")


def kubeconfig(directory: Path, url: str) -> Path:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "it", "user": {"token": "token"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def process(directory: Path) -> AsyncIterator[None]:
    """Run one beside a cluster; its end is asked for and awaited."""
    stop = asyncio.Event()
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        front = HttpFrontEnd(cluster.router, {"token": ADMIN})
        await front.start()
        listen = {"host": "127.0.0.1", "webhook_port": 0, "visibility_port": 0, "health_port": 0}
        config = Config(kubeconfig=kubeconfig(directory, front.url), cert_dir=directory, listen=listen, identity="one")
        running = asyncio.create_task(reconciling.serve_reconciler(config, stop))
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
            stop.set()
            await running
        await front.close()


async def test_a_leader_feeds_its_watchdog_and_disarms_it_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog = Noted()
    monkeypatch.setattr(reconciling, "Watchdog", lambda: watchdog)
    async with process(tmp_path):
        await watchdog.fed.wait()
    assert watchdog.told[0] == "start"
    assert watchdog.told[-1] == "disarm"


async def test_a_leader_counts_on_when_the_clock_of_its_machine_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the time of every gang with a run-time limit would be used up at once."""
    watchdog, made, wall = Noted(), reconciler, time.time
    clocks: list[Clock] = []

    def noted(*parts: Any, clock: Clock, **more: Any) -> ReconcilerParts:
        clocks.append(clock)
        return made(*parts, clock=clock, **more)

    monkeypatch.setattr(reconciling, "Watchdog", lambda: watchdog)
    monkeypatch.setattr(reconciling, "reconciler", noted)
    async with process(tmp_path):
        await watchdog.fed.wait()
        (clock,) = clocks
        monkeypatch.setattr(time, "time", lambda: wall() + 86_400)
        assert clock.now() < wall() + 3600


@pytest.mark.parametrize(
    ("host", "port", "pod_ip", "address"),
    [
        ("0.0.0.0", 8080, "10.0.0.7", "10.0.0.7:8080"),
        ("::", 8080, "fd00::7", "[fd00::7]:8080"),
        ("", 8080, "10.0.0.7", "10.0.0.7:8080"),
        ("127.0.0.1", 8080, "10.0.0.7", "127.0.0.1:8080"),
        ("0.0.0.0", 8080, "", ""),
        ("0.0.0.0", 0, "10.0.0.7", ""),
    ],
)
def test_a_leader_says_where_others_learn_that_it_is_dead(host: str, port: int, pod_ip: str, address: str) -> None:
    assert address_of(Listen(host=host, health_port=port), pod_ip) == address


def test_a_process_that_dies_in_native_code_says_where() -> None:
    """Such as in a library's: what its log says last is all that whoever is on call has of it."""
    dying = (
        "import asyncio, os, signal\n"
        "from webhook.processes.running import run\n"
        "async def serve(config, stop):\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "run(serve, None)\n"
    )
    ended = subprocess.run([sys.executable, "-c", dying], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.stderr
    assert "in serve" in ended.stderr
