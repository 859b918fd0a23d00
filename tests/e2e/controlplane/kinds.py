"""Job kinds of more projects: their real definitions, for tests that need no controller.

They come from pinned Go modules; only the modules' own files are fetched, never what they depend on. Where the release
that is wanted has no such files, they are made of its types by the generator that its project uses.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.e2e.controlplane import modules
from tests.e2e.controlplane.binaries import PINS, BuildError, find, go, made_once


@dataclass(frozen=True, slots=True)
class Definitions:
    """Where a project's CustomResourceDefinitions lie: module, version, hash of its files, and the files."""

    module: str
    version: str
    checksum: str
    files: str


@dataclass(frozen=True, slots=True)
class Types:
    """The types of which a project's CustomResourceDefinitions are made, and the files of those that are wanted."""

    packages: tuple[str, ...]
    """Of a folder of ``binaries`` that has the project's name, and pins them and the generator."""
    files: str


PROJECTS: Final[dict[str, Definitions | Types]] = {
    "ray": Definitions(
        "github.com/ray-project/kuberay/ray-operator",
        "v1.4.2",
        "h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg=",
        "config/crd/bases/*.yaml",
    ),
    "spark": Definitions(
        "github.com/kubeflow/spark-operator/v2",
        "v2.4.0",
        "h1:Bo5rz5dlhqYEa7e/TLtUEVXDMNRotnVaQ4VLCyeLeOc=",
        "config/crd/bases/*.yaml",
    ),
    "appwrapper": Definitions(
        "github.com/project-codeflare/appwrapper",
        "v1.1.2",
        "h1:iEEyYGSDXOxMXc/AZEvTDDXy1DNi+cWUQ93uM6XAXJc=",
        "config/crd/bases/*.yaml",
    ),
    "argo": Definitions(
        "github.com/argoproj/argo-workflows/v3",
        "v3.7.1",
        "h1:8xynztGc+tUuUq/SB9dHGp5EDI6UkSmuJeQPhHQrbek=",
        "manifests/base/crds/minimal/*.yaml",  # the full ones are larger than etcd takes
    ),
    "trainer": Definitions(
        "github.com/kubeflow/trainer/v2",
        "v2.2.0",  # the first with spec.runtimePatches
        "h1:whChZckEtycLo1UKH/M0hiNaCUozbLvf9JrgmMv+TAg=",
        "manifests/base/crds/*.yaml",
    ),
    "volcano-queues": Definitions(
        "volcano.sh/volcano",
        "v1.10.0",
        "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0=",
        "config/crd/volcano/bases/*.volcano.sh_queues.yaml",  # kubectl finds two kinds called "queues" then
    ),
    "volcano": Types(
        (
            "volcano.sh/apis/pkg/apis/batch/v1alpha1",
            "volcano.sh/apis/pkg/apis/scheduling/v1beta1",
            "volcano.sh/apis/pkg/apis/topology/v1alpha1",
        ),
        "*.volcano.sh_[hjp]*.yaml",  # hypernodes, jobs and podgroups
    ),
    "scheduler-plugins": Definitions(
        "sigs.k8s.io/scheduler-plugins",
        "v0.31.8",
        "h1:Ie2EFRnkE9T2tBjxwypww7hJJyPRIwrXJNZeNxjP6QY=",
        "config/crd/bases/*.yaml",
    ),
}


GENERATED: Final = "crd:maxDescLen=0,generateEmbeddedObjectMeta=true"
"""Without descriptions: with them a kind that has pods in it is larger than etcd takes."""


def definitions(project: str) -> Iterator[dict[str, Any]]:
    """Give the project's CustomResourceDefinitions; raises BuildError when they cannot be had."""
    found = PROJECTS[project]
    folder = _folder(found) if isinstance(found, Definitions) else _generated(project, found.packages)
    for path in sorted(folder.glob(found.files)):
        yield from modules.definitions(path.read_text())


@cache
def _folder(pin: Definitions) -> Path:
    """Fetch a module into Go's module cache and return its folder, checked against the pinned hash."""
    told = json.loads(go("kwok", "mod", "download", "-json", f"{pin.module}@{pin.version}"))
    if told["Sum"] != pin.checksum:
        raise BuildError(f"{pin.module}@{pin.version} has hash {told['Sum']}, pinned is {pin.checksum}")
    return Path(told["Dir"])


@cache
def _generated(project: str, packages: tuple[str, ...]) -> Path:
    """Return a folder of the definitions of all kinds in some packages, made as Volcano makes its own."""
    command = [find("controller-gen"), GENERATED, *(f"paths={package}" for package in packages)]

    def make(folder: Path) -> None:
        to_folder = [*command, f"output:crd:dir={folder}"]
        done = subprocess.run(to_folder, cwd=PINS / project, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{project}'s definitions cannot be made of its types:\n{done.stderr.strip()}")

    return made_once(project, "definitions", make)
