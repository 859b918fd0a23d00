"""Lists, as documents or as one table, made and sent piece by piece: what is sent already takes no memory.

A list shows what stood at its version, however long it takes: documents are never changed, only replaced, and those
to be shown are picked in the same turn of the event loop that gives out the version.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

import orjson

from webhook.visibility.documents.watch_cache import Document, Key, WatchCache
from webhook.visibility.http.group import API_VERSION, RESOURCES
from webhook.visibility.http.pace import Pace
from webhook.visibility.http.selecting import Selection
from webhook.visibility.http.tables import row, table

PIECE_BYTES: Final = 64 * 1024
"""Sent at once."""
_END: Final = b"]}"


async def pieces(
    cache: WatchCache, pace: Pace, chosen: Selection, now: Callable[[], float], include: str | None
) -> AsyncIterator[bytes]:
    """Yield a list; ``include`` is the includeObject of a table, None for documents."""
    # Picking and sorting them is work too.
    await pace.turn()
    version, at = cache.advance(), now()
    found = cache.documents(chosen.resource, chosen.namespace)
    piece, between = _head(chosen.resource, version, as_table=include is not None), b""
    async for stretch in pace.stretches(found, chosen.terms):
        for item in _items(chosen, stretch, at, include):
            piece += between + item
            between = b","
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + _END + b"\n")


def _items(
    chosen: Selection, stretch: Iterable[tuple[Key, Document]], now: float, include: str | None
) -> Iterator[bytes]:
    for _, document in stretch:
        parsed = document.parse() if include is not None or not chosen.everything else None
        if parsed is not None and not chosen.matches(parsed):
            continue
        if parsed is not None and include is not None:
            yield orjson.dumps(row(chosen.resource, parsed, now, include))
        else:
            yield document.render()


def _head(resource: str, version: int, *, as_table: bool) -> bytearray:
    if as_table:
        return bytearray(orjson.dumps(table(resource, [], version)).removesuffix(_END))
    head = f'{{"kind":"{RESOURCES[resource].kind}List","apiVersion":"{API_VERSION}",'
    return bytearray((head + f'"metadata":{{"resourceVersion":"{version}"}},"items":[').encode())
