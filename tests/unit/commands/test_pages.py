"""Every ``tutti`` command that a page names is one that the program takes, with the options that it has."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from webhook.cli import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("[a-z]*/README.md")]
PAGES += ROOT.glob("examples/*/README.md")


def commands(text: str) -> list[str]:
    """Return what stands in code and begins with ``tutti``: inline, or a line of a block, up to a pipe or comment."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()] + inline
    plain = [line.removeprefix("kubectl ").partition("#")[0].partition("|")[0].strip(" …)") for line in lines]
    return [line for line in plain if re.match(r"tutti [a-z]", line)]


def refused(command: str) -> str:
    """Return the word of a command that the program does not know; empty if it knows all."""
    found, words = typer.main.get_command(app), shlex.split(command)[1:]
    while words and (below := getattr(found, "commands", None)):
        found = below.get(words[0])
        if found is None:
            return words[0]
        words = words[1:]
    known = {option for each in found.params for option in each.opts} | {"-", "--help"}
    return next((word for word in words if word.startswith("-") and word.partition("=")[0] not in known), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_is_taken(page: Path) -> None:
    assert {command: word for command in commands(page.read_text()) if (word := refused(command))} == {}


def test_the_pages_name_most_commands() -> None:
    named = {command.split()[1] for page in PAGES for command in commands(page.read_text())}
    assert named >= {"explain", "hold", "release", "cancel", "top", "queues", "status", "ledger", "try", "policy"}
    assert refused("tutti queues --sorted waiting") == "--sorted"
    assert refused("tutti policy chek FILES") == "chek"
