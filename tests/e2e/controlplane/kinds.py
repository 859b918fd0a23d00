"""Job kinds of more projects: their real definitions, for tests that need no controller.

They come from pinned Go modules; only the modules' own files are fetched, never what they depend on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.e2e.controlplane import modules
from tests.e2e.controlplane.binaries import BuildError, go


@dataclass(frozen=True, slots=True)
class Definitions:
    """Where a project's CustomResourceDefinitions lie: module, version, hash of its files, and the files."""

    module: str
    version: str
    checksum: str
    files: str


PROJECTS: Final = {
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
    "volcano": Definitions(
        "volcano.sh/volcano",
        "v1.10.0",
        "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0=",
        "config/crd/volcano/bases/*.volcano.sh_[jp]o*.yaml",  # jobs and podgroups
    ),
    "scheduler-plugins": Definitions(
        "sigs.k8s.io/scheduler-plugins",
        "v0.31.8",
        "h1:Ie2EFRnkE9T2tBjxwypww7hJJyPRIwrXJNZeNxjP6QY=",
        "config/crd/bases/*.yaml",
    ),
}


def definitions(project: str) -> Iterator[str]:
    """Give the project's CustomResourceDefinitions as YAML; raises BuildError when they cannot be had."""
    found = PROJECTS[project]
    for path in sorted(_folder(found).glob(found.files)):
        for kind, document in modules.documents(path.read_text()):
            if kind == "CustomResourceDefinition":
                yield document


def served(project: str) -> Iterator[str]:
    """Give the API paths that the project's definitions add."""
    return (modules.served_at(document) for document in definitions(project))


@cache
def _folder(pin: Definitions) -> Path:
    """Fetch a module into Go's module cache and return its folder, checked against the pinned hash."""
    told = json.loads(go("kwok", "mod", "download", "-json", f"{pin.module}@{pin.version}"))
    if told["Sum"] != pin.checksum:
        raise BuildError(f"{pin.module}@{pin.version} has hash {told['Sum']}, pinned is {pin.checksum}")
    return Path(told["Dir"])
