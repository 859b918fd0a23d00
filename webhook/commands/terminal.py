"""Which cluster the commands read, and where they print.

As wide as the terminal, and on lines of their own length where a program reads them.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from webhook.errors import Unavailable
from webhook.kube.api import Api

_WIDE: Final = 10_000
"""Characters; more than any line has."""


def cluster(kubeconfig: Path | None, user_agent: str = "tutti-cli") -> AbstractAsyncContextManager[Api]:
    """Return a connection to the cluster of ``kubeconfig``, else of the environment; it closes with its block."""
    from webhook.kube.connecting import connected  # noqa: PLC0415 - takes more than a second

    return connected(kubeconfig, user_agent)


def unanswered(error: Unavailable) -> str:
    """Return what to tell of an API server that gave no answer."""
    return f"{error.message}; check the context, --kubeconfig and the way to the cluster"


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
