"""Bounds made small, so that twelve jobs meet what thousands of gangs would."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from webhook.controllers.gangs import stops
from webhook.controllers.ledger import stored
from webhook.controllers.loop import dirty_set, engine_feed, reconciler
from webhook.core.ledger import pages
from webhook.core.nodes import capacity, turns

BOUNDS: Final[tuple[tuple[Any, str, int | None], ...]] = (
    (pages, "INDEX_BYTES", None),
    (pages, "PAGE_BYTES", None),
    (stored, "READ_AT_ONCE", 2),
    (dirty_set, "TAKEN_MAX", 3),
    (engine_feed, "SETTLED_MAX", 2),
    (stops, "STOPPED_MAX", 2),
    (reconciler, "LOOKED_AT_MAX", 3),
)
"""Each with what it becomes; None for the size of a page."""
SHAPES: Final[tuple[tuple[Any, str, int], ...]] = ((turns, "ROUND_SHAPES", 2), (capacity, "SHAPES_MAX", 4))
"""The same where jobs have many shapes."""


@contextmanager
def scaled(page_bytes: int, *, shapes: bool = False) -> Iterator[None]:
    """Let an object of the ledger hold so much, and all that is done a few at a time be done two or three at a time.

    With 0 that is as it is. With ``shapes`` the nodes are looked at for two shapes in a round, and four are kept.
    """
    small = [(module, name, page_bytes if size is None else size) for module, name, size in BOUNDS if page_bytes]
    small += SHAPES if shapes else ()
    usual = [getattr(module, name) for module, name, _ in small]
    try:
        for module, name, size in small:
            setattr(module, name, size)
        yield
    finally:
        for (module, name, _), value in zip(small, usual, strict=True):
            setattr(module, name, value)
