"""Reads what a kustomization lists, without kustomize: patches are looked at, not applied."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
Document = dict[str, Any]


@cache
def read(path: Path) -> tuple[Document, ...]:
    """Return the objects of one file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(document for document in yaml.load_all(path.read_text(), loader) if document)


def kustomizations() -> list[Path]:
    """Return every directory that can be built."""
    return sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))


def files_of(directory: Path) -> Iterator[Path]:
    """Yield the files that a kustomization lists, directly or through others."""
    (kustomization,) = read(directory / "kustomization.yaml")
    for entry in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = (directory / entry).resolve()
        if path.is_dir():
            yield from files_of(path)
        else:
            yield path


def documents_of(directory: str) -> list[Document]:
    """Return the objects of a kustomization below manifests/, before its patches."""
    return [document for path in files_of(MANIFESTS / directory) for document in read(path)]


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    """Return the objects of some kinds."""
    return [document for document in documents if document["kind"] in kinds]


def named(documents: list[Document], kind: str, name: str) -> Document:
    """Return the one object of that kind and name."""
    (found,) = [document for document in of_kind(documents, kind) if document["metadata"]["name"] == name]
    return found
