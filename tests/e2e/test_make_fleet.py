"""``make fleet`` and ``make down`` as a person runs them, beside whatever else runs of the same checkout."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane.binaries import find, say
from tests.e2e.controlplane.fleet import MEMBERS, NAMESPACE, set_up
from tests.e2e.controlplane.install import ROOT
from tests.e2e.kubectl import wait_until

pytestmark = pytest.mark.own_cluster
Make = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What is known of the fleet in the background."""
    return tmp_path / "run"


@pytest.fixture
def make(run: Path, tmp_path: Path) -> Iterator[Make]:
    """Make a target in the environment that runs the tests, which is there."""
    stamp = tmp_path / "installed"
    stamp.touch()

    def made(target: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", target, f"RUN={sys.executable}", f"STAMP={stamp}"]
        environment = os.environ | {"TUTTI_RUN": str(run)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
        )

    yield made
    made("down")


def processes_of(run: Path) -> list[str]:
    """Return the commands that run for a fleet: each has the environment of the one that started it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TUTTI_RUN={run}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_what_make_fleet_prints_leads_to_a_fleet_that_runs_a_job_until_make_down(run: Path, make: Make) -> None:
    made = make("fleet")
    assert made.returncode == 0, made.stderr
    *_, exports = made.stdout.splitlines()

    def typed(command: str) -> str:
        path = f"{find('kubectl', say).parent}{os.pathsep}{os.environ['PATH']}"
        words = ["bash", "-euc", f"{exports}; {command}"]
        return subprocess.check_output(words, cwd=ROOT, env=os.environ | {"PATH": path}, text=True)

    for member in ("hub", *MEMBERS):
        (printed,) = (line for line in made.stderr.splitlines() if line.startswith(f"{member}: "))
        assert typed(f"{printed.removeprefix(f'{member}: ')} get namespace {NAMESPACE} -o name").strip()
    assert typed(set_up()[-1]).strip() == "job.batch/first created"
    pods = f"get pods -n {NAMESPACE} -l job-name=first -o name"

    def where() -> dict[str, int]:
        found = {each: typed(f"kubectl --kubeconfig $CLUSTERS/{each} {pods}") for each in MEMBERS}
        return {member: len(names.split()) for member, names in found.items() if names}

    wait_until(lambda: [*where().values()] == [2], 120, what="it runs whole in one member")
    typed(f"kubectl wait --for=condition=Complete --timeout=120s -n {NAMESPACE} job/first")
    assert processes_of(run)
    down = make("down")
    assert (down.returncode, down.stderr.strip()) == (0, "stopped")
    assert processes_of(run) == []
    assert sorted(path.name for path in run.iterdir()) == ["lock", "supervisor.log"]
    again = make("down")
    assert (again.returncode, again.stderr.strip()) == (0, "no cluster is running")
