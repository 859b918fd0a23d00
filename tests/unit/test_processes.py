"""The reconciler as its process runs it, over a connection to a simulated API server: what keeps the watchdog quiet."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from webhook import assembly
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.http import HttpFrontEnd
from webhook.laboratory.simulated.requests.identity import ADMIN

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


async def test_a_leader_feeds_its_watchdog_and_disarms_it_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog, stop = Noted(), asyncio.Event()
    monkeypatch.setattr(assembly, "Watchdog", lambda: watchdog)
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        front = HttpFrontEnd(cluster.router, {"token": ADMIN})
        await front.start()
        listen = {"host": "127.0.0.1", "webhook_port": 0, "visibility_port": 0, "health_port": 0}
        config = Config(kubeconfig=kubeconfig(tmp_path, front.url), cert_dir=tmp_path, listen=listen, identity="one")
        process = asyncio.create_task(assembly.serve_reconciler(config, stop))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await watchdog.fed.wait()
            stop.set()
            await process
        await front.close()
    assert watchdog.told[0] == "start"
    assert watchdog.told[-1] == "disarm"
