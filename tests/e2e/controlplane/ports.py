"""Free ports that nobody else takes before the program that wants them has bound them."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

FIRST: Final = 18_000
"""Below Linux's ephemeral range (32768 up): no outgoing connection can take a port between our check and the bind."""
LAST: Final = 29_999


class Ports:
    """Ports of one run, each held by a file lock that all runs on this machine respect."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"tutti-ports-{os.getuid()}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._locks: list[IO[str]] = []

    def take(self) -> int:
        """Return a port that is free now and ours until :meth:`release`; raises RuntimeError if there is none."""
        for _ in range(1000):
            port = random.randint(FIRST, LAST)
            lock = (self._folder / str(port)).open("w")
            if _locked(lock) and _bindable(port):
                self._locks.append(lock)
                return port
            lock.close()
        raise RuntimeError(f"no free port between {FIRST} and {LAST}")

    def release(self) -> None:
        """Give all ports back."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
