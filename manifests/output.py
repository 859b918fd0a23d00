"""Writes Kubernetes objects as YAML that people can read and kustomize understands."""

from collections.abc import Iterable
from typing import Any

import yaml


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
    """Return the documents as YAML; the first line names the module they come from."""
    head = f"# Written by python -m {source}, where the reasons stand; change it there.\n"
    return head + yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=110)
