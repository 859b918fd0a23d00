"""What a member answers, read within bounds: a member is not trusted, and a hub talks to all of them on one loop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from webhook.core.notation.counted import counted
from webhook.errors import TooLarge
from webhook.kube.list_watch import PAGE_SIZE
from webhook.wire.nesting import LEVELS_MAX, WRAPPING_LEVELS, shallow_with_pauses
from webhook.wire.watch import TooDeep, read_page

OBJECT_BYTES_MAX: Final = 2 << 20
"""Of one object; etcd takes no more than 1.5 MiB unless it is told otherwise."""
OBJECTS_MAX: Final = 200_000
"""Of one list: ten times what a member holds where there are many."""


class Bounds(NamedTuple):
    """Within which a list is read."""

    seconds: float
    mebibytes: int


SHORT: Final = Bounds(10.0, 128)
"""Some gang waits for it, which could go to another member. A full ledger has half of these bytes."""
LONG: Final = Bounds(60.0, 1024)
"""All objects of a kind, for which nobody waits while a hub runs; of each no more is kept than is used."""
ONE: Final[Mapping[str, str]] = {"limit": "1"}
"""Asks for one page, so that no more is read than fits one; where one object is asked for it changes nothing else."""

BATCH: Final = 100
"""Objects read before others get their turn."""

Ask = Callable[[Mapping[str, str]], Awaitable[bytes]]


async def object_of(raw: bytes) -> Any:
    """Return what one object says, cut where it is nested too deeply. Raises ValueError for what no object can be."""
    if len(raw) > OBJECT_BYTES_MAX:
        raise ValueError(f"an object of {len(raw)} bytes, at most {OBJECT_BYTES_MAX} are read")
    return orjson.loads(await shallow_with_pauses(raw))


async def objects_of(
    ask: Ask, query: Mapping[str, str], bounds: Bounds = SHORT
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the objects of a list, page by page, each read alone. Raises ValueError for what no list can be."""
    limit, token, seen, size, now = PAGE_SIZE, "", 0, 0, asyncio.get_running_loop().time
    began = now()
    while True:
        if now() - began > bounds.seconds:
            raise ValueError(f"a list that has not ended after {bounds.seconds:.0f} s")
        try:
            body = await ask({**query, "limit": str(limit)} | ({"continue": token} if token else {}))
        except TooLarge:
            if limit == 1:
                raise ValueError("an object is longer than a page may be") from None
            limit //= 2
            continue
        if (size := size + len(body)) > bounds.mebibytes << 20:
            raise ValueError(f"a list of more than {bounds.mebibytes} MiB")
        try:
            page = read_page(body)
        except TooDeep:
            page = read_page(await shallow_with_pauses(body, LEVELS_MAX + WRAPPING_LEVELS))
        for number, raw in enumerate(page.objects(), start=1):
            if number % BATCH == 0:
                await asyncio.sleep(0)
            found = await object_of(raw)
            if not isinstance(found, dict):
                raise ValueError("a list of something other than objects")
            yield found
        seen, token = seen + len(page.items or ()), page.metadata.continue_token
        if not token:
            return
        if seen > OBJECTS_MAX or not page.items:
            raise ValueError(f"a list that does not end with {counted(seen, 'object')}")
