"""Writes Kubernetes objects as YAML that people can read and kustomize understands; and the command around it."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from webhook import config
from webhook.errors import WrongInput
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS, with_custom

PART_OF: Final = {"app.kubernetes.io/part-of": "tutti"}


class Dumper(yaml.SafeDumper):
    """Writes multi-line text as blocks, lists of words on one line, nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat equal values in full: readers know no anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        super().increase_indent(flow, False)


def as_line(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    """Represent a list of words on one line."""
    flat = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


def as_block(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Represent text with line ends as a literal block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(list, as_line)
Dumper.add_representer(str, as_block)


def text(documents: Iterable[dict[str, Any]], source: str) -> str:
    """Return the documents, labelled, as YAML; the first line names the module they come from."""
    head = f"# Written by python -m {source}, where the reasons stand; change it there.\n"
    return head + yaml.dump_all(map(_labelled, documents), Dumper=Dumper, sort_keys=False, width=110)


def _labelled(document: dict[str, Any]) -> dict[str, Any]:
    """Mark an object as ours, in whatever way it is applied: who breaks the glass picks bindings by this label."""
    metadata = document["metadata"]
    return document | {"metadata": metadata | {"labels": metadata.get("labels", {}) | PART_OF}}


def run(
    documents: Callable[[Sequence[JobKind]], Iterable[dict[str, Any]]], target: Path, source: str, about: str | None
) -> int:
    """Write ``documents`` of the shipped kinds to ``target``; or check it, or print those of an operator's kinds too.

    Returns the exit status: 1 when a check finds the file out of date, 2 for a configuration that does not compile.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    parser.add_argument("--config", type=Path, help="print all of them with the job kinds of this configuration file")
    given = parser.parse_args()
    if given.config is not None:
        try:
            kinds = with_custom(config.load(given.config).kinds)
        except WrongInput as error:
            sys.stderr.write(f"{error}\n")
            return 2
        sys.stdout.write(text(documents(tuple(kinds.values())), source))
        return 0
    written = text(documents(tuple(KINDS.values())), source)
    if given.check:
        return 0 if target.read_text() == written else 1
    target.write_text(written)
    return 0
