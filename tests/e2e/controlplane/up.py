"""``make up``, ``make fleet``, ``make down``: a cluster, or three, that stay, run by a supervisor in the background.

``up`` prints ``export KUBECONFIG=...`` as its last line, of a fleet with ``CLUSTERS=...``; ``up`` again replaces
what runs of the same checkout. The supervisor's pid is recorded with its start time, so that ``down`` never signals a
stranger that got the same pid.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.e2e.controlplane import kubeconfig
from tests.e2e.controlplane.binaries import BuildError, cache_root, find, say
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.fleet import HUB, FleetClusters
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.controlplane.process import ComponentError

CHECKOUT: Final = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
RUN: Final = Path(os.environ.get("TUTTI_RUN") or cache_root() / "run" / CHECKOUT)
"""What is known about the cluster in the background: one a checkout; set TUTTI_RUN to keep several."""
STATE: Final = RUN / "supervisor.json"
LOG: Final = RUN / "supervisor.log"
KUBECONFIG: Final = RUN / "kubeconfig"
CLUSTERS: Final = RUN / "clusters"
"""A kubeconfig of each cluster of a fleet, named as the cluster."""
LOOK_SECONDS: Final = 2


class UpError(Exception):
    """The cluster did not come up; the message is for the person who asked."""


def up(arguments: argparse.Namespace) -> None:
    """Start a cluster in the background, in place of the one that runs, and say how to reach it."""
    with _alone():
        if _stop_recorded():
            say("stopped the cluster that was running")
        supervisor = _spawn(arguments)
        try:
            _follow(supervisor)
        except BaseException:
            supervisor.terminate()
            supervisor.wait(30)
            raise
    if shutil.which("kubectl") is None:
        say(f"you have no kubectl: the one that was built is in {find('kubectl', say).parent}")
    say(f"logs: {_state()['directory']}/logs; stop it with `make down`")
    for each in sorted(CLUSTERS.iterdir()) if CLUSTERS.exists() else ():
        say(f"{each.name}: kubectl --kubeconfig {each}")
    print(_exports(), flush=True)


def _exports() -> str:
    """Return what a shell has to know of what runs, in the words of the pages."""
    return f"export KUBECONFIG={KUBECONFIG}" + (f" CLUSTERS={CLUSTERS}" if CLUSTERS.exists() else "")


def down(_: argparse.Namespace) -> None:
    """Stop the cluster that runs in the background."""
    with _alone():
        say("stopped" if _stop_recorded() else "no cluster is running")


def status(_: argparse.Namespace) -> None:
    """Say whether a cluster runs, and where."""
    state = _state()
    if state and _is_ours(state):
        say(f"running (pid {state['pid']}, {state['directory']})")
        print(_exports())
    else:
        say("no cluster is running")


def supervise(arguments: argparse.Namespace) -> None:
    """Run a cluster until SIGTERM: what ``up`` leaves in the background."""
    signal.signal(signal.SIGTERM, _interrupt)
    own = {"pid": os.getpid(), "started": _start_time(os.getpid()), "ready": False}
    kubeconfig.write_private(STATE, json.dumps(own))
    try:
        with _started(arguments) as clusters:
            kubeconfig.write_private(KUBECONFIG, clusters[-1].kubeconfig.read_text())
            folders = [str(cluster.directory) for cluster in clusters]
            ready = own | {"ready": True, "directory": folders[-1], "directories": folders}
            kubeconfig.write_private(STATE, json.dumps(ready))
            _watch(clusters)
    except KeyboardInterrupt:
        say("stopping")
    except (ComponentError, BuildError) as error:
        say(str(error))
        sys.exit(1)
    finally:
        _forget()


@contextmanager
def _started(arguments: argparse.Namespace) -> Iterator[list[Cluster]]:
    """Yield what was asked for; the last cluster is the one that KUBECONFIG leads to."""
    if arguments.fleet:
        with FleetClusters(training=True) as fleet:
            for name, cluster in fleet.clusters.items():
                kubeconfig.write_private(CLUSTERS / name, cluster.kubeconfig.read_text())
            yield sorted(fleet.clusters.values(), key=lambda each: each is fleet.clusters[HUB])
        return
    with Cluster(Shape(nodes=arguments.nodes, gpus_per_node=arguments.gpus)) as cluster:
        if arguments.cert_manager:
            cluster.start_cert_manager()
        if arguments.tutti:
            for replica in Installation(cluster).install().replicas:
                say(f"{replica.name}: metrics at {replica.health}/metrics")
        yield [cluster]


def _watch(clusters: Iterable[Cluster]) -> None:
    """Wait for the signal that ends us; note in the log which component ended meanwhile."""
    ended: set[tuple[str, str]] = set()
    while True:
        time.sleep(LOOK_SECONDS)
        for cluster in clusters:
            for component in cluster.components.values():
                which = (cluster.server, component.name)
                if not component.running and which not in ended:
                    ended.add(which)
                    say(str(component.failure("ended by itself")))


def _forget() -> None:
    """Remove what says that something runs and how to reach it."""
    STATE.unlink(missing_ok=True)
    KUBECONFIG.unlink(missing_ok=True)
    shutil.rmtree(CLUSTERS, ignore_errors=True)


def _spawn(arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own, so that it outlives this terminal."""
    RUN.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.e2e.controlplane.up", "supervise", *arguments.passed_on]
    with LOG.open("wb") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _follow(supervisor: subprocess.Popen[bytes]) -> None:
    """Show the supervisor's progress until the cluster is ready; raises UpError when it ends before."""
    with LOG.open() as log:
        while True:
            ended = supervisor.poll() is not None
            for line in log:
                say(line.rstrip())
            if ended:
                raise UpError(f"the cluster did not start; see {LOG}")
            state = _state()
            if state.get("ready") and state["pid"] == supervisor.pid:
                return
            time.sleep(0.1)


def _stop_recorded() -> bool:
    """Stop the recorded supervisor and what it left; returns whether one was running."""
    state = _state()
    running = _is_ours(state)
    if running:
        os.kill(state["pid"], signal.SIGTERM)
        deadline = time.monotonic() + 30
        while _is_ours(state) and time.monotonic() < deadline:
            time.sleep(0.1)
        if _is_ours(state):
            os.kill(state["pid"], signal.SIGKILL)  # the kernel ends its components with it
    for directory in state.get("directories", ()):
        shutil.rmtree(directory, ignore_errors=True)
    _forget()
    return running


def _state() -> dict[str, Any]:
    """Return what the last supervisor recorded, or nothing."""
    try:
        found: dict[str, Any] = json.loads(STATE.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found


def _is_ours(state: dict[str, Any]) -> bool:
    """Whether the recorded supervisor still runs: same pid and same start time."""
    return bool(state) and _start_time(state["pid"]) == state["started"] != ""


def _start_time(pid: int) -> str:
    """Return when a process started, as text to compare; nothing when there is no such process, or only its zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return "" if fields[0] == "Z" else fields[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _alone() -> Iterator[None]:
    """Let one ``up`` or ``down`` act at a time."""
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parse(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "supervise"])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs per node")
    parser.add_argument("--fleet", action="store_true", help="start a hub and two members")
    parser.add_argument("--no-tutti", dest="tutti", action="store_false", help="leave Tutti out")
    parser.add_argument("--cert-manager", action="store_true", help="run cert-manager too")
    arguments = parser.parse_args(given)
    arguments.passed_on = [word for word in given if word != arguments.command]
    return arguments


def main() -> None:
    """Run one command; errors are for a person, without a traceback."""
    arguments = _parse(sys.argv[1:])
    commands = {"up": up, "down": down, "status": status, "supervise": supervise}
    try:
        commands[arguments.command](arguments)
    except UpError as error:
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted; nothing is left running")
        sys.exit(130)


if __name__ == "__main__":
    main()
