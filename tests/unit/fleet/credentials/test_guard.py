"""The guard around hostile credentials sees what it is there for."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.fleet.credentials.guard import nothing_opened_or_started

DONE: dict[str, tuple[Callable[[], object], str]] = {
    "a file that is read": (lambda: Path("/etc/hosts").read_text(), "open"),
    "a file that is opened": (lambda: open("/etc/hosts"), "open"),  # noqa: SIM115 - nothing is opened
    "a descriptor": (lambda: os.open("/etc/hosts", os.O_RDONLY), "open"),
    "a command": (lambda: subprocess.run(["true"], check=True), "subprocess.Popen"),
    "a shell": (lambda: os.system("true"), "os.system"),
    "a spawned process": (lambda: os.posix_spawn("/bin/true", ["true"], {}), "os.posix_spawn"),
    "a fork": (lambda: os.fork() or os._exit(0), "os.fork"),
    "another program": (lambda: os.execv("/bin/true", ["true"]), "os.exec"),
    "a connection": (lambda: socket.socket().connect(("127.0.0.1", 9)), "socket.connect"),
    "a name that is looked up": (lambda: socket.getaddrinfo("example.org", 443), "socket.getaddrinfo"),
}


@pytest.mark.parametrize("what", DONE)
def test_it_is_refused_and_seen_also_where_the_refusal_is_swallowed(what: str) -> None:
    done, event = DONE[what]
    with pytest.raises(AssertionError, match=event), nothing_opened_or_started(), suppress(PermissionError):
        done()


async def test_it_is_seen_in_another_thread() -> None:
    with pytest.raises(AssertionError, match="hosts"), nothing_opened_or_started(), suppress(PermissionError):
        await asyncio.to_thread(Path("/etc/hosts").read_text)


def test_files_of_one_directory_may_be_read_and_nothing_is_refused_later(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with nothing_opened_or_started(tmp_path):
        assert (tmp_path / "a").read_text() == "x"
    assert Path("/etc/hosts").read_text()
