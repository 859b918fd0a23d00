"""Find or build the programs of the control plane, and helm.

Each folder of ``tests/e2e/binaries`` is a Go module of its own that pins one project; what it builds lies in the user's
cache under a name that carries the hash of the pins, so another pin is another folder and nothing is ever stale.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).resolve().parent.parent / "binaries"

Report = Callable[[str], None]


class BuildError(Exception):
    """A program is missing and cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """One executable: its file name, the pinned project it belongs to, and its Go package."""

    name: str
    project: str
    package: str
    stamped: bool = False
    """Built with Kubernetes's version in it: clients cannot parse the server's version otherwise."""


PROGRAMS: Final = {
    program.name: program
    for program in (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", stamped=True),
        Program("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", stamped=True),
        Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", stamped=True),
        Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", stamped=True),
        Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
        Program("jobset", "jobset", "sigs.k8s.io/jobset"),
        Program(
            "training-operator", "training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1"
        ),
        Program("cert-manager-controller", "cert-manager", "github.com/cert-manager/cert-manager/cmd/controller"),
        Program("cert-manager-cainjector", "cert-manager", "github.com/cert-manager/cert-manager/cmd/cainjector"),
        Program("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
        Program("controller-gen", "volcano", "sigs.k8s.io/controller-tools/cmd/controller-gen"),
    )
}


def say(message: str) -> None:
    """Show progress on standard error, so that standard output stays usable in scripts."""
    print(message, file=sys.stderr, flush=True)


def cache_root() -> Path:
    """Return the user's cache folder for everything of ours."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tutti"


def find(name: str, report: Report = say) -> Path:
    """Return the path of a program, building it if neither ``$KUBEBUILDER_ASSETS`` nor the cache has it.

    Raises BuildError when it must be built and cannot be.
    """
    program = PROGRAMS[name]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and os.access(Path(assets) / name, os.X_OK):
        return Path(assets) / name
    built = _folder(program.project) / name
    if not built.exists():
        _build(program, built, report)
    return built


def made_once(project: str, name: str, make: Callable[[Path], None], report: Report = say) -> Path:
    """Return a folder of what ``make`` writes into one by a project's pins; it is made where the cache has none."""
    target = _folder(project) / name
    with _locked(target.parent, report):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as partial:
                made = Path(partial) / name
                made.mkdir()
                make(made)
                made.rename(target)
    return target


def find_all(names: tuple[str, ...], report: Report = say) -> dict[str, Path]:
    """Return the path of every named program; see :func:`find`."""
    return {name: find(name, report) for name in names}


@cache
def release() -> tuple[int, int]:
    """Return the release of Kubernetes that is run: that of the pins, or of what ``$KUBEBUILDER_ASSETS`` holds."""
    printed = subprocess.run([find("kube-apiserver"), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)\.", printed)
    if found is None:
        raise BuildError(f"{find('kube-apiserver')} --version prints {printed!r}")
    return int(found[1]), int(found[2])


def go(project: str, *arguments: str) -> str:
    """Run a go command inside one pinned project and return what it prints; raises BuildError with its stderr."""
    try:
        done = subprocess.run(["go", *arguments], cwd=PINS / project, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(
            f"Go {_wanted_go(project)} or newer is needed to build the control plane, and there is no `go` on PATH: "
            "install it from https://go.dev/dl/, or set KUBEBUILDER_ASSETS"
        ) from None
    if done.returncode:
        raise BuildError(f"`go {' '.join(arguments)}` failed in {PINS / project}:\n{done.stderr.strip()}")
    return done.stdout


def _folder(project: str) -> Path:
    """Return where a project's programs lie: the name carries the pins' hash."""
    pins = (PINS / project / "go.mod").read_bytes() + (PINS / project / "go.sum").read_bytes()
    return cache_root() / "binaries" / f"{project}-{hashlib.sha256(pins).hexdigest()[:12]}"


def _build(program: Program, target: Path, report: Report) -> None:
    """Build one program under a lock; a second run that wants it too waits and finds it there."""
    _check_go(program.project)
    with _locked(target.parent, report):
        if target.exists():
            return
        report(f"building {program.name} ({program.package}), once for these pins ...")
        began = time.monotonic()
        partial = target.with_name(f".{target.name}.partial")
        flags = ["-mod=readonly", "-trimpath", "-ldflags", _linker_flags(program)]
        go(program.project, "build", *flags, "-o", str(partial), program.package)
        partial.replace(target)
        report(f"built {program.name} in {time.monotonic() - began:.0f} s")


def _linker_flags(program: Program) -> str:
    """Strip symbols; stamp Kubernetes's programs with the pinned version."""
    os.environ.setdefault("CGO_ENABLED", "0")
    if not program.stamped:
        return "-s -w"
    found = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", (PINS / program.project / "go.mod").read_text())
    if found is None:
        raise BuildError(f"{PINS / program.project / 'go.mod'} does not require k8s.io/kubernetes")
    stamp = {"gitVersion": f"v{found[1]}", "gitMajor": found[2], "gitMinor": found[3]}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())])


def _check_go(project: str) -> None:
    """Raise BuildError when Go is too old; run inside the project, so that Go may fetch a newer toolchain itself."""
    wanted = _wanted_go(project)
    found = re.search(r"go(\d+)\.(\d+)", go(project, "env", "GOVERSION"))
    if found and (int(found[1]), int(found[2])) < tuple(int(part) for part in wanted.split(".")[:2]):
        raise BuildError(f"Go {found[0][2:]} is too old to build the control plane: Go {wanted} or newer is needed")


def _wanted_go(project: str) -> str:
    """Return the Go version that the project's go.mod asks for."""
    found = re.search(r"^go (\S+)$", (PINS / project / "go.mod").read_text(), re.MULTILINE)
    return found[1] if found else "1.21"


@contextmanager
def _locked(folder: Path, report: Report) -> Iterator[None]:
    """Hold the folder's build lock; the kernel frees it however we end."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another run builds {folder.name}; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build everything that is missing, and say where it all is."""
    for name in PROGRAMS:
        print(f"{name:26} {find(name)}")


if __name__ == "__main__":
    main()
