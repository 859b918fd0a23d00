"""The manifests that the demo applies: inside an installed package, or where they are kept in a checkout."""

from pathlib import Path
from typing import Any, Final

import yaml

PACKAGED: Final = Path(__file__).parent / "packaged"
"""Where the build puts copies of TEAMS; see pyproject.toml."""
CHECKOUT: Final = Path(__file__).parents[3]


def teams(name: str) -> list[dict[str, Any]]:
    """Return the documents of ``examples/teams/<name>.yaml``."""
    return _read(f"teams/{name}.yaml", f"examples/teams/{name}.yaml")


def _read(packaged: str, kept: str) -> list[dict[str, Any]]:
    path = CHECKOUT / kept
    if not path.exists():
        path = PACKAGED / packaged
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(path.read_text(), loader) if document]
