"""Clusters of ours leave nothing behind, and two of them do not meet."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane.install import ROOT
from tests.e2e.kubectl import wait_until

pytestmark = pytest.mark.own_cluster

RUN = """
import signal, sys
from tests.e2e.controlplane.cluster import Cluster, Shape
signal.signal(signal.SIGTERM, signal.default_int_handler)
with Cluster(Shape(nodes=1, operators=False)) as cluster:
    print(cluster.directory, *(component.pid for component in cluster.components.values()), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run() -> Iterator[subprocess.Popen[str]]:
    """A cluster in a process of its own."""
    command = [sys.executable, "-c", RUN]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def started(process: subprocess.Popen[str]) -> tuple[Path, list[int]]:
    """Wait for a cluster; return its folder and its components' process ids."""
    assert process.stdout is not None
    folder, *pids = process.stdout.readline().split()
    return Path(folder), [int(pid) for pid in pids]


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_sigterm_takes_a_cluster_down_with_its_folder(run: subprocess.Popen[str]) -> None:
    folder, pids = started(run)
    assert all(alive(pid) for pid in pids)
    run.send_signal(signal.SIGTERM)
    run.wait(30)
    assert not [pid for pid in pids if alive(pid)]
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_no_process_survives_a_run_that_is_killed(run: subprocess.Popen[str]) -> None:
    folder, pids = started(run)
    run.kill()
    run.wait(10)
    wait_until(lambda: not [pid for pid in pids if alive(pid)], timeout_seconds=10, what="its components are gone")
    shutil.rmtree(folder, ignore_errors=True)  # the next run does it, and may do so right now
