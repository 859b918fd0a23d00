"""The demo on a terminal, as a live table, and where there is none, as one line for each thing that happens."""

import shutil
from collections import deque
from types import TracebackType
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from webhook.laboratory.demo.watching import Gang, Picture, Queue

LINES: Final = 7
"""The newest lines are shown below the tables."""
COLOURS: Final = {
    "waiting": "yellow",
    "starting": "cyan",
    "running": "green",
    "stopping": "magenta",
    "finished": "dim",
    "failed": "red",
}
# Wide where nobody wraps lines: a log keeps each of them whole.
_console: Final = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print one line."""
    _console.print(line, markup=False)


class Screen:
    """Shows pictures and lines while it is entered."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._lines: deque[str] = deque(maxlen=LINES)
        terminal = _console.is_terminal and not _console.is_dumb_terminal
        self._live = Live(console=Console(highlight=False), auto_refresh=False) if terminal else None

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, picture: Picture, lines: list[str], now: float) -> None:
        """Show what is there and what has changed."""
        if self._live is None:
            for line in lines:
                say(line)
            return
        self._lines.extend(lines)
        width = shutil.get_terminal_size().columns
        newest = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._lines]
        title = f"{now:.0f} s · {picture.gpus_in_use} of {self._gpus} GPUs in use"
        parts: list[Table | Text] = [_queues(picture.queues, title), _gangs(picture.gangs, width), *newest]
        self._live.update(Group(*parts), refresh=True)


def _queues(queues: tuple[Queue, ...], title: str) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("queue", min_width=12)
    for heading in ("own GPUs", "reserved", "borrowed", "gangs waiting"):
        table.add_column(heading, justify="right")
    for queue in queues:
        borrowed = Text(str(queue.borrowed), style="bold yellow") if queue.borrowed else Text("-")
        table.add_row(queue.name, str(queue.nominal), str(queue.reserved), borrowed, str(queue.waiting))
    return table


def _gangs(gangs: tuple[Gang, ...], width: int) -> Table:
    table = Table(expand=width < 140)
    table.add_column("gang", no_wrap=True)
    for heading in ("GPUs", "pods"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", min_width=8, no_wrap=True)
    table.add_column("reason", no_wrap=True, overflow="ellipsis", ratio=1 if width < 140 else None)
    for gang in gangs:
        bar = "●" * gang.running + "○" * (gang.pods - gang.running)
        pods = Text(f"{bar} {gang.pods}/{gang.size}" if gang.state != "finished" else "-")
        state = Text(gang.state, style=COLOURS[gang.state])
        table.add_row(gang.key, str(gang.gpus), pods, state, gang.reason)
    return table
