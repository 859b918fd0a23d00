"""``python -m tests.mutants [RULE ...]``: remove each rule in a copy of the tree; some test must notice.

Prints a row of the README's table for each mutant, and ends with 1 when one survives.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.rules import MUTANTS

COPIED: Final = ("webhook", "certs", "tests", "pyproject.toml")
FAILED: Final = re.compile(r"^FAILED (\S+::.+?)(?: - |$)", re.MULTILINE)


def main(rules: list[str]) -> int:
    """Try every mutant of these rules (all when none is named); return the exit code."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="tutti-mutants-") as directory:
        tree = Path(directory)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        for mutant in MUTANTS:
            if not rules or mutant.rule in rules:
                noticed = killed_by(mutant, tree)
                survivors += noticed is None
                print(f"| {mutant.rule} | {mutant.without} | {noticed or 'NOBODY NOTICED'} |", flush=True)
    return 1 if survivors else 0


def killed_by(mutant: Mutant, tree: Path) -> str | None:
    """Return the test that fails without the rule, or None."""
    file = tree / mutant.path
    original = file.read_text()
    assert original.count(mutant.passage) == 1, f"{mutant.path} has changed: {mutant.passage!r}"
    file.write_text(original.replace(mutant.passage, mutant.instead))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(mutant.tests)]
    try:
        run = subprocess.run(
            command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
        )
    finally:
        file.write_text(original)
    if run.returncode == 0:
        return None
    found = FAILED.search(run.stdout)
    assert found, f"pytest did not run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
