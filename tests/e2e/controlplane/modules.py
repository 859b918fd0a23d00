"""Manifests that come with the pinned Go modules: found in the module cache, never copied into the repository."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.e2e.controlplane.binaries import go

JOBSET: Final = ("jobset", "sigs.k8s.io/jobset")
TRAINING_OPERATOR: Final = ("training-operator", "github.com/kubeflow/training-operator")
CERT_MANAGER: Final = ("cert-manager", "github.com/cert-manager/cert-manager")
KWOK: Final = ("kwok", "sigs.k8s.io/kwok")


@cache
def folder(project: str, module: str) -> Path:
    """Return a pinned module's folder in the module cache, downloading it when it is not there.

    Raises BuildError without Go, or when the module cannot be had.
    """
    ask = ("list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module)
    found = go(project, *ask).strip()
    if not found or not Path(found).is_dir():
        go(project, "mod", "download", module)
        found = go(project, *ask).strip()
    return Path(found)


def jobset_installation() -> Path:
    """Return the kustomization that installs the JobSet controller."""
    return folder(*JOBSET) / "config" / "default"


def training_operator_installation() -> Path:
    """Return the kustomization that installs the training operator."""
    return folder(*TRAINING_OPERATOR) / "manifests" / "overlays" / "standalone"


def cert_manager_crds() -> Iterator[str]:
    """Give cert-manager's CRDs as YAML, without the Helm template lines that their files carry."""
    for path in sorted((folder(*CERT_MANAGER) / "deploy" / "crds").glob("crd-*.yaml")):
        yield "\n".join(line for line in path.read_text().splitlines() if "{{" not in line)


def kwok_stage(name: str) -> str:
    """Return one Stage document that KWOK ships, such as ``pod/fast/pod-ready``."""
    return (folder(*KWOK) / "kustomize" / "stage" / f"{name}.yaml").read_text()


def documents(text: str) -> Iterator[tuple[str, str]]:
    """Split YAML text into (kind, document), without parsing: a CRD has thousands of lines."""
    for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
        kind = re.search(r"^kind:\s*(\S+)", document, re.MULTILINE)
        if kind:
            yield kind[1], document


def served_at(definition: str) -> str:
    """Return the API path that a CustomResourceDefinition adds, in the last version that its text names."""
    name = re.search(r"^  name: ['\"]?(\w+)\.([\w.-]+)", definition, re.MULTILINE)
    versions = re.findall(r"^ {2,4}(?:- |  )name: (v\d\w*)$", definition, re.MULTILINE)
    if not name or not versions:
        raise ValueError(f"not a CustomResourceDefinition: {definition[:200]!r}")
    return f"/apis/{name[2]}/{versions[-1]}/{name[1]}"
