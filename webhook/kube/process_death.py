"""Learns that a process is dead from the kernel below it: its connections end, and new ones are refused.

A lost node, a parted network and a process that hangs refuse nothing. A refusal alone tells nothing either: what stands
between may refuse whatever it likes. So a process is dead only if it was connected to before.
"""

import asyncio
from contextlib import suppress
from typing import Final

CONNECT_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 1.0
"""Between one attempt to connect and the next."""
ENDED_EARLY_SECONDS: Final = 1.0
"""A connection that its server ends sooner than that is made anew only after a pause."""


async def death_of(address: str) -> None:
    """Return once the process that listens at ``address``, as ``host:port``, is dead.

    It never returns where nothing tells that, nor where the address cannot be read.
    """
    host, _, port = address.rpartition(":")
    connected = False
    while True:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            if connected:
                return
        except (OSError, ValueError, OverflowError):
            # A node that is lost answers nothing.
            pass
        else:
            connected = True
            try:
                await _end_of(reader)
            finally:
                writer.close()
            if asyncio.get_running_loop().time() - began >= ENDED_EARLY_SECONDS:
                continue
        await asyncio.sleep(AGAIN_SECONDS)


async def _end_of(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1024):
            pass
