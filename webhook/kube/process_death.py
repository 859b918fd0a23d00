"""Learns that a process is dead from the kernel below it: its connections end, and new ones are refused.

A lost node, a parted network and a process that hangs refuse nothing. A refusal alone tells nothing either: what stands
between may refuse whatever it likes. So a process is dead only if it was connected to before.
"""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

CONNECT_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 1.0
"""Between one attempt to connect and the next."""
ENDED_EARLY_SECONDS: Final = 1.0
"""After a connection that its server ended sooner than that the next one is made only after a pause."""
KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Options of the socket, where the system has them: seconds, seconds, and how often. A connection whose other side has
forgotten it is found out so soon: its end may have been lost on the way.
"""


async def death_of(address: str) -> None:
    """Return once the process that listens at ``address``, as ``host:port`` with an IP address, is dead.

    It never returns where nothing tells that, nor where the address is none.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _is_ip(host) or not port.isascii() or not port.isdecimal():
        # A name may lead to several processes, and looking it up may take longer than we wait.
        await asyncio.Event().wait()
    connected = False
    while True:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            if connected:
                return
        except (OSError, ValueError, OverflowError):
            # A node that is lost answers nothing.
            pass
        else:
            connected = True
            _keep_alive(writer)
            try:
                await _end_of(reader)
            finally:
                writer.close()
            if asyncio.get_running_loop().time() - began >= ENDED_EARLY_SECONDS:
                continue
        await asyncio.sleep(AGAIN_SECONDS)


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def _end_of(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1024):
            pass
