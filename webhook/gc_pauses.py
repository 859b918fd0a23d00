"""Keeps Python's garbage collector from stopping the event loop.

Left alone, it looks at every container that the process keeps whenever their number has grown by a quarter: half a
second at 50,000 running gangs, in which nothing is answered. What we keep is records without cycles, which go when
nothing refers to them. So what has survived is set aside (frozen) and never looked at again, each look costs what is
new, and looks are rare. A cycle among what was set aside would stay for good: all of it is looked at now and then.
"""

import asyncio
import gc
from typing import Final

YOUNG: Final = 10_000
"""So many containers more than before are looked at. Python's own 700 makes a look a few watch events."""
MIDDLE: Final = 5
NEVER: Final = 1_000_000_000
EVERY_SECONDS: Final = 1.0
WHOLE_SECONDS: Final = 6 * 3600.0


def tune() -> None:
    """Leave it to ``run`` when to look at what is old."""
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def run() -> None:
    """Set aside what has survived, as it comes to be, until cancelled."""
    loop = asyncio.get_running_loop()
    whole_at = loop.time() + WHOLE_SECONDS
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        if loop.time() >= whole_at:
            whole_at += WHOLE_SECONDS
            gc.unfreeze()
        elif not grown():
            continue
        settle()


def grown() -> bool:
    """Return whether YOUNG * MIDDLE containers were made, less those that went, since the last look at what is old."""
    return gc.get_count()[2] > 0


def settle() -> None:
    """Look at what is not set aside yet, and set aside what has survived."""
    gc.collect()
    gc.freeze()
