"""Manifests that come with the pinned Go modules: found in the module cache, never copied into the repository."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.controlplane.binaries import go

DEFINITION: Final = "CustomResourceDefinition"

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


def cert_manager_crds() -> Iterator[dict[str, Any]]:
    """Give cert-manager's CRDs, without the Helm template lines that their files carry."""
    for path in sorted((folder(*CERT_MANAGER) / "deploy" / "crds").glob("crd-*.yaml")):
        yield from definitions("\n".join(line for line in path.read_text().splitlines() if "{{" not in line))


def kwok_stage(name: str) -> str:
    """Return one Stage document that KWOK ships, such as ``pod/fast/pod-ready``."""
    return (folder(*KWOK) / "kustomize" / "stage" / f"{name}.yaml").read_text()


def definitions(text: str) -> Iterator[dict[str, Any]]:
    """Give the CustomResourceDefinitions of some YAML without their descriptions, which cost the API server seconds."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return (bare(found) for found in yaml.load_all(text, loader) if found and found["kind"] == DEFINITION)


def bare(schema: Any) -> Any:
    """Return a definition, or a part of it, without descriptions."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # A property that is called so is a schema, which is no text.
    return {key: bare(each) for key, each in schema.items() if key != "description" or not isinstance(each, str)}


def served_at(definition: dict[str, Any]) -> str:
    """Return the API path that a CustomResourceDefinition adds, in the last version that it has."""
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"
