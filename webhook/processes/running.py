"""What every process has: a name, a log, an event loop and its end by a signal."""

import asyncio
import faulthandler
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from webhook import gc_pauses, logs
from webhook.config import Config, job_kinds, load

STDERR: Final = 2
Serve = Callable[[Config, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves until the event is set."""


def run(serve: Serve, path: Path | None) -> None:
    """Run a process by the configuration of a file until SIGTERM or SIGINT.

    Raises WrongInput for what is wrong in it, before anything is opened.
    """
    import uvloop  # noqa: PLC0415

    # What ends a process in a library's native code would leave no word in its log.
    faulthandler.enable(STDERR)
    config = load(path)
    logs.configure(config.log_level)
    job_kinds(config)

    async def body() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        collecting = asyncio.create_task(gc_pauses.run(), name="collector")
        await serve(config, stop)
        collecting.cancel()

    gc_pauses.tune()
    uvloop.run(body())


def identity_of(config: Config) -> str:
    """Return what this replica is called."""
    return config.identity or os.environ.get("POD_NAME") or socket.gethostname()
