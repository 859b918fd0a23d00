"""Sees each file that is opened, each process that is started and each connection, by whatever way that is done.

Python's own audit events tell of them. A patched function sees only its own callers: ``Path.read_text`` calls neither
``builtins.open`` nor ``os.open`` by these names.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROCESSES: Final = (
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
)
CONNECTIONS: Final = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
EVENTS: Final = frozenset({"open", *PROCESSES, *CONNECTIONS})


class Guard:
    """What was seen while it was up, in all threads."""

    def __init__(self, readable: tuple[Path, ...]) -> None:
        self._readable = readable
        self.seen: list[str] = []

    def take(self, event: str, args: tuple[Any, ...]) -> None:
        """Take in an event. Raises PermissionError where nothing of the kind may be done."""
        if event not in EVENTS or (event == "open" and self._may_open(args[0])):
            return
        self.seen.append(f"{event} {args}")
        raise PermissionError(f"{event} {args}")

    def _may_open(self, path: Any) -> bool:
        if not isinstance(path, str | Path):
            return False
        return any(Path(path).is_relative_to(each) for each in self._readable) or _is_module(Path(path))


def _is_module(path: Path) -> bool:
    """Return whether a file is opened to import it, which happens whenever something is imported late."""
    named_as_one = path.suffix in (".py", ".so") or path.parent.name == "__pycache__"
    return named_as_one and any(path.is_relative_to(Path(each).absolute()) for each in sys.path)


_up: list[Guard] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for guard in _up:
        guard.take(event, args)


sys.addaudithook(_hook)
"""For good: a hook cannot be taken away."""


@contextmanager
def nothing_opened_or_started(*readable: Path) -> Iterator[Guard]:
    """Refuse it in the block, and fail at its end if it was tried, for who tried may have been content with that.

    ``readable``: directories whose files may be opened.
    """
    guard = Guard(readable)
    _up.append(guard)
    try:
        yield guard
    finally:
        _up.remove(guard)
    assert not guard.seen, guard.seen
