"""The demo as a person runs it, on its simulated cluster: to the end, and with Ctrl-C in the middle."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.own_cluster

ROOT = Path(__file__).parents[2]


def start_demo(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "webhook", "demo", *more],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "KUBECONFIG": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts programs in the background makes them ignore SIGINT; a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def processes_that_mention(text: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if text in command:
            found.append(command.replace("\0", " "))
    return found


def test_the_demo_plays_to_its_end_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start_demo(tmp_path)
    told, _ = demo.communicate(timeout=120)
    assert demo.returncode == 0, told
    assert "6 of 6 gangs finished" in told
    assert "waits: WaitingForQuota: asks for 8 nvidia.com/gpu" in told
    assert "Queue vision borrowed" in told
    assert not list(tmp_path.iterdir())
    assert not processes_that_mention(str(tmp_path))


def test_the_demo_of_a_fleet_plays_to_its_end(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, "--cluster", "fleet")
    told, _ = demo.communicate(timeout=120)
    assert demo.returncode == 0, told
    assert told.count("and nowhere else") == 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_interrupted_in_the_middle_leaves_nothing_behind(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory() as folder:
        demo = start_demo(Path(folder))
        assert demo.stdout is not None
        for line in demo.stdout:
            if "runs with all" in line:
                break
        assert processes_that_mention(folder)
        demo.send_signal(number)
        rest, _ = demo.communicate(timeout=20)
        assert demo.returncode == 130, rest
        assert "nothing is left behind" in rest
        deadline = time.monotonic() + 5
        while processes_that_mention(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not processes_that_mention(folder)
        assert not list(Path(folder).iterdir())
