"""What ``tutti status`` finds."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    well: bool
    text: str
