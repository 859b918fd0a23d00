"""Completion in shells: the script that a shell reads, and what ``kubectl`` asks a plugin with completion.

The scripts and the answers to them are the command line library's. kubectl runs ``kubectl_complete-tutti`` with the
words after ``kubectl tutti``, the last one unfinished, and takes a line for each proposal and a last one for the shell.
"""

from typing import Final

from typer import Typer
from typer._completion_classes import BashComplete, completion_init
from typer._completion_shared import get_completion_script
from typer.main import get_command

ASKED_BY_SHELL: Final = "_TUTTI_COMPLETE"
"""Set by the scripts when a shell asks."""
_FILES_TOO: Final = ":0"
_NO_FILES: Final = ":4"


def script(shell: str) -> str:
    """Return what ``shell`` has to read."""
    return get_completion_script(prog_name="tutti", complete_var=ASKED_BY_SHELL, shell=shell) + "\n"


def proposals(app: Typer, words: list[str]) -> list[tuple[str, str]]:
    """Return how the last of ``words`` may go on, each with what it means."""
    *before, unfinished = words or [""]
    completion = BashComplete(get_command(app), {}, "tutti", ASKED_BY_SHELL)
    return [(item.value, item.help or "") for item in completion.get_completions(before, unfinished) if item.value]


def answer_shells() -> None:
    """Have the command answer the scripts of every shell."""
    completion_init()


def for_kubectl(app: Typer, words: list[str]) -> str:
    """Return what kubectl takes for an answer."""
    found = proposals(app, words)
    lines = [f"{value}\t{text}" if text else value for value, text in found]
    return "\n".join([*lines, _NO_FILES if found else _FILES_TOO]) + "\n"
