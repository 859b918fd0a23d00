"""Bounds made small, so that twelve jobs meet what thousands of gangs would."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from webhook.controllers.gangs import stops
from webhook.controllers.ledger import stored
from webhook.controllers.loop import dirty_set, engine_feed, reconciler
from webhook.core.ledger import pages

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


@contextmanager
def scaled(page_bytes: int) -> Iterator[None]:
    """Let an object of the ledger hold so much, and all that is done a few at a time be done two or three at a time.

    With 0 everything is as it is.
    """
    usual = [getattr(module, name) for module, name, _ in BOUNDS]
    try:
        for module, name, small in BOUNDS if page_bytes else ():
            setattr(module, name, page_bytes if small is None else small)
        yield
    finally:
        for (module, name, _), value in zip(BOUNDS, usual, strict=True):
            setattr(module, name, value)
