"""Where commands print: as wide as the terminal, and on lines of their own length where a program reads them."""

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml
from rich.console import Console

_WIDE: Final = 10_000
"""Characters; more than any line has."""


def console() -> Console:
    """Return a console that folds lines for people at a terminal and never in a pipe or a file, so that grep finds
    whole sentences there.
    """
    out = Console()
    return out if out.is_terminal else Console(width=_WIDE)


def write(out: Console, document: Mapping[str, Any], output: str) -> None:
    """Write a document as ``json`` or ``yaml``."""
    if output == "json":
        out.file.write(json.dumps(document, indent=2) + "\n")
    else:
        out.file.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))
