"""What shells and kubectl propose while somebody types."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from webhook.cli import app
from webhook.commands.completion import for_kubectl, proposals

ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, "-m", "webhook"]
ASKED = {
    "bash": {"COMP_WORDS": "tutti hol", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "tutti hol"},
    "fish": {"_TYPER_COMPLETE_ARGS": "tutti hol", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def run(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ASKED)
def test_each_shell_reads_a_script_and_is_answered_by_the_command(shell: str) -> None:
    script = run("completion", shell)
    assert f"_TUTTI_COMPLETE=complete_{shell}" in script
    assert "hold" in run(_TUTTI_COMPLETE=f"complete_{shell}", **ASKED[shell])


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        (["expl"], "explain"),
        (["queues", "--so"], "--sort"),
        (["queues", "--sort", "wai"], "waiting"),
        (["policy", ""], "check"),
        (["completion", "f"], "fish"),
    ],
)
def test_commands_options_and_their_values_are_proposed(typed: list[str], proposed: str) -> None:
    assert proposed in [value for value, _ in proposals(app, typed)]


def test_kubectl_is_told_proposals_with_their_meaning_and_whether_files_may_follow() -> None:
    *lines, directive = for_kubectl(app, ["canc"]).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["cancel"]
    assert directive == ":4"
    assert for_kubectl(app, ["try", "some-fi"]).splitlines() == [":0"]


def test_the_plugin_that_kubectl_looks_for_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl_complete-tutti"] == "webhook.cli:complete_for_kubectl"
